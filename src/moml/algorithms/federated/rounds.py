"""Rounds: sampled clients each do an update of their own, the server takes the mean.

A client update is one pure function, (w, row, samples, steps, hyper) -> `ClientResult`. Whatever
runs clients (vmap here, devices, Flower) calls that one function. Only the model ever leaves it;
the row is all that a client keeps between rounds, and lies in a store apart.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PyTree

from moml.algorithms.parts.choices import Sampling
from moml.algorithms.parts.memory import ROWS
from moml.algorithms.parts.task_map import (
    One,
    Rows,
    TaskMap,
    added,
    in_slices,
    mean,
    mean_from_sum,
    norm,
)
from moml.algorithms.signature import Below1, Count, Group, Probability
from moml.errors import ConfigError
from moml.types import (
    Algorithm,
    Hyper,
    Info,
    Memory,
    Meta,
    Params,
    Rounds,
    SampleSpec,
    Server,
    State,
    Task,
    TaskBatch,
    Turnout,
)


class RoundState(NamedTuple):
    """The server's model, a row of every client or (), and what the server's rule keeps."""

    meta: Meta
    memory: State
    server: State = ()


class ClientResult(NamedTuple):
    """What a round leaves at a client: the model it sends, the row it keeps."""

    meta: Meta
    row: PyTree
    loss: Float[Array, ""]


Steps = Int[Array, ""] | None  # local steps of a client; None: as many as it has samples for
Update = Callable[[Meta, PyTree, Task, Steps, Hyper], ClientResult]


def repeat(
    step: Callable[[PyTree, PyTree], PyTree], start: PyTree, samples: PyTree, steps: Steps
) -> PyTree:
    """A scan that stands still after `steps` steps: where it ends, and the mean of its losses."""
    if steps is None:
        end, losses = jax.lax.scan(step, start, samples)
        return end, mean(losses)
    h = jnp.arange(jax.tree.leaves(samples)[0].shape[0], dtype=jnp.int32)

    def one(carry: PyTree, at: PyTree) -> tuple[PyTree, PyTree]:
        new, loss = step(carry, at[1])
        return where(at[0] < steps, new, carry), loss

    end, losses = jax.lax.scan(one, start, (h, samples))
    return end, weighted_mean(losses, h < steps)


def local_steps(visit: Callable[..., PyTree]) -> Update:
    """H times w_i <- w_i - eta Delta_i(w_i), with new samples each time.

    `visit` is a personal step: (w, row, samples, hyper) -> a new row, Delta and the loss.
    """

    def update(meta: Meta, row: PyTree, task: Task, steps: Steps, hyper: Hyper) -> ClientResult:
        def local_step(carry: PyTree, samples: Task) -> tuple[PyTree, Float[Array, ""]]:
            w, row = carry
            step = visit(w, row, samples, hyper)
            w = jax.tree.map(lambda w, d: w - hyper.eta * d, w, step.delta)
            return (w, step.u), step.loss

        (meta, row), loss = repeat(local_step, (meta, row), task, steps)
        return ClientResult(meta, row, loss)

    return update


def where(condition: Bool[Array, "*rows"], new: PyTree, old: PyTree) -> PyTree:
    """`new` where the condition holds, else `old`, leaf by leaf, row by row."""

    def leaf(new: Array, old: Array) -> Array:
        rows = condition.reshape(condition.shape + (1,) * (new.ndim - condition.ndim))
        return jnp.where(rows, new, old)

    return jax.tree.map(leaf, new, old)


def weighted_mean(rows: PyTree, weight: Array) -> PyTree:
    """sum_i p_i x_i / sum_i p_i, leaf by leaf; what has no weight may be anything."""
    total = added(jax.vmap(weighted)(rows, weight))
    return mean_from_sum(jnp.maximum(jnp.sum(weight), 1), total)


def weighted(x: PyTree, weight: Array) -> PyTree:
    """p_i x_i, leaf by leaf; 0 where there is no weight, also of what is not finite."""
    x = where(weight.astype(bool), x, optax.tree.zeros_like(x))
    return jax.tree.map(lambda x: weight.astype(x.dtype) * x, x)


def server_mean(total: PyTree, visit: TaskBatch) -> PyTree:
    """The server's mean, of what it added up: 1/B sum w_i, or sum p_i w_i / sum p_i."""
    if visit.turnout is None:
        return mean_from_sum(len(visit.ids), total)
    return mean_from_sum(jnp.maximum(jnp.sum(_weight(visit.turnout)), 1), total)


def _weight(turnout: Turnout) -> Int[Array, "*tasks"]:
    return jnp.where(turnout.present, turnout.weight, 0)


TAKE_MEAN = Server(lambda meta: (), lambda state, meta, mean, hyper: (mean, state))  # w <- mean


def towards_mean() -> Server:
    """A server's rule: w <- (1 - rate) w + rate mean(w_i), with rate = `hyper.server_rate`."""

    def step(state: State, meta: Meta, mean: Meta, hyper: Hyper) -> tuple[Meta, State]:
        return optax.incremental_update(mean, meta, hyper.server_rate), state

    return Server(lambda meta: (), step)


def server_optimizer(optimizer: optax.GradientTransformation | None) -> Server:
    """A server's rule: an optax transformation, given w - mean(w_i) as the gradient."""
    if optimizer is None:
        return TAKE_MEAN

    def step(state: State, meta: Meta, mean: Meta, hyper: Hyper) -> tuple[Meta, State]:
        move, state = optimizer.update(optax.tree.sub(meta, mean), state, meta)
        return optax.apply_updates(meta, move), state

    return Server(optimizer.init, step)


@dataclass(frozen=True)
class Participation(Group):
    """Who answers in a round, what an answer counts, and how many clients run side by side."""

    dropout: Below1 = 0.0
    straggle: Probability = 0.0
    weighted: bool = False
    at_once: Count | None = None

    def samples(self, batch: Sampling, local_steps: int) -> SampleSpec:
        """What the clients of a round draw: S1 of k samples in each of H local steps."""
        if self.straggle and local_steps == 1:
            raise ConfigError("straggle needs local_steps of at least 2; got local_steps = 1")
        return SampleSpec(
            batch.size, support=batch.k, visits=local_steps,
            dropout=self.dropout, straggle=self.straggle, weighted=self.weighted,
        )  # fmt: skip


CACHE = 2 << 20  # bytes of models that a processor works on without waiting for its memory


def clients_per_slice(meta: Meta, count: int) -> int:
    """How many of `count` clients' models the cache of a CPU holds, in slices of like size.

    >>> clients_per_slice(jnp.zeros(1 << 17, jnp.float32), 10)  # slices of 4, 4 and 2
    4
    """
    most = max(1, CACHE // sum(leaf.nbytes for leaf in jax.tree.leaves(meta)))
    return -(-count // -(-count // most))


def _slices(meta: Meta, count: int, at_once: int | None) -> TaskMap:
    """`at_once` clients at a time; None: on a CPU those that fit, on other devices all."""
    few = clients_per_slice(meta, count)
    if at_once is not None or few >= count:
        return in_slices(at_once or count)

    def each(
        one: One, rows: Rows | Memory, store: PyTree, visit: TaskBatch
    ) -> tuple[PyTree, PyTree]:
        by = lambda size: lambda store, visit: in_slices(size)(one, rows, store, visit)
        return jax.lax.platform_dependent(store, visit, cpu=by(few), default=by(count))

    return each


def rounds(
    init: Callable[[Params, Hyper], Meta],
    update: Update,
    need: SampleSpec,
    *,
    store: Callable[[Meta], PyTree] = lambda meta: (),
    rows: Rows = ROWS,
    server: Server = TAKE_MEAN,
    at_once: int | None = None,
) -> Algorithm:
    """Rounds of a client update; `server` makes the next model from the old one and the mean.

    `store` makes the rows of all clients at the start, `rows` reads and writes them. `at_once`
    clients run side by side, the others after them; None: on a processor as many as fit into its
    cache, on other devices all.
    """

    def first(params: Params, hyper: Hyper) -> RoundState:
        meta = init(params, hyper)
        return RoundState(meta, store(meta), server.init(meta))

    def step(
        state: RoundState, visit: TaskBatch, hyper: Hyper, each: TaskMap | None = None
    ) -> tuple[RoundState, Info]:
        def client(row: PyTree, visit: TaskBatch) -> tuple[PyTree, PyTree]:
            turnout = visit.turnout
            if turnout is None:
                done = update(state.meta, row, visit.task, None, hyper)
                return (done.meta, done.loss, done.loss), done.row
            done = update(state.meta, row, visit.task, turnout.steps, hyper)
            sent = weighted((done.meta, done.loss), _weight(turnout))
            return (*sent, done.loss), where(turnout.present, done.row, row)

        go = _slices(state.meta, len(visit.ids), at_once) if each is None else each
        total, memory = go(client, rows, state.memory, visit)
        mean, loss = server_mean(total[:2], visit)
        meta, kept = server.step(state.server, state.meta, mean, hyper)
        if visit.turnout is not None:  # where nobody answers the server keeps what it has
            silence = (state.meta, state.server, mean_from_sum(len(visit.ids), total[2]))
            answered = jnp.any(visit.turnout.present)
            meta, kept, loss = where(answered, (meta, kept, loss), silence)
        moved = norm(optax.tree.sub(state.meta, meta))
        return RoundState(meta, memory, kept), Info(loss, moved)

    anybody = jnp.zeros(1, jnp.int32)  # all begin alike
    row = lambda meta: jax.tree.map(lambda each: each[0], rows.read(store(meta), anybody))
    parts, marks = Rounds(update, row, server), RoundState(meta=False, memory=True, server=False)
    return Algorithm(first, step, need, need.visits or 1, rounds=parts, rows=marks)
