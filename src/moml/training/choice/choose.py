"""The choice of beta in `fit`: tasks to hold out, a population that is thinned, and its winner."""

import logging
from typing import NamedTuple

import numpy as np

from moml.algorithms.method import Method
from moml.errors import ConfigError, DataError
from moml.runtime.account import nbytes
from moml.runtime.memory_budget import free_bytes
from moml.tasks.subset import subset
from moml.training.choice.population import Choice, Population, Scores, rung_row, survivors, take
from moml.training.evaluate import check_shots, errors_on
from moml.training.loop import Members, loop
from moml.types import Loss, State, Tasks

LEAST, SHARE, MOST = 20, 10, 200  # held out: a tenth of the tasks, from 20 up to 200
SHORTEST = 1000  # steps
ROOM = 0.7  # of the free memory
SEED = 2718  # of the tasks that are held out
CONTINUES = "a state is continued; give beta = learner.hyper.beta to keep that of before"
log = logging.getLogger("moml")


class HeldOut(NamedTuple):
    """Tasks to train on, and others to choose by."""

    tasks: Tasks
    validation: Tasks


def by_rule(method: Method, reason: str) -> Method:
    """The method with the rule's beta; the log says why."""
    log.warning("beta = %.3g by the matching rule: %s", method.hyper.beta, reason)
    return method._replace(betas=())


def too_short(steps: int) -> str | None:
    """Why a training of so many steps is too short to choose in, or None."""
    return f"{steps} steps are too few to compare others" if steps < SHORTEST else None


def too_large(method: Method, state: State) -> str | None:
    """Why the members do not fit into the free memory, with a state of these shapes; or None."""
    needed, free = 3 * len(method.betas) * nbytes(state), free_bytes()
    if free is None or needed <= ROOM * free:
        return None
    return f"{len(method.betas)} trainings need {needed / 1e9:.1f} GB of {free / 1e9:.1f} GB free"


def hold_out(
    name: object, method: Method, tasks: Tasks, validation: Tasks | None, steps: int
) -> HeldOut | str:
    """The tasks to train on and those to choose by, as given or taken out; or why there are none.

    A tenth of the tasks is taken out, at random, at most 200; at least 20 are needed.
    """
    if reason := too_short(steps):
        return reason
    if validation is not None:
        if not isinstance(validation, Tasks) or validation.n is None:
            raise DataError("validation must be a fixed set of moml.Tasks")
        return HeldOut(tasks, validation)
    count = min(MOST, (tasks.n or 0) // SHARE)
    if count < LEAST:
        return f"{tasks.n} tasks leave fewer than {LEAST} to hold out; validation gives others"
    if isinstance(name, Method):
        return f"the method was composed for all {tasks.n} tasks; validation gives others"
    order = np.random.default_rng(SEED).permutation(tasks.n or 0)
    return HeldOut(subset(tasks, np.sort(order[count:])), subset(tasks, np.sort(order[:count])))


def validation_scores(method: Method, loss: Loss, tasks: Tasks) -> Scores:
    """The loss on each validation task, at the shots and steps of the users."""
    shots, steps = method.options["shots"], method.options["test_steps"]
    queries = 100 if tasks.least is None else tasks.least - shots
    if queries < 1:
        raise ConfigError(
            f"validation tasks must have more than {shots} samples each; got {tasks.least}"
        )
    check_shots(tasks, shots, queries)
    return errors_on(method.adaptation, steps, loss, shots, queries)


class Chosen(NamedTuple):
    """The winner: its state after some steps, and its losses on the way."""

    state: State
    step: int
    history: list[np.ndarray]
    choice: Choice


def choose(population: Population, *, length: int, progress: bool = False) -> Chosen:
    """Train the population, and thin it out to one."""
    method, held = population.method, population.validation.n or 0
    betas, done = list(method.betas), 0
    carry, rows = population.first(betas), []
    losses: list[np.ndarray] = []  # [members, steps] of each stretch
    rungs = population.rungs()
    for place, rung in enumerate(rungs):
        carry, done = loop(
            f"{method.name} x {len(betas)}", population.advance(betas), carry,
            steps=rung.until, length=length, done=done, progress=progress,
            after=lambda info: losses.append(info.losses),
        )  # fmt: skip
        scores = population.scores(carry, betas)
        left = rungs[place + 1].members if place + 1 < len(rungs) else 1
        best = survivors(scores, left, higher=population.higher, one=betas[0] == 1)
        rows.append(rung_row(done, betas, scores, best))
        betas = [betas[i] for i in best]
        carry = take(carry, np.array(best))
        losses[:] = [each[best] for each in losses]
    state = winner(carry)
    choice = Choice(betas[0], float(method.hyper.beta), held, rows)
    log.info("beta = %g, chosen on %d held-out tasks", choice.beta, held)
    return Chosen(state, done, [each[0] for each in losses], choice)


def winner(carry: Members) -> State:
    """The state of the first member, as a training of its own has it."""
    return take(carry.state.method, 0)


def settled(method: Method, choice: Choice) -> Method:
    """The method with the beta that was chosen."""
    hyper = method.hyper._replace(beta=choice.beta)
    options = dict(method.options) | {"beta": choice.beta}
    return method._replace(hyper=hyper, options=options, betas=())
