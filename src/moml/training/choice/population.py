"""Trainings that differ in beta alone, compared on held-out tasks; the better ones continue.

There are three: without memory, with the rule's beta, and with half of it. All begin at the first
step, and are compared late: a small beta is a slow starter. The members draw the same tasks and
samples. On a CPU they take turns, stretch by stretch, by the program of one training; elsewhere
they are members of a vmap.
They are scored by the mean of their last models, which has the noise that a later decay of eta
would leave.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from moml.algorithms.method import Method
from moml.algorithms.parts.schedule import Schedule
from moml.errors import Diverged
from moml.runtime import simulate
from moml.runtime.compiling import compile_all
from moml.training.compose import first_program, stacked_hyper, work
from moml.training.loop import Advance, Members, copy, members
from moml.types import Hyper, Info, Key, Meta, Params, Record, Scalar, State, Tasks

Scores = Callable[[Meta, Hyper, Tasks, Key], Float[Array, " tasks"]]  # of one model on tasks
POINTS, STEPS = 200, 50  # models of a training that enter the mean, at least so many steps apart
SPAN = 5  # of these models count most
TURNS = (0.6, 0.85)  # shares of the steps at which two are left, and one is
SMALL = (0.85,)  # side by side, where a step does not fill the device: one is left at once
LARGE = (0.15, 0.35)
SEED = 2718  # of the samples that held-out tasks are scored by
SCORES = 200  # of a model, at least: few tasks are drawn from several times
SURE, LIKELY = 3.0, 2.0  # standard errors by which beta = 1 must be beaten, on the way and at last
MOST = 30  # medians that an error counts as at most
WORK = 1e8  # floating-point operations of a step of one member that leave a device idle


class Rung(NamedTuple):
    """Members that are trained up to a step, and scored there."""

    members: int
    until: int


class Choice(NamedTuple):
    """The beta that was chosen, and how."""

    beta: float
    rule: float  # what the matching rule gives
    tasks: int  # held out
    rungs: list[Record]  # step, beta and score of its members, and those that were kept


class Averaged(NamedTuple):
    """The state of a member, and the mean of its last models."""

    method: State
    mean: Meta

    @property
    def meta(self) -> Meta:
        """The model itself."""
        return self.method.meta


@jax.jit
def _closer(mean: Meta, meta: Meta, rate: Scalar) -> Meta:
    return jax.tree.map(
        lambda old, new: old + jnp.asarray(rate, old.dtype) * (new - old), mean, meta
    )


def _on_host(leaf: Array | np.ndarray) -> bool:
    """Whether NumPy can index it where it is; a program for each shape would be compiled else."""
    typed = jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.default_backend() == "cpu" and not typed


def take(tree: PyTree, which: PyTree) -> PyTree:
    """Some members of a tree with leaves [members, ...], or one."""
    return jax.tree.map(
        lambda leaf: np.asarray(leaf)[which] if _on_host(leaf) else leaf[which], tree
    )


def stack(*trees: PyTree) -> PyTree:
    """Members side by side, leaves [members, ...]."""
    return jax.tree.map(lambda *leaves: (np if _on_host(leaves[0]) else jnp).stack(leaves), *trees)


class Population:
    """All that the members share.

    `score` is the compiled score of one model on each of the `validation` tasks; `turns`: whether
    members take turns, by default on a CPU.
    """

    def __init__(
        self,
        method: Method,
        params: Params,
        tasks: Tasks,
        key: Key,
        schedule: Schedule,
        score: Scores,
        validation: Tasks,
        *,
        steps: int,
        length: int,
        higher: bool = False,
        turns: bool | None = None,
    ):
        self.method, self.higher, self.steps = method, higher, steps
        self._params, self._tasks, self._key, self._schedule = params, tasks, key, schedule
        self._score, self.validation = score, validation
        self._turns = jax.default_backend() == "cpu" if turns is None else turns
        self.length = min(length, max(STEPS, steps // POINTS))  # steps of a program
        self._program: simulate.Program | None = None  # for the shapes of now

    def hyper(self, betas: Sequence[float]) -> Hyper:
        """The numbers of all members, leaves [members]."""
        return stacked_hyper(self.method, self._params, [{"beta": beta} for beta in betas])

    def first(self, betas: Sequence[float]) -> Members:
        """The members before their first step."""
        hyper, given = self.hyper(betas), (self._tasks, self._key)
        if self._turns:
            first = first_program(self.method)
            each = [first(self._params, *given, take(hyper, i)) for i in range(len(betas))]
            state = stack(*each)
        else:
            many = stack(*[self._params] * len(betas))
            keys = jnp.stack([self._key] * len(betas))
            state = first_program(self.method, members=True)(many, self._tasks, keys, hyper)
        return members(Averaged(state, copy(state.meta)))

    def rungs(self) -> list[Rung]:
        """How many members are trained up to which steps."""
        shares = TURNS if self._turns else SMALL if self._work() < WORK else LARGE
        steps = [math.ceil(share * self.steps) for share in shares]
        if len(self.method.betas) == 2:
            return [Rung(2, steps[-1])]
        members = len(self.method.betas), 2
        return [Rung(count, until) for count, until in zip(members, steps, strict=False)]

    def _work(self) -> float:
        return work(self.method, self._params, self._tasks, self._schedule, self.length)

    def advance(self, betas: Sequence[float]) -> Advance:
        """Stretches of `Members` with these values of beta."""
        hyper = self.hyper(betas)
        apart = [take(hyper, i) for i in range(len(betas))]

        def in_turn(carry: Members, begin: int, size: int) -> tuple[Members, Info]:
            each = [take(carry.state, i) for i in range(len(betas))]
            states, infos = zip(*self._some(each, apart, begin, size), strict=True)
            joined = jax.tree.map(lambda *rows: np.stack(rows), *infos)
            return carry._replace(state=stack(*states)), joined

        def at_once(carry: Members, begin: int, size: int) -> tuple[Members, Info]:
            ((state, info),) = self._some([carry.state], [hyper], begin, size)
            return carry._replace(state=state), info

        return in_turn if self._turns else at_once

    def _some(
        self, states: Sequence[Averaged], hypers: Sequence[Hyper], begin: int, size: int
    ) -> list[tuple[Averaged, Info]]:
        """`size` steps of each state on the same draws; the mean moves at fixed steps."""
        states, end = list(states), begin + size
        infos: list[list[Info]] = [[] for _ in states]
        if self._program is None:
            self._program = self._compiled(states[0].method, hypers[0])
        draws, steps = self._program
        while begin < end:
            part = min(end, begin - begin % self.length + self.length) - begin
            visits = simulate.read(draws(self._tasks, self._key, begin, self.length), self._tasks)
            for i, ((method, mean), hyper) in enumerate(zip(states, hypers, strict=True)):
                method, info = steps(method, self._tasks, visits, begin, hyper, part)
                infos[i].append(jax.tree.map(lambda x, n=part: np.asarray(x)[:n].T, info))
                if (begin + part) % self.length == 0:
                    rate = max(self.length / (begin + part), 1 / SPAN)
                    mean = _closer(mean, method.meta, rate)
                states[i] = Averaged(method, mean)
            begin += part
        join = lambda *parts: np.concatenate(parts, axis=-1)
        return [
            (state, jax.tree.map(join, *rows)) for state, rows in zip(states, infos, strict=True)
        ]

    def _compiled(self, state: State, hyper: Hyper) -> simulate.Program:
        of, schedule = self.method.algorithm, self._schedule
        if self._turns:
            program = simulate.program(of, schedule)  # called as `fit` does: the same one
        else:
            program = simulate.program(of, schedule, members=True, shared=True)
        compile_all(*program.lower(state, self._tasks, self._key, hyper, self.length))
        return program

    def scores(self, carry: Members, betas: Sequence[float]) -> Float[np.ndarray, "members tasks"]:
        """The score of each member on each held-out task; not a number of those that diverged.

        Members are scored by the same samples. Few tasks are drawn from several times.
        """
        hyper, lost = self.hyper(betas), np.asarray(carry.lost_at) >= 0
        draws = math.ceil(SCORES / (self.validation.n or 1))
        keys = jax.random.split(jax.random.key(SEED), draws)

        def one(i: int) -> np.ndarray:
            given = take(carry.state.mean, i), take(hyper, i), self.validation
            return np.mean([np.asarray(self._score(*given, key), float) for key in keys], axis=0)

        each = [one(i) for i in range(len(betas))]
        return np.where(lost[:, None], np.nan, np.asarray(each))


def values(
    scores: Float[np.ndarray, "members tasks"], *, higher: bool
) -> Float[np.ndarray, "members tasks"]:
    """What members are compared by, the lower the better: minus accuracies, or errors.

    Errors beyond `MOST` medians of all count as that, so that a few tasks on which the adaptation
    diverges do not decide.
    """
    lost = np.isnan(scores).all(axis=1)
    if higher:
        by = -np.nan_to_num(scores)
    else:
        finite = np.where(np.isfinite(scores), scores, np.finfo(np.float32).max)
        middle = np.median(np.abs(finite[~lost])) if not lost.all() else 1.0
        by = np.minimum(finite, MOST * middle)
    return np.where(lost[:, None], np.inf, by)


def survivors(
    scores: Float[np.ndarray, "members tasks"], count: int, *, higher: bool, one: bool = True
) -> list[int]:
    """The `count` best members in their order; those that diverged are last.

    Where the first one is without memory, beta = 1, it is among them unless the best beats it by
    `SURE` standard errors of their differences, and is the last one left unless by `LIKELY`.
    Raises `Diverged` where none is left.

    >>> survivors(np.array([[3.0, 3.1], [1.0, 1.0], [2.0, 2.0]]), 2, higher=False)
    [1, 2]
    """
    by = values(scores, higher=higher)
    means = by.mean(axis=1)
    if not np.isfinite(means).any():
        raise Diverged("all values of beta diverged: try a smaller eta or alpha")
    best = [int(i) for i in np.argsort(means, kind="stable") if np.isfinite(means[i])]
    if one and 0 in best[1:]:
        gain = by[0] - by[best[0]]
        error = gain.std() / math.sqrt(len(gain))
        if gain.mean() <= (LIKELY if count == 1 else SURE) * error:
            best.remove(0)
            best.insert(count - 1, 0)
    return sorted(best[:count])


def rung_row(
    step: int, betas: Sequence[float], scores: Float[np.ndarray, "members tasks"], kept: list[int]
) -> Record:
    """What a rung found: the mean score of each member, None where it is not finite."""
    with np.errstate(over="ignore"):
        means = scores.mean(axis=1).tolist()
    shown = [mean if math.isfinite(mean) else None for mean in means]
    left = [betas[i] for i in kept]
    return {"step": step, "beta": list(betas), "score": shown, "kept": left}
