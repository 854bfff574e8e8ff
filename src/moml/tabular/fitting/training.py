"""The training of a table's members: all kinds side by side, of each member the best model."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from moml.algorithms.single.matching import match_beta
from moml.algorithms.tabular.members import Shape
from moml.algorithms.tabular.rivals import row_losses
from moml.runtime.compiling import Threads
from moml.tabular.fitting.calls import Call, Calls
from moml.tabular.fitting.program import (
    QUERIES,
    TableData,
    TablePlan,
    draw_program,
    first_program,
    layout,
)
from moml.training.loop import Members, loop, side_by_side
from moml.training.progress import bar
from moml.types import Batch, Hyper, Info, Meta, Record, State, Task

ETAS = (0.003, 0.01)
LOOKS = 20  # number of scores on held-out tasks during training
LARGE = 5_000  # tasks to learn from; with more, candidates that are clearly worse are dropped
HALVE = 4  # after one in so many steps

Tried = tuple[str, int]  # a kind, and the number of a setting
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
    states: dict[Call, State]


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
    mesh: Mesh | None = None,
    log: Callable[[Record], None] = lambda row: None,
) -> dict[str, list[Candidate]]:
    """Train members of some kinds, or of `only` some of these; keep of each the best model.

    Best is what predicts held-out tasks best. `widest` is the largest number of rows of a task.
    With `models` they continue from these, with the smallest learning rate and no memory.
    On a `mesh` each device trains some of the members. With more than `LARGE` tasks to learn from,
    candidates that are clearly worse after a quarter of the steps are trained no further.
    `log` gets rows: the step, and each kind's mean of the losses of its members' best models.
    """
    names = list(kinds if only is None else only)
    plan = _plan(kinds, shape, given, shots, iterations, widest)
    large = int(given.groups.min()) > LARGE and models is None
    settings = _settings(plan, int(given.groups.min()), models is not None)
    count = {k: members if models is None else len(jax.tree.leaves(models[k])[0]) for k in names}
    asked, seeds = test.query, np.arange(max(count.values()), dtype=np.int32)
    flats = {kind: layout(kind, shape, given.knots, plan.size) for kind in names}
    hyper, etas = _hyper(settings), [row["eta"] for row in settings]
    calls = Calls(plan, given, test.batch, hyper, count, mesh, apart=large)
    first = first_program(tuple(kinds), plan)(
        calls.given, {k: seeds[: count.get(k, members)] for k in kinds}, hyper
    )
    if models is not None:
        for kind in names:
            meta = _vectors(models[kind], flats[kind].size)
            first[kind] = first[kind]._replace(meta=meta)
    every = [(kind, i) for kind in names for i in range(len(settings))]
    live, best, scored = set(every), dict[Tried, Best](), dict[Tried, Best]()
    title = f"{', '.join(names)} x {len(settings) * max(count.values())}"

    def stretch(carry: MemberStates, begin: int, size: int) -> tuple[MemberStates, Info]:
        visits = draw_program(plan)(calls.given, seeds, np.int32(begin))
        goes_on = lambda call: any((call.kind, i) in live for i in call.settings)
        some = {call: state for call, state in carry.states.items() if goes_on(call)}
        states, infos = dict(carry.states), {}
        for call, (state, done) in calls.run(pool, some, visits, begin, size).items():
            states[call] = state
            for i in call.settings:
                info, meta, answers = done.of(call, i)
                answers = answers[:, : test.tasks]
                loss = task_losses(shape, answers, asked)
                if test.folds is not None:
                    loss = over_folds(loss, test.folds)
                infos[call.kind, i] = info
                scored[call.kind, i] = Best(loss.sum(axis=-1), meta, answers)
        idle = lambda key: Info(*np.zeros((2, count[key[0]], size), np.float32))
        rows = [infos.get(key) or idle(key) for key in every]
        together = MemberStates(np.concatenate([scored[key].meta for key in every]), states)
        return together, jax.tree.map(lambda *leaves: np.concatenate(leaves), *rows)

    with Threads(len(names)) as pool, bar(title, plan.steps, shown=progress) as show:

        def look(step: int) -> None:
            for key in live:
                best[key] = best[key].better(scored[key]) if key in best else scored[key]
            rows = float(np.sum(asked.mask))
            least = {
                kind: np.concatenate([best[kind, i].loss for i in range(len(settings))]) / rows
                for kind in names
            }
            show(step, float(np.concatenate([*least.values()]).mean()))
            log({"step": step} | {kind: float(loss.mean()) for kind, loss in least.items()})
            if large and step >= plan.steps / HALVE:
                live.difference_update(_hopeless(live, best, etas, shape, test))

        states = calls.states(first)
        begun = MemberStates(np.concatenate([np.array(first[k].meta) for k in names]), states)
        if models is not None:
            begun, _ = stretch(begun, 0, 0)
            look(0)
        carry = Members(begun, begun.meta, np.full(len(begun.meta), -1, np.int32))
        loop(
            title, side_by_side(stretch), carry, steps=plan.steps, length=plan.chunk,
            after=lambda info: look(info.step),
        )  # fmt: skip
    found: dict[str, list[Candidate]] = {kind: [] for kind in names}
    for kind, i in every:
        _, meta, answers = best[kind, i]
        one = {"kind": kind} | settings[i]
        found[kind].append((one, flats[kind].tree(meta), _held_answers(answers, test.folds)))
    return found


def _hopeless(
    live: set[Tried], best: Mapping[Tried, Best], etas: Sequence[float], shape: Shape, test: HeldOut
) -> set[Tried]:
    """Candidates clearly worse than the best one; pooled ones compete among themselves.

    A larger learning rate stays where a smaller one of its kind does: it gains more at the end.
    """
    lost = set[Tried]()
    for pooled in (False, True):
        some = sorted(key for key in live if (key[0] == "pooled") is pooled)
        answers = (_held_answers(best[key].answers, test.folds) for key in some)
        losses = [task_losses(shape, given, test.query) for given in answers]
        if losses:
            worse = clearly_worse(np.stack(losses))
            lost |= {key for key, bad in zip(some, worse, strict=True) if bad}
    stays = {
        (kind, i) for kind, i in lost for other, j in live - lost
        if other == kind and etas[j] < etas[i]
    }  # fmt: skip
    return lost - stays


def clearly_worse(losses: np.ndarray) -> np.ndarray:
    """Which losses [candidates, tasks] exceed the best by more than two standard errors.

    >>> clearly_worse(np.array([[1.0, 1.0, 1.0], [2.0, 3.0, 2.0], [1.0, 9.0, 1.0]])).tolist()
    [False, True, False]
    """
    above = losses - losses[np.argmin(losses.sum(axis=1))]
    error = math.sqrt(above.shape[1]) * above.std(axis=1)
    return above.sum(axis=1) > 2 * error


def over_folds(loss: np.ndarray, folds: np.ndarray) -> np.ndarray:
    """A setting's losses [members, tasks] that decide when each member stops.

    A task is predicted by the member that has not seen it, and has no part in when this member
    stops: those of the other folds' tasks do.

    >>> over_folds(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([0, 1])).tolist()
    [[0.0, 4.0], [1.0, 0.0]]
    """
    crossed = loss[folds, np.arange(len(folds))]
    return crossed * (np.arange(len(loss))[:, None] != folds)


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
