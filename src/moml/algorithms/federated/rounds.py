"""Rounds: the server sends, sampled clients update, the server takes a step.

server -> clients:  w (its shared leaves), and what else the server's rule sends
client i:           w_i, row_i, extra_i = update(w, row_i, samples, steps)
clients -> server:  sum p_i w_i / sum p_i, and the same mean of extra_i
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int, PyTree

from moml.algorithms.federated.client import (
    ClientResult,
    Private,
    Steps,
    Update,
    others,
    sending,
    weighted,
    where,
    with_private,
)
from moml.algorithms.federated.server import TAKE_MEAN, on_leaves
from moml.algorithms.parts.adapt import Leaves, combine, leaf_names, no_leaves, pick
from moml.algorithms.parts.choices import MEMORY_DTYPES, Stored
from moml.algorithms.parts.memory import Ema, ema, none
from moml.algorithms.parts.task_map import One, Rows, TaskMap, in_slices, mean_from_sum, norm
from moml.errors import ConfigError
from moml.types import (
    Algorithm,
    Answers,
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
)


class RoundState(NamedTuple):
    """The server's model, a row of every client or (), and what the server's rule keeps."""

    meta: Meta
    memory: State
    server: State = ()


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


def weights(visit: TaskBatch) -> Int[Array, "*tasks"]:
    """What each client counts in the mean: 1, or its number of samples; 0 without an answer."""
    if visit.turnout is None:
        return jnp.ones_like(visit.ids)
    return jnp.where(visit.turnout.present, visit.turnout.weight, 0)


def rounds(
    init: Callable[[Params, Hyper], Meta],
    update: Update,
    need: SampleSpec,
    *,
    n: int | None = None,
    begin: Callable[[Meta], PyTree] | None = None,
    kept: Callable[[Meta, PyTree], Meta] | None = None,
    private: Leaves = no_leaves,
    frozen: Leaves = no_leaves,
    stored: Stored = MEMORY_DTYPES["float32"],
    server: Server = TAKE_MEAN,
    at_once: int | None = None,
) -> Algorithm:
    """Rounds of a client update.

    Parameters
    ----------
    init
        (params, hyper) -> the first model w of the server.
    update
        (w, row, samples, steps, hyper) -> `ClientResult`; with what the server sends besides w as
        a last argument, where its rule does. `row` is (), or has `u`, what the client keeps, and
        `visits`, the number of its rounds so far. A result's `row` is the new `u`.
    need
        What the clients of a round draw.
    n
        Clients in all, where they keep something.
    begin
        w -> what a client keeps before its first round; None: nothing.
    kept
        (w, u) -> the client's own model; None: it has none besides its private leaves.
    private
        Leaves that stay at their client. They begin as those of the first model.
    frozen
        Leaves that stay those of the first model, which every client knows; not with `private`.
    stored
        How rows are kept: as they are, or in bfloat16.
    server
        The server's rule.
    at_once
        Clients that run side by side, the others after them; None: on a CPU as many as fit into
        its cache, on other devices all.

    Returns
    -------
    Algorithm
        Its state is a `RoundState`.
    """
    if private is not no_leaves and frozen is not no_leaves:
        raise ConfigError("frozen must be left out where private is given")
    keeps, begin = begin is not None, begin or (lambda meta: ())
    shared, own_model, first_row = lambda meta: meta, kept, begin
    if private is not no_leaves:
        keeps, travels = True, others(private)
        update, server = with_private(update, private), on_leaves(server, travels)
        shared = lambda meta: pick(meta, travels(meta))
        first_row = lambda meta: Private(pick(meta, private(meta)), begin(meta))
        mixed = kept or (lambda meta, u: meta)
        own_model = lambda meta, u: mixed(combine(u.leaves, meta), u.rest)
    elif frozen is not no_leaves:
        travels = others(frozen)
        update, server = sending(update, travels), on_leaves(server, travels)
        shared = lambda meta: pick(meta, travels(meta))
    memory = stored.memory(ema(n or 0)) if keeps else none()

    def first(params: Params, hyper: Hyper) -> RoundState:
        meta = init(params, hyper)
        if private is not no_leaves and not any(jax.tree.leaves(private(meta))):
            names = ", ".join(leaf_names(meta))
            raise ConfigError(f"private must match some leaf of the model; its leaves are {names}")
        return RoundState(meta, memory.init(first_row(meta)), server.init(meta))

    def client(
        meta: Meta, row: PyTree, task: Task, steps: Steps, hyper: Hyper, *extra: PyTree
    ) -> ClientResult:
        """A client's update; what it keeps begins at its first round."""
        if not keeps:
            return update(meta, (), task, steps, hyper, *extra)
        row = row._replace(u=where(row.visits > 0, row.u, first_row(meta)))
        done = update(meta, row, task, steps, hyper, *extra)
        return done._replace(row=Ema(done.row, row.visits + 1))

    def step(
        state: RoundState, visit: TaskBatch, hyper: Hyper, each: TaskMap | None = None
    ) -> tuple[RoundState, Info]:
        extra = () if server.extra is None else (server.extra(state.server),)
        if need.epochs is not None and at_once is not None and visit.turnout is not None:
            order = jnp.argsort(visit.turnout.steps)  # clients of like size run side by side
            visit = jax.tree.map(lambda x: x[order], visit)

        def one(row: PyTree, visit: TaskBatch) -> tuple[PyTree, PyTree]:
            steps = None if visit.turnout is None else visit.turnout.steps
            done = client(state.meta, row, visit.task, steps, hyper, *extra)
            sent = done.meta, done.extra, done.loss
            if visit.turnout is None:
                return (*sent, done.loss), done.row
            present = visit.turnout.present
            return (*weighted(sent, weights(visit)), done.loss), where(present, done.row, row)

        go = _slices(state.meta, len(visit.ids), at_once) if each is None else each
        total, rows = go(one, stored.rows, state.memory, visit)
        weight = weights(visit)
        count = len(visit.ids) if visit.turnout is None else jnp.maximum(jnp.sum(weight), 1)
        mean, more, loss = mean_from_sum(count, total[:3])
        answers = Answers(mean, more, visit.ids, weight)
        meta, kept = server.step(state.server, state.meta, answers, hyper)
        if visit.turnout is not None:  # where nobody answers the server keeps what it has
            silence = (state.meta, state.server, mean_from_sum(len(visit.ids), total[3]))
            meta, kept, loss = where(jnp.any(weight > 0), (meta, kept, loss), silence)
        moved = norm(optax.tree.sub(state.meta, meta))
        return RoundState(meta, rows, kept), Info(loss, moved)

    row = lambda meta: Ema(first_row(meta), jnp.zeros((), jnp.int32)) if keeps else ()
    parts = Rounds(client, row, server, shared, own_model, memory)
    marks = RoundState(meta=False, memory=True, server=False)
    return Algorithm(first, step, need, need.visits or 1, rounds=parts, rows=marks)
