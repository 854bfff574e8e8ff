"""Accuracies of every client's models: the global one, the one it keeps, the fine-tuned one."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from moml.algorithms.method import Method
from moml.algorithms.parts.adapt import all_leaves
from moml.algorithms.parts.task_map import in_batches
from moml.paper.leaderboard.data import CLIENTS, Benchmark
from moml.paper.leaderboard.methods import BATCH
from moml.training.personal import common_model, fine_tuned, kept_model, parts_that_keep
from moml.types import Hyper, Key, Meta, Params, State, Tasks

Scores = dict[str, Float[Array, " members clients"]]  # by kind of model, in percent
Each = dict[str, dict[str, Float[Array, "..."]]]  # by kind of model and part of the test set
HALVES = ("validation", "test")  # every second test image of a client


def scorer(
    chosen: Method, bench: Benchmark, *, epochs: int = 1, halves: bool = False,
    all_models: bool = True, members: int = 1,
) -> Callable[[PyTree, Hyper, Key], dict[str, Scores]]:  # fmt: skip
    """(states, hyper, keys) -> accuracies [members, clients] by part of the test set and model.

    `global` is the server's model, `kept` the one that a client keeps, where it keeps one, and
    `tuned` the global one after some epochs of gradient steps on the client's training images;
    without `all_models` that is left out where clients keep models. New clients keep none. So many
    clients are scored at once that all members together have 20.
    """
    adapt, names = chosen.adaptation(chosen.inner_steps), HALVES if halves else ("test",)
    tune = fine_tuned(bench.loss, all_leaves, epochs, BATCH)
    parts = parts_that_keep(chosen) if bench.own is bench.train else None
    kept = None if parts is None else kept_model(parts, adapt)

    def tested(params: Params, tasks: Tasks, i: Int[Array, ""]) -> dict[str, Float[Array, ""]]:
        own = jax.tree.map(lambda x: x[0], tasks.full(i[None]))
        every = jnp.arange(len(own.mask), dtype=jnp.int32) % len(names)
        part = lambda at: own._replace(mask=own.mask & (every == at))
        return {name: bench.right(params, part(at)) for at, name in enumerate(names)}

    def scores(meta: Meta, memory: State, hyper: Hyper, key: Key, own: Tasks, test: Tasks) -> Each:
        w = common_model(adapt, meta)

        def one(i: Int[Array, ""]) -> Each:
            models = {"global": w}
            if kept is not None:
                models["kept"], _ = kept(meta, memory, i)
            if kept is None or all_models:
                models["tuned"] = tune(w, own, key, i, hyper.eta)
            return {kind: tested(model, test, i) for kind, model in models.items()}

        clients = jnp.arange(bench.test.n or 0, dtype=jnp.int32)
        return in_batches(one, clients, max(1, CLIENTS // members))

    program = jax.jit(jax.vmap(scores, (0, 0, 0, 0, None, None)))

    def all_scores(state: PyTree, hyper: Hyper, keys: Key) -> dict[str, Scores]:
        found = program(state.meta, state.memory, hyper, keys, bench.own, bench.test)
        return {part: {kind: found[kind][part] for kind in found} for part in names}

    return all_scores
