"""Optimizers of the outer loop: optax transformations, with their learning rate inside or not."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int, PyTree

from moml.errors import ConfigError
from moml.types import Hyper, Meta, Scalar, State

OPTIMIZERS = {"sgd": optax.sgd, "adam": optax.adam}
Optimizer = str | optax.GradientTransformation | Callable[[Scalar], optax.GradientTransformation]


def has_rate(optimizer: Optimizer) -> bool:
    """Whether an optimizer is a whole transformation: its learning rate is not eta then."""
    return isinstance(optimizer, optax.GradientTransformation)


def check_descends(optimizer: Optimizer) -> None:
    """Raise unless an optimizer moves against the gradient, as `optax.adam` does.

    >>> check_descends(optax.scale_by_adam())
    Traceback (most recent call last):
        ...
    moml.errors.ConfigError: optimizer must move against the gradient, such as optax.adam(1e-3); \
got one that follows it: chain it with optax.scale_by_learning_rate(rate)
    """
    if isinstance(optimizer, str):
        return
    try:
        with jax.ensure_compile_time_eval():  # a method may be composed inside a program
            made = optimizer if has_rate(optimizer) else optimizer(1.0)
            one = jnp.ones(())
            move, _ = optax.with_extra_args_support(made).update(one, made.init(one), one)
            climbs = bool(jax.device_get(move) > 0)
    except (TypeError, AttributeError, ValueError) as error:
        raise ConfigError(f"optimizer must give an optax transformation: {error}") from error
    if climbs:
        raise ConfigError(
            "optimizer must move against the gradient, such as optax.adam(1e-3); got one that "
            "follows it: chain it with optax.scale_by_learning_rate(rate)"
        )


def rates(optimizer: Optimizer, *, eta: float, **others: float) -> Hyper:
    """The traced numbers of a method: eta is one unless the optimizer has its learning rate."""
    return Hyper(**others) if has_rate(optimizer) else Hyper(eta=eta, **others)


def transformation(optimizer: Optimizer, hyper: Hyper) -> optax.GradientTransformationExtraArgs:
    """The optax transformation at these hyper-parameters.

    >>> sgd = transformation("sgd", Hyper(eta=0.5))
    >>> float(sgd.update(jnp.array(2.0), sgd.init(jnp.array(0.0)))[0])
    -1.0
    """
    if isinstance(optimizer, str):
        optimizer = OPTIMIZERS[optimizer]
    if not isinstance(optimizer, optax.GradientTransformation):
        optimizer = optimizer(hyper.eta)  # type: ignore[misc]
    return optax.with_extra_args_support(optimizer)


def optimizer_step(
    optimizer: Optimizer, meta: Meta, state: State, delta: Meta, hyper: Hyper
) -> tuple[Meta, State]:
    """w <- w + update(Delta), for SGD w - eta Delta; hyper-parameters are its extra arguments."""
    update = transformation(optimizer, hyper).update
    move, state = update(delta, state, meta, **hyper._asdict())
    return optax.apply_updates(meta, move), state


class NasaState(NamedTuple):
    """The averaged gradient, and how many gradients went into it."""

    z: PyTree
    steps: Int[Array, ""]


def nasa_average() -> optax.GradientTransformationExtraArgs:
    """NASA's averaged gradient: z <- (1 - gamma) z + gamma Delta, started at the first Delta."""

    def init(params: PyTree) -> NasaState:
        return NasaState(optax.tree.zeros_like(params), jnp.zeros((), jnp.int32))

    def update(
        delta: PyTree,
        state: NasaState,
        params: PyTree = None,
        *,
        gamma: Scalar = 1.0,
        **extra: Scalar,
    ) -> tuple[PyTree, NasaState]:
        weight = jnp.where(state.steps > 0, gamma, jnp.ones_like(gamma))
        z = optax.incremental_update(delta, state.z, weight)
        return z, NasaState(z, state.steps + 1)

    return optax.GradientTransformationExtraArgs(init, update)


def averaged_sgd(eta: Scalar) -> optax.GradientTransformation:
    """NASA's step: w <- w - eta z, z being the averaged gradient."""
    return optax.chain(nasa_average(), optax.scale_by_learning_rate(eta))
