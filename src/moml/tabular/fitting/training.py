"""The training of a table's members: all kinds side by side, of each member the best model."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from moml.algorithms.single.matching import match_beta
from moml.algorithms.tabular.members import Shape
from moml.algorithms.tabular.rivals import row_losses
from moml.runtime.compiling import Threads
from moml.tabular.fitting.program import (
    QUERIES,
    TableData,
    TablePlan,
    Visits,
    draw_program,
    first_program,
    layout,
    train_program,
)
from moml.training.loop import Members, loop, side_by_side
from moml.training.progress import bar
from moml.types import Batch, Hyper, Info, Meta, Record, State, Task

ETAS = (0.003, 0.01)
LOOKS = 20  # number of scores on held-out tasks during training

Candidate = tuple[Record, Meta, np.ndarray]  # a setting, its members, their mean answers


class HeldOut(NamedTuple):
    """HeldOut-out tasks, to decide when to stop and what to average."""

    batch: Task  # support and query, [tasks, rows]; the tasks from `tasks` on are padding
    tasks: int
    folds: np.ndarray | None = None  # the seed of the members that each is held out from

    @property
    def query(self) -> Batch:
        """The queries of the real tasks."""
        return jax.tree.map(lambda leaf: leaf[: self.tasks], self.batch.query)


class MemberStates(NamedTuple):
    """The state of all members."""

    meta: np.ndarray  # [members, numbers], kind after kind
    states: dict[str, State]


class Best(NamedTuple):
    """Of each member of a kind the best model yet."""

    loss: np.ndarray  # on the held-out tasks
    meta: np.ndarray
    answers: np.ndarray  # for the held-out tasks' queries

    def better(self, new: "Best") -> "Best":
        """Member by member the better one."""
        ok = new.loss < self.loss  # False for NaN

        def take(new: np.ndarray, old: np.ndarray) -> np.ndarray:
            return np.where(ok.reshape(-1, *[1] * (new.ndim - 1)), new, old)

        return Best(*(take(*pair) for pair in zip(new, self, strict=True)))


def task_losses(shape: Shape, answers: np.ndarray, query: Batch) -> np.ndarray:
    """Each task's squared error or log-loss, summed over its rows."""
    return np.sum(query.mask * row_losses(answers, query.y, shape.classes), axis=-1)


def train_members(
    kinds: Sequence[str],
    shape: Shape,
    given: TableData,
    test: HeldOut,
    shots: int,
    *,
    widest: int,
    members: int,
    iterations: int | None,
    progress: bool,
    only: Sequence[str] | None = None,
    models: Mapping[str, Meta] | None = None,
    log: Callable[[Record], None] = lambda row: None,
) -> dict[str, list[Candidate]]:
    """Train members of some kinds, or of `only` some of these; keep of each the best model.

    Best is what predicts held-out tasks best. `widest` is the largest number of rows of a task.
    With `models` they continue from these, with the smallest learning rate and no memory.
    `log` gets rows: the step, and each kind's mean of the losses of its members' best models.
    """
    names = list(kinds if only is None else only)
    plan = _plan(kinds, shape, given, shots, iterations, widest)
    settings = _settings(plan, int(given.groups.min()), models is not None)
    hyper = _hyper(settings)
    count = {k: members if models is None else len(jax.tree.leaves(models[k])[0]) for k in kinds}
    given, batch, asked = jax.device_put(given), jax.device_put(test.batch), test.query
    draw, seeds = draw_program(plan), np.arange(max(count.values()), dtype=np.int32)
    first = first_program(tuple(kinds), plan)(
        given, {k: seeds[:n] for k, n in count.items()}, hyper
    )
    flats = {kind: layout(kind, shape, given.knots, plan.size) for kind in names}
    states = {kind: first[kind] for kind in names}
    if models is not None:
        for kind in names:
            states[kind] = states[kind]._replace(meta=_vectors(models[kind], flats[kind].size))
    best: dict[str, Best] = {}
    scored: dict[str, Best] = {}
    title = f"{', '.join(names)} x {len(settings) * max(count[kind] for kind in names)}"

    def arguments(kind: str, state: State, begin: int, size: int, visits: Visits) -> tuple:
        if count[kind] < len(seeds):
            visits = jax.tree.map(lambda leaf: np.asarray(leaf)[: count[kind]], visits)
        return state, given, batch, visits, np.int32(begin), np.int32(size), hyper

    def stretch(carry: MemberStates, begin: int, size: int) -> tuple[MemberStates, Info]:
        visits = draw(given, seeds, np.int32(begin))
        args = {k: arguments(k, carry.states[k], begin, size, visits) for k in names}
        ready = {k: train_program(k, plan).compiled(pool, *args[k]) for k in names}
        running = {k: pool.submit(ready[k].result(), *args[k]) for k in names}
        states, infos = {}, []
        for kind in names:
            states[kind], info, answers = running[kind].result()
            meta, answers = np.array(states[kind].meta), np.asarray(answers)[:, : test.tasks]
            loss = task_losses(shape, answers, asked)
            if test.folds is not None:
                loss = _over_folds(loss, test.folds, len(settings))
            scored[kind] = Best(loss.sum(axis=-1), meta, answers)
            infos.append(jax.tree.map(lambda leaf: np.asarray(leaf)[:, :size], info))
        together = MemberStates(np.concatenate([scored[kind].meta for kind in names]), states)
        return together, jax.tree.map(lambda *leaves: np.concatenate(leaves), *infos)

    with Threads(len(names)) as pool, bar(title, plan.steps, shown=progress) as show:

        def look(step: int) -> None:
            for kind in names:
                best[kind] = best[kind].better(scored[kind]) if kind in best else scored[kind]
            rows = float(np.sum(asked.mask))
            least = {kind: best[kind].loss / rows for kind in names}
            show(step, float(np.concatenate([*least.values()]).mean()))
            log({"step": step} | {kind: float(loss.mean()) for kind, loss in least.items()})

        begun = MemberStates(np.concatenate([np.array(states[k].meta) for k in names]), states)
        if models is not None:
            begun, _ = stretch(begun, 0, 0)
            look(0)
        carry = Members(begun, begun.meta, np.full(len(begun.meta), -1, np.int32))
        loop(
            title, side_by_side(stretch), carry, steps=plan.steps, length=plan.chunk,
            after=lambda info: look(info.step),
        )  # fmt: skip
    found: dict[str, list[Candidate]] = {}
    for kind in names:
        apart = (np.split(part, len(settings)) for part in best[kind][1:])
        found[kind] = [
            ({"kind": kind} | setting, flats[kind].tree(meta), _held_answers(answers, test.folds))
            for setting, meta, answers in zip(settings, *apart, strict=True)
        ]
    return found


def _over_folds(loss: np.ndarray, folds: np.ndarray, settings: int) -> np.ndarray:
    """Of all members of a setting the losses [members, tasks] on the tasks that each held out."""
    by_seed = loss.reshape(settings, -1, len(folds))
    crossed = by_seed[:, folds, np.arange(len(folds))]  # [settings, tasks]
    return np.repeat(crossed, by_seed.shape[1], axis=0)


def _held_answers(answers: np.ndarray, folds: np.ndarray | None) -> np.ndarray:
    """The members' mean answers, or for each task that of the member that has not seen it."""
    return answers.mean(axis=0) if folds is None else answers[folds, np.arange(len(folds))]


def _plan(
    kinds: Sequence[str],
    shape: Shape,
    given: TableData,
    shots: int,
    iterations: int | None,
    widest: int,
) -> TablePlan:
    n = int(given.groups.min())
    steps = max(2000, math.ceil(n / 10)) if iterations is None else iterations
    tasks, queries = min(16 if n < 5000 else 32, n), min(QUERIES, max(1, widest - 1))
    size = max(layout(kind, shape, given.knots).size for kind in kinds)
    return TablePlan(shape, shots, steps, math.ceil(steps / LOOKS), tasks, queries, size)


def _settings(plan: TablePlan, n: int, continued: bool) -> list[Record]:
    """Learning rates, and weights of the memory by the matching rule: all combinations."""
    etas, betas = [*ETAS], [1.0]
    if plan.memory:
        visits = plan.steps * plan.tasks / n
        betas.append(match_beta(plan.visit, plan.shots, visits=visits))
    if continued:
        etas, betas = etas[:1], betas[:1]
    return [{"eta": eta, "beta": beta} for eta in etas for beta in betas]


def _hyper(settings: list[Record]) -> Hyper:
    dtype = jnp.result_type(float)
    every = {name: np.array([row[name] for row in settings], dtype) for name in ("eta", "beta")}
    return Hyper(**every, alpha=np.full(len(settings), 0.1, dtype))


def _vectors(metas: Meta, size: int) -> np.ndarray:
    """Members [members, ...] as vectors, see `Flat`."""
    parts = [np.asarray(leaf).reshape(len(leaf), -1) for leaf in jax.tree.leaves(metas)]
    whole = np.concatenate(parts, axis=1)
    return np.pad(whole, [(0, 0), (0, size - whole.shape[1])])
