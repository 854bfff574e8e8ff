"""Outputs of PyTorch for weights that are drawn by name: tests/models/torch_outputs.npz.

    pip install torch==2.13.0
    python -m benchmarks.make_torch_outputs

`tests/models/test_torch_state.py` holds our networks to them, without PyTorch. Here the way back
is checked too: the modules load what `to_torch_state` gives, and predict the same.
"""

import sys
from pathlib import Path

import jax
import numpy as np
import torch
from tests.support.torch_weights import IMAGES, inputs, weight
from torch import nn

from moml.models import cnn, from_torch_state, mlp, resnet18, to_torch_state

FILE = Path(__file__).parents[1] / "tests" / "models" / "torch_outputs.npz"


class Cnn(nn.Module):
    """FedAvg's network as PFLlib writes it."""

    def __init__(self, channels: int, classes: int, hidden: int):
        super().__init__()
        conv = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 5), nn.ReLU(), nn.MaxPool2d(2))
        self.conv1, self.conv2 = conv(channels, 32), conv(32, 64)
        self.fc1 = nn.Sequential(nn.Linear(hidden, 512), nn.ReLU())
        self.fc = nn.Linear(512, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.fc1(torch.flatten(self.conv2(self.conv1(x)), 1)))


class Block(nn.Module):
    """torchvision's BasicBlock."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: type):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1, self.relu = norm(outputs), nn.ReLU()
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), norm(outputs)
        self.downsample = None
        if stride > 1:
            around = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.downsample = nn.Sequential(around, norm(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class Resnet(nn.Module):
    """ResNet-18 for CIFAR: torchvision's names, a 3 x 3 stem and no max-pool."""

    def __init__(self, channels: int, classes: int, width: int, norm: type):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, 1, 1, bias=False)
        self.bn1, self.relu = norm(width), nn.ReLU()
        for i in range(4):
            wide, before = width * 2**i, width * 2 ** max(0, i - 1)
            stride = 2 if i else 1
            blocks = Block(before, wide, stride, norm), Block(wide, wide, 1, norm)
            setattr(self, f"layer{i + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(8 * width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean(dim=(2, 3)))


PAIRS = {  # ours, and the module that it must equal
    "mlp": (mlp(5, 7, 6, 3), nn.Sequential(
        nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 6), nn.ReLU(), nn.Linear(6, 3)
    )),
    "cnn": (cnn(3, 4, side=20), Cnn(3, 4, 256)),
    "resnet-batch": (resnet18(3, 4, norm="batch", width=8), Resnet(3, 4, 8, nn.BatchNorm2d)),
    "resnet-group": (
        resnet18(3, 4, norm="group", width=8), Resnet(3, 4, 8, lambda n: nn.GroupNorm(2, n))
    ),
}  # fmt: skip


def main() -> None:
    outputs = {"torch": np.array(torch.__version__)}
    for name, (net, module) in PAIRS.items():
        floats = {k: v for k, v in module.state_dict().items() if v.is_floating_point()}
        drawn = {k: torch.from_numpy(weight(k, tuple(v.shape))) for k, v in floats.items()}
        module.load_state_dict(drawn)
        x = inputs(name)
        there = torch.from_numpy(np.moveaxis(x, -1, 1).copy() if name in IMAGES else x)
        with torch.no_grad():
            outputs[name] = module.eval()(there).numpy()
        params = from_torch_state(module.state_dict(), net.init(jax.random.key(0)))
        apart = np.abs(np.asarray(net.predict(params, x)) - outputs[name]).max()
        fresh = net.init(jax.random.key(1))  # the way back, of weights that it has not seen
        module.load_state_dict({k: torch.from_numpy(v) for k, v in to_torch_state(fresh).items()})
        with torch.no_grad():
            back = np.abs(module(there).numpy() - np.asarray(net.predict(fresh, x))).max()
        print(f"{name:14} largest {np.abs(outputs[name]).max():.2f}, apart {apart:.1e}, {back:.1e}")
        if not max(apart, back) <= 1e-5:
            sys.exit(f"{name} must equal PyTorch to 1e-5")
    np.savez_compressed(FILE, **outputs)
    print(f"{FILE.name}: {FILE.stat().st_size} bytes, torch {torch.__version__}")


if __name__ == "__main__":
    main()
