"""A small network for rows of a table and a summary of the known rows of their task."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from moml.models.networks import Layer, Model
from moml.types import Key

BOUND = 3.0


class Knots(NamedTuple):
    """Pieces of the inputs' ranges: piece j of column[j] goes from low[j], width[j] wide."""

    column: np.ndarray
    low: np.ndarray
    width: np.ndarray


class TableParams(NamedTuple):
    """The network's parameters; a task adapts `head`."""

    body: tuple[Layer, ...]
    head: Layer  # of the last hidden layer and of the inputs
    beside: Float[Array, "out summary"]


Values = Array | np.ndarray  # traced by jax, or computed at once by numpy


def squash(x: Float[Values, "*shape"]) -> PyTree:
    """3 tanh(x / 3): a standardised column as it is, an outlier bounded.

    >>> [round(float(x), 3) for x in squash(jnp.array([0.1, 1e6]))]
    [0.1, 3.0]
    """
    return BOUND * x.__array_namespace__().tanh(x / BOUND)


def knots(x: Float[np.ndarray, "rows features"], pieces: int = 8) -> Knots:
    """Pieces with equally many rows each, for the columns that have more than two values."""
    cuts = [np.unique(np.quantile(column, np.linspace(0, 1, pieces + 1))) for column in x.T]
    cuts = [cut if len(cut) > 2 else cut[:0] for cut in cuts]
    number = [np.full(max(len(cut) - 1, 0), j) for j, cut in enumerate(cuts)]
    join = lambda parts, dtype: np.concatenate([[], *parts]).astype(dtype)
    return Knots(
        join(number, np.int32),
        join([cut[:-1] for cut in cuts], x.dtype),
        join([np.diff(cut) for cut in cuts], x.dtype),
    )


def pieces_of(at: Knots, x: Float[Values, "rows features"]) -> Float[Values, "rows pieces"]:
    """The position of each row in each piece, from -1/2 to 1/2: piecewise linear functions of x."""
    place = (x[:, at.column] - at.low[None]) / at.width[None]
    return x.__array_namespace__().clip(place, 0, 1) - 0.5


def table_net(
    features: int, summary: int, out: int, at: Knots, hidden: tuple[int, ...] = (32,)
) -> Model:
    """A tanh network with a parallel linear path, over rows [x, summary].

        h = tanh(W [squash(x), pieces(x), c] + b),    f = [h, squash(x)],    y = V f + a + C c

    x are standardised columns, c is the summary of the task's known rows. A task may adapt the
    head (V, a), which starts near zero. Features may be computed of numpy's arrays, and then of
    members side by side, leaves [members, ...].

    >>> at = knots(np.linspace(-1, 1, 20, dtype=np.float32)[:, None])
    >>> net = table_net(1, 2, 1, at)
    >>> net.predict(net.init(jax.random.key(0)), jnp.zeros((5, 3))).shape
    (5, 1)
    """

    def split(rows: Values) -> tuple[Values, Values]:
        return rows[:, :features], rows[:, features:]

    def init(key: Key) -> TableParams:
        sizes = (features + len(at.column) + summary, *hidden)
        keys = jax.random.split(key, len(sizes))
        make = lambda key, i, o: Layer(jax.random.normal(key, (o, i)) / np.sqrt(i), jnp.zeros(o))
        body = [make(k, i, o) for k, i, o in zip(keys, sizes[:-1], sizes[1:], strict=False)]
        last = make(keys[-1], hidden[-1], out).weight * 0.1
        head = Layer(jnp.concatenate([last, jnp.zeros((out, features))], axis=1), jnp.zeros(out))
        return TableParams(tuple(body), head, jnp.zeros((out, summary)))

    def features_of(
        params: TableParams, rows: Float[Values, "n width"]
    ) -> PyTree:  # [n, f], or [members, n, f]
        xp, (x, c) = rows.__array_namespace__(), split(rows)
        bounded = squash(x)
        h = xp.concatenate([bounded, pieces_of(at, x), c], axis=1)
        for layer in params.body:
            h = xp.tanh(h @ layer.weight.mT + layer.bias[..., None, :])
        return xp.concatenate([h, xp.broadcast_to(bounded, (*h.shape[:-1], features))], axis=-1)

    def predict(params: TableParams, rows: Float[Array, "n width"]) -> Float[Array, "n out"]:
        linear = features_of(params, rows) @ params.head.weight.T + params.head.bias[None]
        return linear + split(rows)[1] @ params.beside.T

    return Model(init, predict, features_of)
