"""Right answers of every client's models: the global one, the one it keeps, the fine-tuned one."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from moml.algorithms.federated.client import ClientResult
from moml.algorithms.method import Method
from moml.algorithms.parts.task_map import in_batches
from moml.methods import method
from moml.paper.leaderboard.data import CLIENTS, Benchmark
from moml.paper.leaderboard.methods import ROUND
from moml.tasks.sampler import draw, fetch
from moml.types import Hyper, Key, Meta, Params, Tasks

Scores = dict[str, Float[Array, " members clients"]]  # by kind of model, in percent
HALVES = ("validation", "test")  # every second test image of a client


def scorer(
    chosen: Method, bench: Benchmark, *, halves: bool = False, at_once: int = CLIENTS
) -> Callable[[PyTree, Hyper, Key], dict[str, Scores]]:
    """(states, hyper, keys) -> accuracies [members, clients] by part of the test set and model.

    `global` is the server's model, `kept` the one that a client keeps, where it keeps one, and
    `tuned` the global one after an epoch of gradient steps on the client's training images.
    """
    parts = chosen.algorithm.rounds
    if parts is None:
        raise TypeError(f"{chosen.name} has no rounds")
    plain = method("fedavg", bench.loss, **ROUND).algorithm
    tune = plain.rounds
    names = HALVES if halves else ("test",)

    def tested(params: Params, tasks: Tasks, i: Int[Array, ""]) -> dict[str, Float[Array, ""]]:
        own = jax.tree.map(lambda x: x[0], tasks.full(i[None]))
        every = jnp.arange(len(own.mask), dtype=jnp.int32) % len(names)
        part = lambda at: own._replace(mask=own.mask & (every == at))
        return {name: bench.right(params, part(at)) for at, name in enumerate(names)}

    def tuned(
        meta: Params, hyper: Hyper, key: Key, train: Tasks
    ) -> Callable[[Int[Array, ""]], ClientResult]:
        visit = draw(key, plain.needs, train)  # all clients, in order

        def one(i: Int[Array, ""]) -> ClientResult:
            at = lambda x: jax.lax.dynamic_slice_in_dim(x, i, 1)
            mine = jax.tree.map(lambda x: x[0], fetch(jax.tree.map(at, visit), train))
            steps = None if mine.turnout is None else mine.turnout.steps
            return tune.client(meta, (), mine.task, steps, hyper)  # type: ignore[union-attr]

        return one

    def scores(
        meta: Meta, memory: PyTree, hyper: Hyper, key: Key, train: Tasks, test: Tasks
    ) -> dict[str, dict[str, Float[Array, " clients"]]]:
        adapt = chosen.adaptation(chosen.inner_steps)
        params = lambda meta: adapt.merge(meta, adapt.start(meta))
        epoch = tuned(params(meta), Hyper(eta=hyper.eta), key, train)

        def one(i: Int[Array, ""]) -> dict[str, dict[str, Float[Array, ""]]]:
            models = {"global": params(meta), "tuned": epoch(i).meta}
            if parts.kept is not None:
                u, _ = parts.memory.recall(memory, i[None])
                own = parts.kept(meta, jax.tree.map(lambda x: x[0], u))
                models["kept"] = params(own)
            return {kind: tested(model, test, i) for kind, model in models.items()}

        return in_batches(one, jnp.arange(CLIENTS, dtype=jnp.int32), at_once)

    program = jax.jit(jax.vmap(scores, (0, 0, 0, 0, None, None)))

    def all_scores(state: PyTree, hyper: Hyper, keys: Key) -> dict[str, Scores]:
        found = program(state.meta, state.memory, hyper, keys, bench.train, bench.test)
        return {part: {kind: found[kind][part] for kind in found} for part in names}

    return all_scores
