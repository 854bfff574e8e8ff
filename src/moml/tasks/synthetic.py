"""Synthetic(a, b): the heterogeneous logistic tasks usual in federated learning."""

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
    """n tasks y = argmax(W x + c); `a` is how much W differs between tasks, `b` how much x does.

    W, c ~ N(u, 1), u ~ N(0, a);  x ~ N(m, diag(j^-1.2)), m ~ N(M, 1), M ~ N(0, b).
    With `unequal`, sizes are log-normal from 10 up to `samples`; with `fresh`, these are other
    samples of the same tasks.
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
