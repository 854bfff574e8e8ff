"""Record the initial network that the released code starts every sine run from.

torch's default initialisation of 1-40-40-1 after torch.manual_seed(1234). Needs torch; run once:

    python benchmarks/make_released_init.py src/moml/paper/sine/released.npz
"""

import sys

import numpy as np
import torch


def main():
    torch.manual_seed(1234)
    layers = [torch.nn.Linear(1, 40), torch.nn.Linear(40, 40), torch.nn.Linear(40, 1)]
    arrays = {}
    for i, layer in enumerate(layers):
        arrays[f"weight{i}"] = layer.weight.detach().numpy()
        arrays[f"bias{i}"] = layer.bias.detach().numpy()
    np.savez_compressed(sys.argv[1], **arrays)


if __name__ == "__main__":
    main()
