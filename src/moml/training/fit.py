"""`fit`: from a method, a loss and tasks to a model that adapts."""

import math
from functools import partial
from typing import Any

import jax
import numpy as np

from moml.algorithms.method import Factory, Method
from moml.algorithms.parts.schedule import Schedule, constant
from moml.errors import ConfigError, Diverged, check_count
from moml.runtime import simulate
from moml.training.check import check_loss, check_params, check_samples
from moml.training.choice.choose import (
    CONTINUES,
    by_rule,
    choose,
    hold_out,
    settled,
    too_large,
    validation_scores,
)
from moml.training.choice.population import Population
from moml.training.compose import (
    check_adapts,
    check_schedule,
    check_start,
    compose,
    described,
    first_program,
    hyper_of,
    run_key,
    samples_to_fill,
)
from moml.training.execution import copy_arrays
from moml.training.learner import Learner as Learner
from moml.training.learner import TrainingState as TrainingState
from moml.training.loop import Callback, TrainingInfo, all_finite, copy, loop
from moml.types import Loss, Params, State, Tasks


def fit(
    name: str | Method | Factory,
    loss: Loss,
    params: Params,
    tasks: Tasks,
    *,
    iterations: int = 10_000,
    seed: int = 0,
    schedule: Schedule = constant,
    state: TrainingState | None = None,
    validation: Tasks | None = None,
    callback: Callback | None = None,
    chunk: int | None = None,
    progress: bool = False,
    **options: Any,
) -> Learner:
    """Train a meta-model.

    Parameters
    ----------
    name
        A method: its name, its factory, or a composed one.
    loss, params, tasks
        `loss(params, samples)` is a scalar; training starts from `params`.
    iterations
        Iterations of the paper to train for; with `state`, further ones.
    schedule
        Changes the hyper-parameters over the iterations.
    state
        `learner.state` of an earlier call with the same other arguments: training continues from
        its step. a and then b iterations give what a + b give at once, if `beta` is given to
        methods that choose it by the number of iterations. The state is copied.
    validation
        Tasks that beta = auto is chosen on, other than `tasks`; `learner.choice` has the scores. By
        default a tenth of 200 tasks or more is held out, at random. With fewer tasks, or less than
        1,000 steps, beta is that of the matching rule, and a line of the log says so.
    callback
        Called after every stretch of `chunk` steps with a `TrainingInfo` (step, meta, loss, norm,
        ...), where beta is chosen from then on. If it returns True, training stops and the learner
        is returned.
    chunk
        Steps compiled as one program; the result does not depend on it.
    options
        Keywords of the method (k, tasks_per_step, eta, beta, ...), see `moml.methods`.

    Returns
    -------
    The `Learner`. Raises `Diverged`, with the learner of the stretch before, when the loss or the
    parameters stop being finite.

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
    key, steps = run_key(seed), math.ceil(iterations / chosen.algorithm.iterations)
    if validation is not None and not chosen.betas:
        raise ConfigError("validation is used by beta = auto alone; leave it out")
    if chosen.betas:
        held = hold_out(name, chosen, tasks, validation, steps) if state is None else CONTINUES
        if isinstance(held, str):
            chosen = by_rule(chosen, held)
        elif held.tasks is not tasks:
            tasks = held.tasks
            chosen = compose(name, loss, tasks, options, iterations)
    check_samples(chosen.algorithm.needs, tasks)
    check_loss(loss, params, tasks, chosen.k)
    hyper = hyper_of(chosen, params, {})
    algorithm = chosen.algorithm
    fits = simulate.steps_that_fit(algorithm, tasks)
    length = fits if chunk is None else check_count("chunk", chunk)

    check_adapts(chosen, params, hyper)
    check_schedule(schedule, hyper)
    length = min(length, steps)
    first = partial(first_program(chosen), params, tasks, key, hyper)
    if chosen.betas and (reason := too_large(chosen, jax.eval_shape(first))):
        chosen = by_rule(chosen, reason)
    history: list[np.ndarray] = []
    choice, begun = None, 0
    if chosen.betas and not isinstance(held, str):
        score = validation_scores(chosen, loss, held.validation)
        population = Population(
            chosen, params, tasks, key, schedule, score, held.validation, steps=steps,
            length=length,
        )  # fmt: skip
        carry, begun, history, choice = choose(population, length=length, progress=progress)
        chosen = settled(chosen, choice)
        hyper = hyper_of(chosen, params, {})
        done, length = begun, population.length if chunk is None else length
    elif state is None:
        done, carry = 0, first()
    else:
        done, carry = _continued(state, jax.eval_shape(first))
    check_start(bool(all_finite(carry.meta)), chosen)
    good = copy(carry.meta)

    def after(info: TrainingInfo) -> bool:
        nonlocal done, good
        done, good = info.step, info.meta
        history.append(info.losses)
        return callback is not None and bool(callback(info._replace(hyper=hyper)))

    def learner(state: TrainingState | None) -> Learner:
        drawn = done * simulate.samples_per_step(algorithm.needs, tasks) + samples_to_fill(chosen)
        seen = np.concatenate(history) if history else np.zeros(0)
        return Learner(chosen, good, hyper, state, seen, drawn * tasks.ways, choice)

    try:
        carry, done = loop(
            chosen.name,
            simulate.advance(simulate.program(algorithm, schedule), tasks, key, hyper, length),
            carry,
            steps=done + steps - begun,
            length=length,
            done=done,
            after=after,
            about=f"seed {seed}, {described(hyper)}",
            progress=progress,
        )
    except Diverged as error:
        error.learner = learner(None)
        raise
    return learner(TrainingState(carry, done))


def _continued(state: TrainingState, like: State) -> tuple[int, State]:
    """The step and a copy of a state, which must have the form of `like`."""
    form = lambda tree: (
        str(jax.tree.structure(tree)),
        [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(tree)],
    )
    if not isinstance(state, TrainingState):
        raise ConfigError(f"state must be the state of a learner; got {type(state).__name__}")
    if form(state.method) != form(like):
        raise ConfigError("state must be of the same method, network and number of tasks")
    return state.step, copy_arrays(state.method)
