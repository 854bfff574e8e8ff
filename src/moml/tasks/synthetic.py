"""Synthetic(a, b): heterogeneous logistic tasks, a usual benchmark of federated learning."""

import jax
import jax.numpy as jnp
import numpy as np

from moml.tasks.arrays import from_arrays
from moml.types import Key, Tasks


def synthetic(
    key: Key,
    n: int = 30,
    *,
    samples: int = 100,
    a: float = 1.0,
    b: float = 1.0,
    features: int = 60,
    classes: int = 10,
    unequal: bool = False,
    fresh: bool = False,
) -> Tasks:
    """n classification tasks y = argmax(W x + c).

    W, c ~ N(u, 1), u ~ N(0, a);  x ~ N(m, diag(j^-1.2)), m ~ N(M, 1), M ~ N(0, b).

    Parameters
    ----------
    key
        Of all random numbers.
    n, samples
        Number of tasks, and of samples of each.
    a, b
        How much W and x differ between tasks.
    features, classes
        Sizes of x and y.
    unequal
        Whether the numbers of samples are log-normal, from 10 to `samples`.
    fresh
        Draw other samples of the same tasks.

    Returns
    -------
    Tasks
        A family of n tasks with finite data.

    >>> synthetic(jax.random.key(0), 5, samples=20).n
    5
    """
    keys = jax.random.split(key, 7)
    u = jnp.sqrt(a) * jax.random.normal(keys[0], (n, 1, 1))
    weight = u + jax.random.normal(keys[1], (n, classes, features))
    bias = u[:, :, 0] + jax.random.normal(keys[2], (n, classes))
    centre = jnp.sqrt(b) * jax.random.normal(keys[3], (n, 1))
    mean = centre + jax.random.normal(keys[4], (n, features))
    scale = jnp.arange(1, features + 1, dtype=mean.dtype) ** -0.6  # variance j^-1.2
    noise_key = jax.random.fold_in(keys[5], 1) if fresh else keys[5]
    noise = jax.random.normal(noise_key, (n, samples, features))
    x = mean[:, None, :] + scale[None, None, :] * noise
    y = jnp.argmax(jnp.einsum("ncf,nsf->nsc", weight, x) + bias[:, None, :], axis=-1)
    sizes = None
    if unequal:
        drawn = np.asarray(jnp.exp(2 * jax.random.normal(keys[6], (n,)) + 4))
        sizes = np.clip(drawn.astype(int), min(10, samples), samples)
    return from_arrays(x, y, sizes)
