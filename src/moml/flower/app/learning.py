"""An experiment on both sides of a Flower run: the draws and updates of the simulator."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from moml.algorithms.method import Method
from moml.algorithms.parts.adapt import combine
from moml.config.config import Config, kind_of, method_options, step_sizes
from moml.errors import ConfigError
from moml.flower.app.settings import Node
from moml.runs.job import SCORED, plan_of, schedule_of
from moml.tasks.sampler import as_drawn, draw, fetch
from moml.training.compose import compose, hyper_of, init_key, run_key
from moml.training.evaluate import check_shots, most_samples, score_on
from moml.types import Adapt, Answers, Meta, Params, Personal, Rounds, State, Tasks


class Outcome(NamedTuple):
    """The result of a round at a client; the row stays there."""

    sent: PyTree  # a message
    row: PyTree
    weight: Array
    loss: Array
    before: Array
    after: Array
    drawn: Array  # whether the task is one of this round's at all


class Client(NamedTuple):
    """What a node needs of an experiment."""

    message: PyTree  # shapes of what is sent and answered
    row: Callable[[PyTree], PyTree]  # message -> what a client keeps before its first round
    round: Callable[[PyTree, PyTree, int, int], Outcome]  # message, row, number of the round, task


class Server(NamedTuple):
    """What the server needs of an experiment: none of its data."""

    n: int
    meta: Meta  # the first w
    state: State  # what the rule keeps before the first round
    message: Callable[[Meta, State], PyTree]  # what is sent to clients
    cohort: Callable[[int], tuple[np.ndarray, np.ndarray]]  # round -> tasks, who will answer
    # w, state, mean of the messages, who was asked, who answered -> the next w and state
    step: Callable[[Meta, State, PyTree, np.ndarray, np.ndarray], tuple[Meta, State]]
    weighted: bool
    metric: str  # what clients are scored by


def parts_of(chosen: Method) -> Rounds:
    """Return the parts of a federated method."""
    if chosen.algorithm.rounds is None:
        raise ConfigError(f"{chosen.name} has no rounds")
    return chosen.algorithm.rounds


def message_of(parts: Rounds, meta: Meta, state: State) -> PyTree:
    """Return what travels: the shared leaves of w, and with them what the server's rule sends."""
    shared = parts.shared(meta)
    return shared if parts.server.extra is None else (shared, parts.server.extra(state))


def read_message(parts: Rounds, message: PyTree) -> tuple[Meta, tuple[PyTree, ...]]:
    """Return the shared leaves of a message, and what was sent with them."""
    return (message, ()) if parts.server.extra is None else (message[0], message[1:])


def client_of(config: Config, node: Node) -> Client:
    """Return the experiment at a node, with its table, or data sets there or in MOML_DATA."""
    own = replace(config, problem=config.problem.at_node(node.data))
    part = (node.partition, node.partitions) if own.problem.parted else (0, 1)  # or everybody's
    return _client(own, node.data, *part)


@cache
def _client(config: Config, data: str | None, partition: int, partitions: int) -> Client:
    with _data_in(data):
        plan = plan_of(config, lambda task: task % partitions == partition)
        if plan.built.own is None:
            raise ConfigError(f"{kind_of(config.problem)} has no clients: it builds no `own`")
        own = plan.built.own()
    needs = plan.method.algorithm.needs
    params = plan.built.init(init_key(config.seed))
    hyper = hyper_of(plan.method, params, step_sizes(config))
    key, schedule, parts = run_key(config.seed), schedule_of(config), parts_of(plan.method)
    each = lambda mine, support, query: [own.score(w, support, query) for w in mine]
    adapt = _before_and_after(plan.method.adaptation(config.test_steps))
    scored = jax.random.key(SCORED)
    check_shots(own.tasks, config.shots, own.queries)
    most = most_samples(own.tasks, own.queries)
    scores = score_on(each, adapt, shots=config.shots, queries=own.queries, most=most)

    first = jax.jit(plan.method.algorithm.init)(params, hyper)  # a client knows the first model

    def got(message: PyTree) -> tuple[Meta, tuple[PyTree, ...]]:
        """The server's model, its private leaves those of the first one, and what came with it."""
        shared, extra = read_message(parts, message)
        return combine(shared, first.meta), extra

    def round_(
        tasks: Tasks, tested: Tasks, message: PyTree, row: PyTree, t: Array, i: Array
    ) -> Outcome:
        meta, extra = got(message)
        visit = draw(jax.random.fold_in(key, t), needs, tasks)  # all of the round's, as simulated
        at = jnp.argmax(visit.ids == i)
        mine = jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, at, 1), visit)
        mine = jax.tree.map(lambda x: x[0], fetch(mine, tasks))
        now = schedule(hyper, t * plan.method.algorithm.iterations)
        steps = None if mine.turnout is None else mine.turnout.steps
        done = parts.client(meta, row, mine.task, steps, now, *extra)
        sent = done.meta if parts.server.extra is None else (done.meta, done.extra)
        weight = jnp.ones((), jnp.int32) if mine.turnout is None else mine.turnout.weight
        before, after = scores(meta, hyper, tested, scored, i)
        drawn = jnp.any(visit.ids == i)
        return Outcome(sent, done.row, weight, done.loss, before, after, drawn)

    program = partial(jax.jit(round_), plan.built.tasks, own.tasks)
    message = jax.eval_shape(partial(message_of, parts), first.meta, first.server)
    number = lambda x: jnp.asarray(x, jnp.int32)
    row = jax.jit(lambda message: parts.row(got(message)[0]))
    return Client(message, row, lambda w, row, t, i: program(w, row, number(t), number(i)))


def _before_and_after(adapt: Adapt) -> Adapt:
    """Return an adaptation that gives two models: the given one, and the adapted one."""
    apply = lambda meta, support, hyper: [adapt.start(meta), adapt.apply(meta, support, hyper)]

    def merge(meta: Meta, both: list[Personal]) -> list[Params]:
        return [adapt.merge(meta, one) for one in both]

    return adapt._replace(apply=apply, merge=merge)


@cache
def server_of(config: Config) -> Server:
    """Return the experiment at the server."""
    n, net = config.problem.n or 0, config.problem.network()
    init = config.problem.build(config).init if net is None else net.init
    nothing = lambda _, key, ids, size: jnp.zeros((len(ids), size), jnp.int32)
    nobody = Tasks(n, nothing, as_drawn)  # numbers of tasks, no sample
    unused = lambda w, batch: w  # as loss and features: only clients compute them
    options = method_options(config, unused)
    options.pop("iterations", None)
    chosen = compose(config.method, unused, nobody, options, config.iterations)
    params = init(init_key(config.seed))
    hyper = hyper_of(chosen, params, step_sizes(config))
    need = chosen.algorithm.needs._replace(weighted=False, epochs=None)  # who, and who answers
    key = run_key(config.seed)
    drawn = jax.jit(lambda t: draw(jax.random.fold_in(key, t), need, nobody))

    def cohort(t: int) -> tuple[np.ndarray, np.ndarray]:
        visit = drawn(jnp.asarray(t, jnp.int32))
        everybody = np.ones(visit.ids.shape, bool)
        present = everybody if visit.turnout is None else np.asarray(visit.turnout.present)
        return np.asarray(visit.ids), present

    first, parts = jax.jit(chosen.algorithm.init)(params, hyper), parts_of(chosen)

    def step(
        meta: Meta, state: State, mean: PyTree, ids: Array, counted: Array
    ) -> tuple[Meta, State]:
        model, extra = read_message(parts, mean)
        answers = Answers(model, extra[0] if extra else (), ids, counted)
        return parts.server.step(state, meta, answers, hyper)

    metric = "test_accuracy" if config.problem.classifies else "test_error"
    return Server(
        n, first.meta, first.server, partial(message_of, parts), cohort, jax.jit(step),
        bool(config.option("weighted")), metric,
    )  # fmt: skip


@contextmanager
def _data_in(folder: str | None) -> Iterator[None]:
    before = dict(os.environ)
    try:
        os.environ |= {} if folder is None else {"MOML_DATA": folder}
        yield
    finally:
        os.environ.pop("MOML_DATA", None)
        os.environ |= before
