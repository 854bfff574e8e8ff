"""Regression tasks on curves: the paper's y = A sin(phi + x), or another family of functions."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from moml.errors import DataError
from moml.kept import kept
from moml.tasks.sampler import as_drawn
from moml.types import Batch, Key, Tasks

Curve = Callable[[Float[Array, " p"], Float[Array, "..."]], Float[Array, "..."]]


def curves(curve: Curve, parameters: Float[Array, "n p"], *, noise: float = 0.0) -> Tasks:
    """Tasks y = curve(parameters[i], x) + noise, x ~ U(-5, 5)."""
    return Tasks(len(parameters), _drawn(curve, noise), as_drawn, parameters)


@kept
def _drawn(curve: Curve, noise: float) -> Callable[..., Batch]:
    """The draw of points of some curves."""

    def draw(
        parameters: Float[Array, "n p"], key: Key, ids: Int[Array, " tasks"], size: int
    ) -> Batch:
        x_key, noise_key = jax.random.split(key)
        x = jax.random.uniform(x_key, (len(ids), size, 1), minval=-5.0, maxval=5.0)
        y = jax.vmap(curve)(parameters[ids], x)
        if noise:
            y = y + noise * jax.random.normal(noise_key, y.shape)
        return Batch(x, y)

    return draw


def wave(p: Float[Array, " p"], x: Float[Array, "..."]) -> Float[Array, "..."]:
    """A sin(phi + x) of p = (A, phi)."""
    return p[0] * jnp.sin(p[1] + x)


def sine(
    amplitude: Float[Array | np.ndarray, " n"] | None = None,
    phase: Float[Array | np.ndarray, " n"] | None = None,
    *,
    noise: float = 0.0,
) -> Tasks:
    """Sine waves y = A sin(phi + x) + noise, x ~ U(-5, 5).

    Parameters
    ----------
    amplitude, phase
        A and phi of each of n tasks; by default those of the paper's 25 training tasks.
    noise
        Standard deviation of normal noise in y.

    Returns
    -------
    Tasks
        A family of n tasks; samples are drawn anew at each visit.

    >>> tasks = sine()
    >>> tasks.n, tasks.draw(jax.random.key(0), jnp.array([0, 24]), 10).x.shape
    (25, (2, 10, 1))
    """
    if amplitude is None and phase is None:
        five = np.arange(1, 6, dtype=jnp.result_type(float))
        amplitude, phase = np.repeat(five, 5), np.tile(five * five.dtype.type(np.pi / 5), 5)
    if amplitude is None or phase is None or amplitude.shape != phase.shape:
        raise DataError("amplitude and phase must be given together, with equal lengths")
    return curves(wave, jnp.asarray(np.stack([amplitude, phase], axis=1)), noise=noise)


@partial(jax.jit, static_argnums=1)
def unseen_waves(key: Key, n: int) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Amplitudes A ~ U(1, 5) and phases phi ~ U(pi/5, pi) of n waves of the paper's kind."""
    a_key, p_key = jax.random.split(key)
    amplitude = jax.random.uniform(a_key, (n,), minval=1.0, maxval=5.0)
    phase = jax.random.uniform(p_key, (n,), minval=jnp.pi / 5, maxval=jnp.pi)
    return amplitude, phase


def unseen_sine(key: Key, n: int = 500, *, noise: float = 0.0) -> Tasks:
    """Test tasks of the paper's kind, A ~ U(1, 5), phi ~ U(pi/5, pi).

    Parameters
    ----------
    key
        Of the random amplitudes and phases.
    n
        Number of tasks.
    noise
        Standard deviation of normal noise in y.

    Returns
    -------
    Tasks
        A family of n tasks.

    >>> unseen_sine(jax.random.key(0), 100).n
    100
    """
    return sine(*unseen_waves(key, n), noise=noise)
