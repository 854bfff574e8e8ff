"""Weights of PyTorch modules as parameters of our networks, and back; PyTorch is not needed.

A PyTorch module keeps images as [channels, height, width] and a kernel as [out, in, height, width];
ours are [height, width, channels], and a kernel is a matrix of patches [height * width * in, out].
"""

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from moml.errors import ConfigError
from moml.models.cnn import CNN, FILTERS, KERNEL
from moml.models.convolution import Convolution
from moml.models.networks import MLP, Layer
from moml.models.norms import BatchNorm, Norm, Stats
from moml.models.resnet import Block, ResNet, Shortcut
from moml.types import Params

State = Mapping[str, Any]  # name -> torch.Tensor or array
Array = Any  # of numpy or jax
Convert = Callable[[np.ndarray], np.ndarray]
UNUSED = "num_batches_tracked"  # a counter that has no part in predictions


class Layout(NamedTuple):
    """How an array is kept there, and here."""

    ours: Convert
    theirs: Convert


Visit = Callable[[str, Array, Layout], Array]  # name, leaf, layout -> the new leaf
SAME = Layout(lambda array: array, lambda array: array)
RESNETS = (("downsample", "fc"), ("shortcut", "linear"))  # torchvision's; the usual for CIFAR


def from_torch_state(
    state: object, params: Params, *, names: Sequence[str] | None = None
) -> Params:
    """The weights of a PyTorch module in the place of `params` of `moml.mlp`, `cnn` or `resnet18`.

    Parameters
    ----------
    state
        `module.state_dict()`, arrays by name, or a safetensors file. A pickle (.pt) is not read, as
        it can run code: load it with `torch.load(path, weights_only=True)`.
    params
        Parameters of the network, such as `net.init(key)`: their shapes and types are kept.
    names
        Names of the module's layers in the order of the network, such as ["conv1", "conv2", "fc1",
        "fc2"] for `moml.cnn`. By default those of `nn.Sequential` with activations in between for
        `moml.mlp` (0, 2, ...), of PFLlib for `moml.cnn` (conv1.0, conv2.0, fc1.0, fc), and of
        torchvision or the usual CIFAR code for `moml.models.resnet18`, whose norms may be
        group norms.

    Returns
    -------
    Parameters of the same structure, with which the network predicts as the module does in `eval`
    mode: for images [K, height, width, channels] where the module takes [K, channels, height,
    width].

    >>> import jax
    >>> from moml.models import mlp
    >>> net = mlp(2, 3, 1)
    >>> theirs = {"0.weight": np.ones((3, 2)), "0.bias": np.zeros(3)}
    >>> theirs |= {"2.weight": np.ones((1, 3)), "2.bias": np.zeros(1)}
    >>> params = from_torch_state(theirs, net.init(jax.random.key(0)))
    >>> net.predict(params, jnp.array([[1.0, 2.0]])).tolist()
    [[9.0]]
    """
    given = _read(state)
    layers = _names(params, names, given)
    used: set[str] = set()

    def take(name: str, like: Array, layout: Layout) -> Array:
        if name not in given:
            found = ", ".join([*given][:8]) + (", ..." if len(given) > 8 else "")
            raise ConfigError(f"the state must have {name}; got {found or 'nothing'}; see `names`")
        used.add(name)
        array, shape = _plain(given[name]), layout.theirs(np.empty(like.shape, "?")).shape
        if array.shape != shape:
            raise ConfigError(f"{name} must have the shape {list(shape)}; got {list(array.shape)}")
        return jnp.asarray(layout.ours(array), like.dtype)

    made = _walk(params, layers, take)
    left = [name for name in given if name not in used and not name.endswith(UNUSED)]
    if left:
        raise ConfigError(f"the state must have the network's weights alone; got also {left[0]}")
    return made


def to_torch_state(params: Params, *, names: Sequence[str] | None = None) -> dict[str, np.ndarray]:
    """The state dict of the PyTorch module that predicts as `moml.mlp`, `cnn` or `resnet18` does.

    Parameters
    ----------
    params
        Parameters of the network.
    names
        See `from_torch_state`.

    Returns
    -------
    Arrays by name, for `module.load_state_dict({k: torch.from_numpy(v) for k, v in ...})` or for
    `safetensors.numpy.save_file`.

    >>> import jax
    >>> from moml.models import cnn
    >>> state = to_torch_state(cnn(1, 10, side=28).init(jax.random.key(0)))
    >>> state["conv1.0.weight"].shape, state["fc1.0.weight"].shape
    ((32, 1, 5, 5), (512, 1024))
    """
    state: dict[str, np.ndarray] = {}

    def put(name: str, ours: Array, layout: Layout) -> Array:
        state[name] = np.array(layout.theirs(np.asarray(ours)), order="C")
        return ours

    _walk(params, _names(params, names, None), put)
    return state


def _read(state: object) -> State:
    if isinstance(state, Mapping):
        return state
    if not isinstance(state, str | os.PathLike):
        given = type(state).__name__
        raise ConfigError(f"state must be a state dict or a safetensors file; got {given}")
    if Path(state).suffix != ".safetensors":
        load = "torch.load(path, weights_only=True)"
        raise ConfigError(f"{state} must be a .safetensors file; load a pickle with {load}")
    try:
        from safetensors import SafetensorError
        from safetensors.numpy import load_file
    except ImportError as error:
        raise ConfigError("safetensors files need: pip install safetensors") from error
    try:
        return load_file(state)
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{state} cannot be read: {error}") from error


def _plain(tensor: Any) -> np.ndarray:
    """A tensor, also of another device or in bfloat16, or an array, as floats of numpy."""
    if hasattr(tensor, "detach"):
        tensor = tensor.detach().cpu().double().numpy()
    return np.asarray(tensor).astype(np.float64)


def _names(params: Params, names: Sequence[str] | None, state: State | None) -> list[str]:
    """The layers' names: as given, else those of the known implementation that the state has."""
    if isinstance(params, MLP):
        known = [[str(2 * i) for i in range(len(params.body) + 1)]]
    elif isinstance(params, CNN):
        known = [["conv1.0", "conv2.0", "fc1.0", "fc"]]
    elif isinstance(params, ResNet):
        known = [list(_resnet_names(params, *style)) for style in RESNETS]
    else:
        kind = type(params).__name__
        raise ConfigError(f"params must be of mlp, cnn or resnet18 of moml.models; got {kind}")
    if names is None:
        has = lambda layers: state is not None and all(f"{n}.weight" in state for n in layers)
        return next(filter(has, known), known[0])
    if len(names) != len(known[0]):
        raise ConfigError(f"names must be {len(known[0])}, such as {known[0]}; got {len(names)}")
    return list(names)


def _resnet_names(params: ResNet, around: str, head: str) -> Iterator[str]:
    yield from ("conv1", "bn1")
    for i, block in enumerate(params.body):
        at = f"layer{1 + i // 2}.{i % 2}"
        yield from (f"{at}.{part}" for part in ("conv1", "bn1", "conv2", "bn2"))
        if block.shortcut is not None:
            yield from (f"{at}.{around}.0", f"{at}.{around}.1")
    yield head


def _walk(params: Params, names: Sequence[str], visit: Visit) -> Params:
    """The same network, every leaf what `visit(name, leaf, layout)` makes of it."""
    each = iter(names)

    def affine(layer: Layer | Convolution, layout: Layout) -> tuple[Array, Array]:
        name = next(each)
        weight = visit(f"{name}.weight", layer.weight, layout)
        return weight, visit(f"{name}.bias", layer.bias, SAME)

    def linear(layer: Layer, layout: Layout = SAME) -> Layer:
        return Layer(*affine(layer, layout))

    def conv(weight: Array, kernel: int) -> Array:
        return visit(f"{next(each)}.weight", weight, _patches(kernel))

    def norm(old: Norm | BatchNorm) -> Norm | BatchNorm:
        name = next(each)
        part = lambda theirs, leaf: visit(f"{name}.{theirs}", leaf, SAME)
        scale, offset = part("weight", old.scale), part("bias", old.offset)
        if isinstance(old, Norm):
            return Norm(scale, offset)
        mean, variance = old.stats
        stats = Stats(part("running_mean", mean), part("running_var", variance))
        return BatchNorm(scale, offset, stats)

    def block(old: Block) -> Block:
        conv1, norm1 = conv(old.conv1, 3), norm(old.norm1)
        conv2, norm2 = conv(old.conv2, 3), norm(old.norm2)
        around = old.shortcut
        if around is not None:
            around = Shortcut(conv(around.conv, 1), norm(around.norm))
        return Block(conv1, norm1, conv2, norm2, around)

    if isinstance(params, MLP):
        return MLP(tuple(linear(layer) for layer in params.body), linear(params.head))
    if isinstance(params, CNN):
        body = tuple(Convolution(*affine(layer, _patches(KERNEL))) for layer in params.body)
        return CNN(body, linear(params.hidden, FLAT), linear(params.head))
    stem, first = conv(params.stem, 3), norm(params.norm)
    return ResNet(stem, first, tuple(block(old) for old in params.body), linear(params.head))


def _patches(kernel: int) -> Layout:
    """A kernel: there [out, in, k, k], here patches [k k in, out]."""
    return Layout(
        lambda there: there.transpose(2, 3, 1, 0).reshape(-1, len(there)),
        lambda here: here.reshape(kernel, kernel, -1, here.shape[1]).transpose(3, 2, 0, 1),
    )


def _flat(there: bool) -> Convert:
    """Weights of flattened maps: inputs by row, column, channel, and `there` by channel first."""

    def convert(weight: np.ndarray) -> np.ndarray:
        channels, side = FILTERS[-1], math.isqrt(weight.shape[1] // FILTERS[-1])
        shape, axes = (side, side, channels), (0, 3, 1, 2)
        if not there:
            shape, axes = (channels, side, side), (0, 2, 3, 1)
        return weight.reshape(-1, *shape).transpose(axes).reshape(weight.shape)

    return convert


FLAT = Layout(_flat(there=False), _flat(there=True))
