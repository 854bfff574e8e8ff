"""Losses with a key, metrics or state: wrapped, so that they are losses like any other."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
from jaxtyping import Array, Float, PyTree

from moml.types import Key, Loss, Params, Samples

Marks = Callable[[Params], PyTree[bool]]


class Aux(NamedTuple):
    """What a loss may return besides its value.

    `metrics` are scalars by name. `state` is a tree like params, of which the state's leaves count.
    """

    metrics: dict[str, Float[Array, ""]] = {}
    state: Params = None


@dataclass(frozen=True)
class WrappedLoss:
    """A loss as every method takes it, made by `moml.models.wrap_loss`.

    Equal if it is made of the same functions, so that programs are shared.
    """

    function: Callable[..., PyTree]
    key: bool = False
    marks: Marks | None = None

    def __call__(self, params: Params, batch: Samples) -> Float[Array, ""]:
        """The value; state has no gradient."""
        return self._run(params, batch)[0]

    def metrics(self, params: Params, batch: Samples) -> dict[str, Float[Array, ""]]:
        """The auxiliary metrics by name."""
        return self._run(params, batch)[1].metrics

    def refresh(self, params: Params, batch: Samples) -> Params:
        """The params with new state; all other leaves as they are.

        It repeats the forward pass of the value; inside one program XLA computes it once.
        """
        new = self._run(params, batch)[1].state
        if self.marks is None or new is None:
            return params
        replace = lambda marked, old, new: new.astype(old.dtype) if marked else old
        new = jax.lax.stop_gradient(new)
        return jax.tree.map(replace, self.marks(params), params, new)

    def state(self, params: Params) -> PyTree[bool]:
        """Which leaves are state."""
        return jax.tree.map(lambda _: False, params) if self.marks is None else self.marks(params)

    def _run(self, params: Params, batch: Samples) -> tuple[Float[Array, ""], Aux]:
        stop = lambda marked, x: jax.lax.stop_gradient(x) if marked else x
        if self.marks is not None:
            params = jax.tree.map(stop, self.marks(params), params)
        out = self.function(params, batch, *([key_of(batch)] if self.key else []))
        return out if isinstance(out, tuple) else (out, Aux())


def wrap_loss(
    function: Callable[..., PyTree], *, key: bool = False, state: Marks | None = None
) -> WrappedLoss:
    """A loss that takes a key, reports metrics or has state, for `moml.fit` and the others.

        loss(params, batch) = value,    where value, aux = function(params, batch[, key])

    Parameters
    ----------
    function
        function(params, batch), or with `key` function(params, batch, key). It returns a scalar, or
        a scalar and an `Aux(metrics, state)`.
    key
        Whether it takes a key, for dropout say. Train it on `moml.tasks.keyed` tasks, which
        draw a key with every batch. Elsewhere, in scores and where a learner adapts, key is None:
        then it must not draw.
    state
        Marks the leaves of params that are state, such as `moml.parts.named("batch_stats")`: no
        gradient moves them. Their new values are those of `Aux.state`, a tree like params.

    Returns
    -------
    WrappedLoss
        `loss(params, batch)`; `loss.metrics(params, batch)`; `loss.refresh(params, batch)`, the
        params with new state; and `loss.state(params)`, which leaves are state.

    >>> import jax.numpy as jnp
    >>> def noisy(w, batch, key):
    ...     x = batch.x if key is None else batch.x + jax.random.normal(key, batch.x.shape)
    ...     value = jnp.mean((w * x - batch.y) ** 2)
    ...     return value, Aux(metrics={"root": jnp.sqrt(value)})
    >>> from moml.types import Batch
    >>> loss, batch = wrap_loss(noisy, key=True), Batch(jnp.ones(3), jnp.zeros(3))
    >>> float(loss(2.0, batch)), float(loss.metrics(2.0, batch)["root"])
    (4.0, 2.0)
    """
    return WrappedLoss(function, key, state)


def key_of(batch: Samples) -> Key | None:
    """The key that a batch of `moml.tasks.keyed` tasks has: its first sample's random bits."""
    bits = getattr(batch, "bits", None)
    return None if bits is None else jax.random.key(bits[0])


def takes_key(loss: Loss) -> bool:
    """Whether a loss needs keyed tasks."""
    return isinstance(loss, WrappedLoss) and loss.key


def has_state(loss: Loss) -> bool:
    """Whether some leaves are state of a loss, which is to be refreshed in training."""
    return isinstance(loss, WrappedLoss) and loss.marks is not None
