"""The families of curves that the matching rule is judged on."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.random import uniform

from moml.tasks import sine, unseen_sine
from moml.tasks.sine import Curve, curves
from moml.types import Key, Tasks


class Family(NamedTuple):
    """Functions of x with parameters drawn from a box: (low, high) for each."""

    curve: Curve
    box: tuple[tuple[float, float], ...]


FAMILIES = {
    "bump": Family(  # a hill or a valley somewhere
        lambda p, x: p[0] * jnp.exp(-0.5 * ((x - p[1]) / p[2]) ** 2),
        ((-5.0, 5.0), (-3.0, 3.0), (0.7, 2.0)),
    ),
    "ramp": Family(  # from one level to another, gently or all at once
        lambda p, x: p[0] * jnp.tanh(p[2] * (x - p[1])) + p[3],
        ((1.0, 4.0), (-3.0, 3.0), (0.4, 2.0), (-1.0, 1.0)),
    ),
}


def family(name: str, key: Key, n: int, noise: float = 0.0) -> Tasks:
    """n tasks of a family, drawn by the key."""
    if name == "sine":
        return unseen_sine(key, n, noise=noise)
    curve, box = FAMILIES[name]
    keys = jax.random.split(key, len(box))
    columns = [uniform(k, (n,), minval=a, maxval=b) for k, (a, b) in zip(keys, box, strict=True)]
    return curves(curve, jnp.stack(columns, axis=1), noise=noise)


def training(name: str, n: int, noise: float) -> Tasks:
    """The tasks that a surface trains on: the paper's 25 waves, or n of any family."""
    if (name, n) == ("sine", 25):
        return sine(noise=noise)
    return family(name, jax.random.key(7), n, noise)
