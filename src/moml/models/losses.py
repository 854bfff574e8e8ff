"""Losses and accuracies of a model's predictions. All use a batch's mask."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from moml.errors import DataError
from moml.kept import kept
from moml.models.networks import Predict, Training
from moml.models.wrapped import Aux, wrap_loss
from moml.tasks.parts import on_device
from moml.types import Batch, Key, Loss, Params


def masked_mean(values: Float[Array, " K"], mask: Bool[Array, " K"] | None) -> Float[Array, ""]:
    """The mean over the real samples of a padded batch, sum(mask * values) / sum(mask).

    Parameters
    ----------
    values
        One value a sample.
    mask
        Which samples are real; None if all are.

    Returns
    -------
    Array
        The mean; 0 where no sample is real.

    >>> float(masked_mean(jnp.array([1.0, 3.0, 99.0]), jnp.array([True, True, False])))
    2.0
    """
    if mask is None:
        return jnp.mean(values)
    weight = mask.astype(values.dtype)
    return jnp.sum(weight * values) / jnp.maximum(jnp.sum(weight), 1)


@kept
def mse(predict: Predict | Training) -> Loss:
    """Mean squared error, summed over outputs: mean over samples of |predict(x) - y|^2.

    Parameters
    ----------
    predict
        params, x [K, ...] -> [K, out]; or the `training` of a network with dropout or statistics.

    Returns
    -------
    Loss
        loss(params, batch) with targets `batch.y` [K, out].

    >>> loss = mse(lambda w, x: w * x)
    >>> float(loss(2.0, Batch(jnp.array([[1.0], [2.0]]), jnp.array([[2.0], [6.0]]))))
    2.0
    """

    def value(y: Array, batch: Batch) -> Float[Array, ""]:
        target = on_device("y", batch.y)
        if y.shape != target.shape:  # would broadcast
            raise DataError(
                f"mse: predictions must have the targets' shape {target.shape}; got {y.shape}"
            )
        error = y - target
        return masked_mean(jnp.sum(error**2, axis=range(1, error.ndim)), batch.mask)

    return _loss(predict, value)


@kept
def cross_entropy(predict: Predict | Training) -> Loss:
    """Mean cross-entropy of logits against integer labels.

    Parameters
    ----------
    predict
        params, x [K, ...] -> logits [K, classes]; or the `training` of a network with dropout or
        statistics.

    Returns
    -------
    Loss
        loss(params, batch) with labels `batch.y` [K].

    >>> loss = cross_entropy(lambda w, x: w * x)
    >>> round(float(loss(1.0, Batch(jnp.zeros((3, 2)), jnp.array([0, 1, 1])))), 3)
    0.693
    """

    def value(logits: Array, batch: Batch) -> Float[Array, ""]:
        labels: Int[Array, " K"] = batch.y
        each = optax.losses.softmax_cross_entropy_with_integer_labels(logits, labels)
        return masked_mean(each, batch.mask)

    return _loss(predict, value)


def _loss(predict: Predict | Training, value: Callable[[Array, Batch], Float[Array, ""]]) -> Loss:
    """The loss with this value of the outputs; of a `Training` it is wrapped."""
    if isinstance(predict, Training):
        apply = predict.apply

        def training(
            params: Params, batch: Batch, key: Key | None = None
        ) -> tuple[Float[Array, ""], Aux]:
            outputs, params = apply(params, batch.x, batch.mask, key)
            return value(outputs, batch), Aux(state=params)

        return wrap_loss(training, key=predict.key, state=predict.state)

    def loss(params: Params, batch: Batch) -> Float[Array, ""]:
        return value(predict(params, batch.x), batch)

    return loss


@kept
def accuracy(predict: Predict) -> Loss:
    """The accuracy in percent.

    Parameters
    ----------
    predict
        params, x [K, ...] -> logits [K, classes].

    Returns
    -------
    Loss
        score(params, batch) with labels `batch.y` [K].

    >>> score = accuracy(lambda w, x: w * x)
    >>> float(score(1.0, Batch(jnp.array([[0.0, 1.0], [1.0, 0.0]]), jnp.array([1, 1]))))
    50.0
    """

    def score(params: Params, batch: Batch) -> Float[Array, ""]:
        logits = predict(params, batch.x)
        return _percent_right(logits, batch)

    return score


@kept
def accuracy_alone(predict: Predict) -> Callable[[Params, Batch, Batch], Float[Array, ""]]:
    """The accuracy with each query in a batch with the support and no other query.

    It differs from `accuracy` for networks with batch statistics, whose prediction for one query
    otherwise depends on the others.
    """

    def score(params: Params, support: Batch, query: Batch) -> Float[Array, ""]:
        def one(x: Array) -> Array:
            return predict(params, jnp.concatenate([support.x, x[None]]))[-1]

        return _percent_right(jax.lax.map(one, query.x), query)

    return score


def _percent_right(logits: Array, batch: Batch) -> Float[Array, ""]:
    right = jnp.argmax(logits, axis=-1).astype(batch.y.dtype) == batch.y
    return 100 * masked_mean(right.astype(logits.dtype), batch.mask)
