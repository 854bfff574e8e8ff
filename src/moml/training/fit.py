"""`fit`: from a method, a loss and tasks to a model that adapts."""

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.stages import Wrapped
from jaxtyping import Array, Bool

from moml.algorithms.method import Factory, Method
from moml.algorithms.parts.adapt import Leaves, all_leaves
from moml.algorithms.parts.schedule import Schedule, constant
from moml.algorithms.signature import Adaptation
from moml.errors import ConfigError, DataError, Diverged, check_count
from moml.kept import kept
from moml.runtime import simulate
from moml.training.check import check_held, check_loss, check_params, check_samples
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
from moml.training.loop import Callback, TrainingInfo, all_finite, copy, loop
from moml.training.personal import fine_tune_program, one_task, personal, tuning_of
from moml.types import Hyper, Loss, Meta, Params, Samples, State, Tasks


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainingState:
    """All that further training needs: the method's state, and the number of steps done."""

    method: State
    step: int = field(metadata={"static": True})

    @property
    def memory(self) -> State:
        """The store of all tasks' memories; () of methods without one."""
        return getattr(self.method, "memory", ())


@dataclass(frozen=True)
class Learner:
    """A trained meta-model; `adapt` makes the model of one task from it."""

    method: Method
    meta: Meta
    hyper: Hyper
    state: TrainingState | None  # what `fit` continues from; None of a training that diverged
    history: np.ndarray  # mean loss after adaptation, one number a step (loaded: a line of metrics)
    samples: int  # drawn in all

    @property
    def params(self) -> Params:
        """The meta-model itself, as the loss takes it."""
        adapt = self.method.adaptation(self.method.inner_steps)
        return adapt.merge(self.meta, adapt.start(self.meta))

    def adapt(self, support: Samples, steps: int | None = None) -> Params:
        """Personal parameters after `steps` adaptation steps on a few samples of a task."""
        steps = self.method.inner_steps if steps is None else check_count("steps", steps)
        check_held("support", support)
        try:
            mine, finite = adapted(self.method.adaptation, steps)(self.meta, support, self.hyper)
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            reason = " ".join(str(error).split())[:300]
            raise DataError(f"cannot adapt to this support: {reason}") from error
        if not finite:
            raise DataError(
                "the adapted parameters are not finite: check the support, or take fewer steps"
            )
        return mine

    def personal(self, client: int) -> Params:
        """The model that a client keeps, of methods whose clients keep one.

        Ditto's u_i; or the server's leaves with the client's own ones, `private`.

        Parameters
        ----------
        client
            Its number, from 0.

        Returns
        -------
        Parameters, as the loss takes them. Raises a ConfigError that says what to do where the
        method's clients keep none, or this one was in no round.
        """
        return personal(self.method, self.meta, getattr(self.state, "memory", ()), client)

    def fine_tune(
        self,
        samples: Samples,
        *,
        epochs: int | None = None,
        batch_size: int | None = None,
        rate: float | None = None,
        leaves: Leaves = all_leaves,
        seed: int = 0,
    ) -> Params:
        """The meta-model after plain SGD on samples of a task: w <- w - rate grad L_S(w).

        Parameters
        ----------
        samples
            Of one task, as the loss takes them: arrays [samples, ...].
        epochs, batch_size, rate
            Passes over the samples, samples of a batch S and step size; by default those of
            training: local_epochs or 1, k, eta.
        leaves
            Those that are trained, such as `moml.parts.named("head")`; by default all.
        seed
            Of the order of the samples.

        Returns
        -------
        Parameters, as the loss takes them.
        """
        check_held("samples", samples)
        used = tuning_of(self.method, self.hyper, epochs, batch_size, rate)
        program = fine_tune_program(used.loss, leaves, used.epochs, used.batch_size)
        key, first = jax.random.key(check_count("seed", seed, least=0)), jnp.zeros((), jnp.int32)
        mine = program(self.params, one_task(samples), key, first, used.rate)
        if not all_finite(mine):
            raise DataError("the fine-tuned parameters are not finite: take a smaller rate")
        return mine


@kept
def adapted(adaptation: Adaptation, steps: int) -> Wrapped:
    """The jitted adaptation: (meta, support, hyper) -> personal parameters, whether all finite."""
    adapt = adaptation(steps)

    def run(meta: Meta, support: Samples, hyper: Hyper) -> tuple[Params, Bool[Array, ""]]:
        mine = adapt.merge(meta, adapt.apply(meta, support, hyper))
        return mine, all_finite(mine)

    return jax.jit(run)


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
    callback
        Called after every stretch of `chunk` steps with a `TrainingInfo` (step, meta, loss, norm,
        ...). If it returns True, training stops and the learner is returned.
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
    check_samples(chosen.algorithm.needs, tasks)
    check_loss(loss, params, tasks, chosen.k)
    hyper = hyper_of(chosen, params, {})
    algorithm = chosen.algorithm
    fits = simulate.steps_that_fit(algorithm, tasks)
    length = fits if chunk is None else check_count("chunk", chunk)

    check_adapts(chosen, params, hyper)
    check_schedule(schedule, hyper)
    key, steps = run_key(seed), math.ceil(iterations / algorithm.iterations)
    length = min(length, steps)
    first = partial(first_program(chosen), params, tasks, key, hyper)
    if state is None:
        done, carry = 0, first()
    else:
        done, carry = _continued(state, jax.eval_shape(first))
    check_start(bool(all_finite(carry.meta)), chosen)
    good = copy(carry.meta)
    history: list[np.ndarray] = []

    def after(info: TrainingInfo) -> bool:
        nonlocal done, good
        done, good = info.step, info.meta
        history.append(info.losses)
        return callback is not None and bool(callback(info._replace(hyper=hyper)))

    def learner(state: TrainingState | None) -> Learner:
        drawn = done * simulate.samples_per_step(algorithm.needs, tasks) + samples_to_fill(chosen)
        seen = np.concatenate(history) if history else np.zeros(0)
        return Learner(chosen, good, hyper, state, seen, drawn * tasks.ways)

    try:
        carry, done = loop(
            chosen.name,
            simulate.advance(simulate.program(algorithm, schedule), tasks, key, hyper, length),
            carry,
            steps=done + steps,
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
