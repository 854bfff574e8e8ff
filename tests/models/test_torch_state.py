"""Weights of PyTorch modules: outputs equal to those of PyTorch, which is not needed here."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

import moml
from moml.errors import ConfigError
from moml.models import cnn, conv4, mlp, resnet18, to_torch_state
from tests.support.torch_weights import INPUTS, inputs, weight

STORED = np.load(Path(__file__).with_name("torch_outputs.npz"))  # benchmarks/make_torch_outputs.py
NETS = {
    "mlp": mlp(5, 7, 6, 3),
    "cnn": cnn(3, 4, side=20),
    "resnet-batch": resnet18(3, 4, norm="batch", width=8),
    "resnet-group": resnet18(3, 4, norm="group", width=8),
}


def theirs(name: str) -> dict[str, np.ndarray]:
    """The state dict that the outputs were made with, from names and shapes alone."""
    shapes = to_torch_state(NETS[name].init(jax.random.key(0)))
    return {key: weight(key, array.shape) for key, array in shapes.items()}


@pytest.mark.parametrize("name", INPUTS)
def test_outputs_are_those_of_torch(name, tmp_path):
    net, state = NETS[name], theirs(name)
    params = moml.from_torch_state(state, net.init(jax.random.key(1)))
    outputs = np.asarray(net.predict(params, jnp.asarray(inputs(name), float)))
    assert np.abs(STORED[name]).max() > 0.1
    np.testing.assert_allclose(outputs, STORED[name], atol=1e-5, rtol=0)

    back = to_torch_state(params)
    assert set(back) == set(state)
    for key, array in state.items():
        np.testing.assert_array_equal(back[key], array)

    safetensors.numpy.save_file(state, tmp_path / "there.safetensors")
    again = moml.from_torch_state(tmp_path / "there.safetensors", net.init(jax.random.key(1)))
    jax.tree.map(np.testing.assert_array_equal, again, params)
    half = {key: array.astype(ml_dtypes.bfloat16) for key, array in state.items()}
    safetensors.numpy.save_file(half, tmp_path / "half.safetensors")
    rounded = moml.from_torch_state(tmp_path / "half.safetensors", net.init(jax.random.key(1)))
    np.testing.assert_allclose(rounded.head.weight, params.head.weight, rtol=2**-8)


class Tensor:
    """What `from_torch_state` asks of a tensor of PyTorch: one that numpy cannot read at once."""

    def __init__(self, array):
        self.array = array

    def __array__(self, *_):
        raise TypeError("can't convert a bfloat16 tensor on cuda:0 to numpy")

    def detach(self):
        return self

    cpu = double = detach

    def numpy(self):
        return self.array.astype(float)


def test_tensors_and_other_names():
    state, net = theirs("resnet-batch"), NETS["resnet-batch"]
    params = moml.from_torch_state(state, net.init(jax.random.key(1)))
    usual = {
        k.replace("downsample", "shortcut").replace("fc.", "linear."): v for k, v in state.items()
    }
    counters = {"bn1.num_batches_tracked": np.array(7)}
    tensors = {k: Tensor(v) for k, v in (usual | counters).items()}
    again = moml.from_torch_state(tensors, net.init(jax.random.key(1)))
    jax.tree.map(np.testing.assert_array_equal, again, params)

    state, net = theirs("mlp"), NETS["mlp"]
    names = ["first", "second", "out"]
    renamed = {f"{names[int(k[0]) // 2]}{k[1:]}": v for k, v in state.items()}
    mine = moml.from_torch_state(renamed, net.init(jax.random.key(1)), names=names)
    assert set(to_torch_state(mine, names=names)) == set(renamed)
    same = moml.from_torch_state(state, net.init(jax.random.key(1)))
    jax.tree.map(np.testing.assert_array_equal, mine, same)
    small = jax.tree.map(lambda x: x.astype(np.float32), net.init(jax.random.key(1)))
    assert moml.from_torch_state(state, small).head.weight.dtype == np.float32


def test_what_does_not_fit_is_told(tmp_path, monkeypatch):
    state, params = theirs("cnn"), NETS["cnn"].init(jax.random.key(0))
    wide = {**state, "conv1.0.weight": np.zeros((32, 3, 7, 7))}
    wanted = r"conv1.0.weight must have the shape \[32, 3, 5, 5\]; got \[32, 3, 7, 7\]"
    with pytest.raises(ConfigError, match=wanted):
        moml.from_torch_state(wide, params)
    turned = {**state, "fc1.0.weight": state["fc1.0.weight"].T}
    with pytest.raises(ConfigError, match=r"must have the shape \[512, 256\]; got \[256, 512\]"):
        moml.from_torch_state(turned, params)
    with pytest.raises(ConfigError, match=r"must have 0.weight; got conv1.0.weight, .*see `names`"):
        moml.from_torch_state(state, NETS["mlp"].init(jax.random.key(0)))
    with pytest.raises(ConfigError, match="weights alone; got also extra"):
        moml.from_torch_state({**state, "extra": np.zeros(1)}, params)
    with pytest.raises(ConfigError, match=r"names must be 4, such as .*; got 1"):
        moml.from_torch_state(state, params, names=["conv1"])
    with pytest.raises(ConfigError, match=r"of mlp, cnn or resnet18 of moml.models; got Conv4"):
        to_torch_state(conv4(1, 2).init(jax.random.key(0)))
    with pytest.raises(ConfigError, match=r"old.pt must be a .safetensors file"):
        moml.from_torch_state("old.pt", params)
    with pytest.raises(ConfigError, match="state dict or a safetensors file; got list"):
        moml.from_torch_state([1], params)
    with pytest.raises(ConfigError, match=r"none.safetensors cannot be read: No such file"):
        moml.from_torch_state(tmp_path / "none.safetensors", params)
    (tmp_path / "bad.safetensors").write_bytes(b"no header")
    with pytest.raises(ConfigError, match=r"bad.safetensors cannot be read"):
        moml.from_torch_state(tmp_path / "bad.safetensors", params)
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ConfigError, match="pip install safetensors"):
        moml.from_torch_state(tmp_path / "bad.safetensors", params)
