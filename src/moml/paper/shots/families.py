"""The families of tasks that beta is studied on, and the model and inner step of each."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.random import normal, uniform
from jaxtyping import Array, Float, Int

from moml.models import mse
from moml.paper.sine.score import LOSS, NET, TESTED_WITH
from moml.tasks import sine, unseen_sine
from moml.tasks.sampler import as_drawn
from moml.tasks.sine import Curve, curves
from moml.types import Batch, Key, Loss, Params, Tasks

Box = tuple[tuple[float, float], ...]  # (low, high) of each parameter
CURVES: dict[str, tuple[Curve, Box]] = {  # functions of x with parameters drawn from a box
    "bump": (  # a hill or a valley somewhere
        lambda p, x: p[0] * jnp.exp(-0.5 * ((x - p[1]) / p[2]) ** 2),
        ((-5.0, 5.0), (-3.0, 3.0), (0.7, 2.0)),
    ),
    "ramp": (  # from one level to another, gently or all at once
        lambda p, x: p[0] * jnp.tanh(p[2] * (x - p[1])) + p[3],
        ((1.0, 4.0), (-3.0, 3.0), (0.4, 2.0), (-1.0, 1.0)),
    ),
}
FAMILIES = ("sine", *CURVES, "linear")


class Learner(NamedTuple):
    """What is trained on a family."""

    loss: Loss
    init: Callable[[Key], Params]
    alpha: float
    test_tasks: int = 500


def learner(name: str) -> Learner:
    """The paper's network; on the linear tasks y = w x with a larger inner step."""
    return LINEAR if name == "linear" else Learner(LOSS, NET.init, float(TESTED_WITH.alpha))


def family(name: str, key: Key, n: int, noise: float = 0.0) -> Tasks:
    """n tasks of a family, drawn by the key."""
    if name == "sine":
        return unseen_sine(key, n, noise=noise)
    if name == "linear":
        scales = jnp.linspace(0.2, 1.0, n)
        return Tasks(n, partial(_lines, noise), as_drawn, scales)
    curve, box = CURVES[name]
    keys = jax.random.split(key, len(box))
    columns = [uniform(k, (n,), minval=a, maxval=b) for k, (a, b) in zip(keys, box, strict=True)]
    return curves(curve, jnp.stack(columns, axis=1), noise=noise)


def training_tasks(name: str, n: int, noise: float) -> Tasks:
    """Those that are trained on: the paper's 25 waves, else drawn from a fixed key."""
    if (name, n) == ("sine", 25):
        return sine(noise=noise)
    return family(name, jax.random.key(7), n, noise)


LINEAR = Learner(mse(lambda w, x: w * x), lambda key: jnp.zeros(()), 0.5, test_tasks=20_000)


def _lines(
    noise: float, scales: Float[Array, " n"], key: Key, ids: Int[Array, " tasks"], size: int
) -> Batch:
    """y = s x + noise with x ~ s N(0, 1), s from 0.2 to 1.

    One step of 0.5 from w leaves (1 - s^2 m)^2 s^2 (w - s)^2, m the mean of `size` squares with
    mean 1 and variance 2 / size. So the best w for k samples is the mean of s with the weights
    s^2 ((1 - s^2)^2 + 2 s^4 / k), and that of training with S2 = S1 has beta / K for 1 / k.
    """
    of_x, of_y = jax.random.split(key)
    x = scales[ids][:, None, None] * normal(of_x, (len(ids), size, 1))
    y = scales[ids][:, None, None] * x
    return Batch(x, y + noise * normal(of_y, y.shape) if noise else y)
