"""Convolutions as patches and one product against other forms under vmap: steps of 20 clients.

Every client takes SGD steps of FedAvg's CNN on a batch of 10 images of CIFAR's shape, with weights
of its own, all clients at once. All but the convolution is the same on all sides, and before any
clock starts their gradients must agree in double precision. It runs on a CPU and on a GPU.
"""

import argparse
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np

from common import interleave, machine, ratio, table
from moml.models import cnn, cross_entropy
from moml.types import Batch

BATCH, ETA, SIDE, CHANNELS, CLASSES = 10, 0.005, 32, 3, 10
NET = cnn(CHANNELS, CLASSES, side=SIDE)


def lax_convolve(x: Any, weight: Any, kernel: int) -> Any:
    """The same convolution by XLA's own operation."""
    return jax.lax.conv_general_dilated(
        x, weight.reshape(kernel, kernel, x.shape[3], -1), (1, 1), "VALID",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )  # fmt: skip


def one_copy_convolve(x: Any, weight: Any, kernel: int) -> Any:
    """The same by patches that are put together in one copy, not by columns and then lines."""
    high, wide = (side - kernel + 1 for side in x.shape[1:3])
    at = [(i, j) for i in range(kernel) for j in range(kernel)]
    return jnp.concatenate([x[:, i : i + high, j : j + wide] for i, j in at], axis=-1) @ weight


def network(convolve: Callable[..., Any]) -> Callable[..., Any]:
    """The same network with it; the name is looked up when the network is traced."""

    def predict(params: Any, x: Any) -> Any:
        with patch("moml.models.cnn.convolve", convolve):
            return NET.predict(params, x)

    return predict


OTHERS = {"one_copy": one_copy_convolve, "lax_conv": lax_convolve}
SIDES = {"patches": NET.predict} | {name: network(f) for name, f in OTHERS.items()}


def clients(count: int) -> tuple[Any, Batch]:
    """The models of all clients, and a batch of each."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(count, BATCH, SIDE, SIDE, CHANNELS))
    y = rng.integers(0, CLASSES, (count, BATCH))
    params = jax.vmap(NET.init)(jax.random.split(jax.random.key(0), count))
    dtype = jnp.result_type(float)
    return params, Batch(jnp.asarray(x, dtype), jnp.asarray(y, jnp.int32))


def check() -> None:
    """The gradients of both sides in double precision, or an error."""
    with jax.enable_x64(True):
        params, batch = clients(2)
        params = jax.tree.map(lambda x: x.astype(float), params)
        first, *sides = [
            jax.vmap(jax.grad(cross_entropy(f)))(params, batch) for f in SIDES.values()
        ]
        far = lambda a, b: float(jnp.abs(a - b).max())
        apart = [jax.tree.map(far, first, side) for side in sides]
    worst = max(jax.tree.leaves(apart))
    print(f"check: gradients {worst:.1e} apart", flush=True)
    if not worst < 1e-12:
        raise SystemExit("the sides disagree")


def steps(predict: Callable[..., Any], count: int, length: int) -> Callable[[], None]:
    """A call takes `length` steps of all clients."""
    params, batch = clients(count)
    gradient = jax.vmap(jax.grad(cross_entropy(predict)))

    @jax.jit
    def run(params: Any) -> Any:
        def one(_: Any, params: Any) -> Any:
            return jax.tree.map(lambda w, g: w - ETA * g, params, gradient(params, batch))

        return jax.lax.fori_loop(0, length, one, params)

    return lambda: jax.block_until_ready(run(params))


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--clients", type=int, default=20)
    given.add_argument("--steps", type=int, default=None, help="in a call; 1 on a CPU, else 100")
    given.add_argument("--turns", type=int, default=5)
    a = given.parse_args()
    length = a.steps or (1 if jax.default_backend() == "cpu" else 100)
    machine()
    check()
    sides = {name: steps(predict, a.clients, length) for name, predict in SIDES.items()}
    timings = interleave(sides, length, turns=a.turns)
    table(timings)
    for name in OTHERS:
        ratio(f"{name}_over_patches", timings[name], timings["patches"])


if __name__ == "__main__":
    main()
