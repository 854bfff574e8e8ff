"""Losses of a model's predictions, and how often it is right. All honour a batch's mask."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from moml.errors import DataError
from moml.types import Batch, Loss, Params


def masked_mean(values: Float[Array, " K"], mask: Bool[Array, " K"] | None) -> Float[Array, ""]:
    """The mean over the real samples of a padded batch; 0 where there are none.

    >>> float(masked_mean(jnp.array([1.0, 3.0, 99.0]), jnp.array([True, True, False])))
    2.0
    """
    if mask is None:
        return jnp.mean(values)
    weight = mask.astype(values.dtype)
    return jnp.sum(weight * values) / jnp.maximum(jnp.sum(weight), 1)


def mse(predict: Callable[[Params, Any], Any]) -> Loss:
    """Mean squared error, summed over outputs: mean over samples of |predict(x) - y|^2."""

    def loss(params: Params, batch: Batch) -> Float[Array, ""]:
        given, wanted = predict(params, batch.x), jnp.asarray(batch.y)
        if given.shape != wanted.shape:  # would broadcast, and train on nonsense
            raise DataError(f"mse: predictions {given.shape} and targets {wanted.shape} differ")
        error = given - wanted
        return masked_mean(jnp.sum(error**2, axis=range(1, error.ndim)), batch.mask)

    return loss


def cross_entropy(predict: Callable[[Params, Any], Any]) -> Loss:
    """Mean cross-entropy of logits against integer labels."""

    def loss(params: Params, batch: Batch) -> Float[Array, ""]:
        labels: Int[Array, " K"] = batch.y
        each = optax.losses.softmax_cross_entropy_with_integer_labels(
            predict(params, batch.x), labels
        )
        return masked_mean(each, batch.mask)

    return loss


def accuracy(predict: Callable[[Params, Any], Any]) -> Loss:
    """How many labels are predicted right, in percent."""

    def score(params: Params, batch: Batch) -> Float[Array, ""]:
        logits = predict(params, batch.x)
        right = jnp.argmax(logits, axis=-1).astype(batch.y.dtype) == batch.y
        return 100 * masked_mean(right.astype(logits.dtype), batch.mask)

    return score


def accuracy_alone(predict: Callable[[Params, Any], Any]) -> Callable[[Params, Any, Any], Any]:
    """The accuracy, each query answered by itself, beside the support and no other query.

    For a network without batch statistics it is the accuracy; for one with them, this is the
    reading in which an answer does not depend on what else is asked.
    """

    def score(params: Params, support: Batch, query: Batch) -> Float[Array, ""]:
        def one(x: Any) -> Any:
            return predict(params, jnp.concatenate([support.x, x[None]]))[-1]

        logits = jax.lax.map(one, query.x)
        right = jnp.argmax(logits, axis=-1).astype(query.y.dtype) == query.y
        return 100 * masked_mean(right.astype(logits.dtype), query.mask)

    return score
