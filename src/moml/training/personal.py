"""The models of single clients: what a client keeps, or the common model after fine-tuning."""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.stages import Wrapped
from jaxtyping import Array, Bool, Float, Int, PyTree

from moml.algorithms.federated.client import descend
from moml.algorithms.method import Method
from moml.algorithms.parts.adapt import Leaves
from moml.algorithms.signature import Adaptation
from moml.errors import ConfigError, DataError, check_count
from moml.kept import kept
from moml.tasks.sampler import draw_epochs
from moml.types import (
    Adapt,
    Hyper,
    Key,
    Loss,
    Meta,
    Params,
    Rounds,
    Samples,
    Scalar,
    State,
    Task,
    Tasks,
)

Place = Int[Array, ""]
KeptModel = Callable[[Meta, State, Place], tuple[Params, Bool[Array, ""]]]
FineTuned = Callable[[Params, Tasks, Key, Place, Scalar], Params]


def parts_that_keep(method: Method) -> Rounds | None:
    """The parts of a method whose clients keep a model of their own; None of other methods."""
    parts = method.algorithm.rounds
    return None if parts is None or parts.kept is None else parts


def common_model(adapt: Adapt, meta: Meta) -> Params:
    """The server's model as it is, as a loss takes it."""
    return adapt.merge(meta, adapt.start(meta))


def kept_model(parts: Rounds, adapt: Adapt) -> KeptModel:
    """(w, store, place) -> the model that a client keeps, and whether it has been in a round."""
    own = parts.kept
    if own is None:
        raise TypeError("the method keeps no models of clients")

    def model(meta: Meta, store: State, place: Place) -> tuple[Params, Bool[Array, ""]]:
        rows, known = parts.memory.recall(store, place[None])
        u = jax.tree.map(lambda row: row[0], rows)
        return common_model(adapt, own(meta, u)), known[0]

    return model


@kept
def kept_program(parts: Rounds, adaptation: Adaptation, steps: int) -> Wrapped:
    """The jitted `kept_model`."""
    return jax.jit(kept_model(parts, adaptation(steps)))


def personal(method: Method, meta: Meta, store: State, client: int) -> Params:
    """The model that a client keeps, or a ConfigError that says what to do instead."""
    parts = parts_that_keep(method)
    if parts is None:
        raise ConfigError(
            f"{method.name} keeps no models of clients: take learner.fine_tune(samples) with a "
            "client's own samples, or learner.adapt(support) with a few of them"
        )
    place = jnp.asarray(check_count("client", client, least=0, below=method.n), jnp.int32)
    if not jax.tree.leaves(store):
        raise ConfigError(
            "the clients' models are not in this learner: its training diverged, or its memories "
            "are on disk, where `moml score RUN` reads them"
        )
    program = kept_program(parts, method.adaptation, method.inner_steps)
    params, known = program(meta, store, place)
    if not known:
        raise ConfigError(
            f"client {client} keeps no model: it was in no round, or is forgotten; take "
            "learner.fine_tune(samples)"
        )
    return params


def fine_tuned(loss: Loss, leaves: Leaves, epochs: int, batch_size: int) -> FineTuned:
    """(w, tasks, key, i, rate) -> w after plain SGD on the samples of task i.

        E passes in batches S:  w <- w - rate grad L_S(w)

    Each pass has a new order; what is left of it after the last whole batch is not used.
    """

    def tune(params: Params, tasks: Tasks, key: Key, i: Place, rate: Scalar) -> Params:
        drawn, sets = draw_epochs(jax.random.fold_in(key, i), tasks, i[None], epochs, batch_size)
        own = jax.tree.map(lambda x: x[0], drawn)
        on_rows = _fetching(loss, lambda rows: _first(tasks, i, rows))
        return descend(on_rows, params, Task(own), sets[0], jnp.asarray(rate), leaves=leaves)[0]

    return tune


def _first(tasks: Tasks, i: Place, drawn: PyTree) -> Samples:
    """The samples of one task that were drawn."""
    samples = tasks.fetch(i[None], jax.tree.map(lambda x: x[None], drawn))
    return jax.tree.map(lambda x: x[0], samples)


def _fetching(loss: Loss, fetch: Callable[[PyTree], Samples]) -> Loss:
    """The same loss, given what was drawn: samples are fetched when a step needs them."""
    on_rows = lambda params, drawn: loss(params, fetch(drawn))
    refresh = getattr(loss, "refresh", None)
    if refresh is not None:
        on_rows.refresh = lambda params, drawn: refresh(params, fetch(drawn))  # type: ignore[attr-defined]
        on_rows.state = loss.state  # type: ignore[attr-defined]
    return on_rows


class Tuning(NamedTuple):
    """How a model is fine-tuned."""

    loss: Loss
    epochs: int
    batch_size: int
    rate: Float[Array, ""]


def tuning_of(
    method: Method, hyper: Hyper, epochs: int | None, batch_size: int | None, rate: float | None
) -> Tuning:
    """How a method's model is fine-tuned: as given, else as in training."""
    if method.loss is None:
        raise ConfigError(f"{method.name} was composed without `moml.parts.factory`: no loss known")
    eta = hyper._asdict().get("eta") if rate is None else rate
    if eta is None:
        raise ConfigError(f"rate must be given: {method.name} has no eta to take in its place")
    if rate is not None and not 0 <= rate < math.inf:
        raise ConfigError(f"rate must be a number from 0; got {rate!r}")
    epochs = (method.options.get("local_epochs") or 1) if epochs is None else epochs
    size = method.k if batch_size is None else batch_size
    like = jax.tree.leaves(hyper)
    return Tuning(
        method.loss, check_count("epochs", epochs), check_count("batch_size", size),
        jnp.asarray(eta, like[0].dtype if like else None),
    )  # fmt: skip


@kept
def fine_tune_program(loss: Loss, leaves: Leaves, epochs: int, batch_size: int) -> Wrapped:
    """The jitted `fine_tuned`."""
    return jax.jit(fine_tuned(loss, leaves, epochs, batch_size))


def _rows(data: Samples, ids: Int[Array, " tasks"], rows: Int[Array, "tasks size"]) -> Samples:
    return jax.tree.map(lambda x: x[rows], data)


def _no_draw(index: PyTree, key: Key, ids: Int[Array, " tasks"], size: int) -> PyTree:
    raise NotImplementedError  # all samples are used in epochs


def one_task(samples: Samples) -> Tasks:
    """A family of one task, with all these samples."""
    samples = jax.tree.map(jnp.asarray, samples)
    sizes = {leaf.shape[0] if leaf.ndim else 0 for leaf in jax.tree.leaves(samples)}
    if len(sizes) != 1 or 0 in sizes:
        raise DataError(
            "samples must be arrays with the same first axis, one entry a sample; got axes "
            f"{sorted(sizes)}"
        )
    (m,) = sizes
    index = jnp.array([m], jnp.int32)
    return Tasks(1, _no_draw, _rows, index, samples, sized=True, least=m, most=m)
