"""`fit`: one run, from a name and a loss to a model that adapts."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from moml.algorithms.method import Factory, Method
from moml.algorithms.parts.schedule import Schedule, constant
from moml.errors import DataError, Diverged, check_count
from moml.runtime import simulate
from moml.training.check import check_loss, check_params
from moml.training.compose import (
    check_adapts,
    check_start,
    compose,
    described,
    hyper_of,
    run_key,
    samples_to_fill,
    start,
)
from moml.training.progress import bar
from moml.types import Hyper, Info, Key, Loss, Meta, Params, Tasks

OnChunk = Callable[[int, Meta], None]  # steps done, meta-model


@dataclass(frozen=True)
class Learner:
    """A trained meta-model: `adapt` makes it somebody's own."""

    method: Method
    meta: Meta
    hyper: Hyper
    state: Any  # all that going on would need
    history: np.ndarray  # mean loss after adaptation, one number a step (loaded: a line of metrics)
    samples: int  # drawn in all

    @property
    def params(self) -> Params:
        """The meta-model itself, as the loss takes it."""
        adapt = self.method.adaptation(self.method.inner_steps)
        return adapt.merge(self.meta, adapt.start(self.meta))

    def adapt(self, support: Any, steps: int | None = None) -> Params:
        """Personal parameters after `steps` adaptation steps on a few samples of a task."""
        steps = self.method.inner_steps if steps is None else check_count("steps", steps)
        adapt = self.method.adaptation(steps)
        try:
            mine = adapt.merge(self.meta, adapt.apply(self.meta, support, self.hyper))
        except (TypeError, ValueError, AttributeError) as error:
            reason = " ".join(str(error).split())[:300]
            raise DataError(f"cannot adapt to this support: {reason}") from error
        if not all_finite(mine):
            raise DataError(
                "adapted parameters are not finite: look at the support, or take fewer steps"
            )
        return mine


def chunks(
    program: Any, state: Any, key: Key, hyper: Hyper, steps: int, length: int
) -> Iterator[tuple[int, Any, Info]]:
    """Run stretch after stretch: the steps done, the state there, what the stretch showed."""
    done = 0
    while done < steps:
        size = min(length, steps - done)
        state, info = program(state, key, done, hyper, size)
        done += size
        yield done, state, info


def first_bad(losses: np.ndarray) -> int:
    """The first step of a stretch whose loss is not finite; its last where only the model is."""
    bad = ~np.isfinite(losses)
    return int(np.argmax(bad)) if bad.any() else len(losses) - 1


def all_finite(tree: Any) -> Any:
    """Whether every number of a tree is finite."""
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]))


def fit(
    name: str | Method | Factory,
    loss: Loss,
    params: Params,
    tasks: Tasks,
    *,
    iterations: int = 10_000,
    seed: int = 0,
    schedule: Schedule = constant,
    chunk: int | None = None,
    on_chunk: OnChunk | None = None,
    progress: bool = False,
    **options: Any,
) -> Learner:
    """Train by a method: its name, its function, or composed; `options` are its keywords.

    The result does not depend on `chunk`,
    the steps compiled as one program. Raises `Diverged`, with the model at the end of the stretch
    before, when the loss or the parameters stop being finite. `on_chunk` sees each of them.

    >>> import jax, moml
    >>> net = moml.mlp(1, 40, 40, 1)
    >>> loss = moml.mse(net.predict)
    >>> w = net.init(jax.random.key(0))
    >>> me = moml.fit("moml", loss, w, moml.sine(), iterations=2000, k=1, shots=10)
    >>> bool(me.history[-500:].mean() < me.history[:500].mean())
    True
    """
    params = check_params(params)
    check_count("iterations", iterations)
    check_count("seed", seed, least=0, below=2**32)
    chosen = compose(name, loss, tasks, options, iterations)
    check_loss(loss, params, tasks, chosen.k)
    hyper = hyper_of(chosen, params, {})
    algorithm = chosen.algorithm
    fits = simulate.steps_that_fit(algorithm, tasks)
    length = fits if chunk is None else check_count("chunk", chunk)
    steps = math.ceil(iterations / algorithm.iterations)
    program = simulate.compiled(simulate.stretch(algorithm, tasks, schedule))
    per_step = simulate.samples_per_step(algorithm.needs)

    check_adapts(chosen, params, hyper)
    key = run_key(seed)
    begun = jax.jit(start(chosen, tasks))(params, key, hyper)
    finite = jax.jit(all_finite)
    check_start(bool(finite(begun.meta)), chosen)
    history: list[np.ndarray] = []
    done = 0

    def learner(meta: Meta, state: Any) -> Learner:
        seen = np.concatenate(history) if history else np.zeros(0)
        drawn = (done * per_step + samples_to_fill(chosen)) * tasks.ways
        return Learner(chosen, meta, hyper, state, seen, drawn)

    with bar(chosen.name, steps, shown=progress) as advance:
        good = jax.tree.map(jnp.copy, begun.meta)
        for end, state, info in chunks(program, begun, key, hyper, steps, length):
            losses = np.asarray(info.loss)
            if not (np.isfinite(losses).all() and finite(state.meta)):
                raise Diverged(
                    f"{chosen.name} (seed {seed}) diverged at step {done + first_bad(losses)} of "
                    f"{steps} ({described(hyper)}): loss or parameters are not finite",
                    learner(good, None),
                )
            history.append(losses)
            done = end
            good = jax.tree.map(jnp.copy, state.meta)
            advance(done, float(losses[-100:].mean()))
            if on_chunk is not None:
                on_chunk(done, good)
    return learner(good, state)
