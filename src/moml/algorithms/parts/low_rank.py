"""Low-rank adapters (LoRA): a frozen network whose matrices move by products of two thin ones."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from moml.algorithms.parts.adapt import Leaves, leaf_names
from moml.algorithms.parts.choices import private_leaves
from moml.errors import ConfigError, check_count
from moml.models.networks import Model, Training
from moml.types import Key, Params


class Factors(NamedTuple):
    """What is added to a matrix: b a; a is None where it is fixed."""

    b: Float[Array, "m r"]
    a: Float[Array, "r n"] | None


class Adapters(NamedTuple):
    """The parameters of a network with adapters, by the names of its leaves."""

    low: dict[str, Factors]
    whole: dict[str, Array]


def adapters(
    net: Model,
    params: Params,
    *,
    rank: int = 4,
    leaves: str | Leaves | None = None,
    whole: str | Leaves | None = None,
    fixed: Key | None = None,
) -> Model:
    """A pretrained network that is frozen, with low-rank adapters as its parameters (LoRA).

        W <- W + B A,    B [m, r] from zero,    A [r, n] with orthonormal rows

    A gradient step of size alpha on B moves W by -alpha G A'A, with G the gradient of the loss at
    W: the full step, projected onto r directions. At r = n it is the full step itself.

    Parameters
    ----------
    net, params
        The network and its pretrained parameters W, a constant of the result: they have no
        gradient and no memory, and clients do not send them.
    rank
        r, at most n for a matrix [m, n].
    leaves
        The matrices that get adapters, those in `whole` excepted: a regular expression of their
        names, or a function like `moml.parts.named`; by default all. Filters of our convolutions
        are matrices [patch, out].
    whole
        Leaves that are learned as they are, such as "head"; by default none.
    fixed
        A key: A is drawn from it once and stays, and B alone is learned. Then a mean of clients' B
        is the mean of their models, and memories are about half as large.

    Returns
    -------
    Model
        `init(key)` gives `Adapters(low, whole)`, with which `predict` is that of `params`. Running
        statistics of batch norm stay as they are, also in training.

    >>> from moml.models import mlp
    >>> net = mlp(3, 16, 2)
    >>> base = net.init(jax.random.key(0))
    >>> small = adapters(net, base, rank=2, whole="head")
    >>> p, x = small.init(jax.random.key(1)), jnp.ones((5, 3))
    >>> p.low["body/0/weight"].b.shape, p.whole["head/bias"].shape
    ((16, 2), (2,))
    >>> bool(jnp.all(small.predict(p, x) == net.predict(base, x)))
    True
    """
    check_count("rank", rank)
    names, old = leaf_names(params), jax.tree.leaves(params)
    given = dict(zip(names, old, strict=True))
    chosen = lambda some, what: dict(
        zip(names, jax.tree.leaves(private_leaves(some, what)(params)), strict=True)
    )
    as_is = chosen(whole, "whole")
    among = dict.fromkeys(names, True) if leaves is None else chosen(leaves, "leaves")
    thin = [n for n, leaf in given.items() if leaf.ndim == 2 and among[n] and not as_is[n]]
    if not thin:
        raise ConfigError(f"leaves must have a matrix; got {', '.join(names[:8]) or 'nothing'}")

    def rows(key: Key) -> dict[str, Float[Array, "r n"]]:
        keys = jax.random.split(key, len(thin))
        return {
            name: _orthonormal(k, given[name], rank) for k, name in zip(keys, thin, strict=True)
        }

    constant = {} if fixed is None else rows(fixed)

    def init(key: Key) -> Adapters:
        a = rows(key) if fixed is None else dict.fromkeys(thin)
        zero = lambda leaf: jnp.zeros((len(leaf), min(rank, leaf.shape[1])), leaf.dtype)
        low = {name: Factors(zero(given[name]), a[name]) for name in thin}
        return Adapters(low, {name: given[name] for name in names if as_is[name]})

    def merged(p: Adapters) -> Params:
        new = dict(given) | p.whole
        for name, (b, a) in p.low.items():
            new[name] = given[name] + b @ (constant[name] if a is None else a)  # W + B A
        return jax.tree.unflatten(jax.tree.structure(params), [new[name] for name in names])

    features, training = net.features, net.training
    if training is not None and training.state is None:  # dropout
        apply = training.apply
        mine = lambda p, x, mask, key: (apply(merged(p), x, mask, key)[0], p)
        training = Training(mine, training.key)
    else:
        training = None
    return Model(
        init,
        lambda p, x: net.predict(merged(p), x),
        None if features is None else lambda p, x: features(merged(p), x),
        training,
    )


def _orthonormal(key: Key, like: Float[Array, "m n"], rank: int) -> Float[Array, "r n"]:
    """Random rows with A A' = I."""
    n = like.shape[1]
    return jnp.linalg.qr(jax.random.normal(key, (n, min(rank, n)), like.dtype))[0].T
