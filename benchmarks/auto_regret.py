"""The regret and the cost of beta = auto, by whole trainings with `moml.fit`.

    python benchmarks/auto_branches.py record DIR
    python benchmarks/auto_regret.py train DIR/auto.json [--processes 11] [--minutes 8] [--seeds 3]
    python benchmarks/auto_regret.py table DIR/auto.json DIR
    python benchmarks/auto_regret.py cost [--iterations 40000] [--turns 3]

`train` trains `moml` with beta = auto for each cell of auto_cells.py. The errors of fixed beta are
those that `auto_branches.py record` keeps, by the same programs, seeds and test tasks: 500 unseen
ones, 20,000 of linear regression. `table` compares means over seeds: of all beta of the grid the
one with the least mean is the best, and beta of the rule is interpolated. An error above that of
always answering zero counts as that. `cost` times auto against
one plain training, in turns, in one process. The same words go on where `train` was stopped.
"""

import argparse
import json
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from auto_branches import fixed_errors
from auto_cells import (
    BATCH,
    ETA,
    GRID,
    STEPS,
    Unit,
    kept_schedule,
    kept_tasks,
    rule,
    units,
    validation,
)
from common import machine
from moml.errors import DataError, Diverged, MomlError
from moml.paper.shots.families import learner
from moml.paper.shots.study import FULL, SHOTS, Place, tests
from moml.paper.shots.verdict import excess
from moml.storage.files import read_json
from moml.training.compose import init_key
from moml.training.fit import fit
from moml.training.learner import Learner
from moml.types import Record
from pool import positive, run_all, whole


def trained(unit: Unit, beta: float | str, shots: int, steps: int) -> Learner:
    """One call of `fit`, as a user would make it."""
    place, model = unit.place, learner(unit.place.family)
    return fit(
        "moml", model.loss, model.init(init_key(unit.seed)),
        kept_tasks(place.family, place.n, place.noise), seed=unit.seed, beta=beta, eta=ETA,
        alpha=model.alpha, k=place.k, tasks_per_step=BATCH, shots=shots, test_steps=steps,
        iterations=place.iterations, schedule=kept_schedule(place.iterations * 3 // 4),
        validation=validation(place) if beta == "auto" else None,
    )  # fmt: skip


class Timed(NamedTuple):
    """What a call returned, and its seconds."""

    learner: Learner | None  # None where it diverged
    wall: float
    cpu: float


def timed(call: Callable[[], Learner]) -> Timed:
    """Call, and wait for the arrays."""
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        done = call()
        jax.block_until_ready(done.meta)
    except Diverged:
        done = None
    return Timed(done, time.perf_counter() - wall, time.process_time() - cpu)


def measure(unit: Unit) -> list[Record]:
    """All rows of a unit."""
    return list(rows_of(unit))


def rows_of(unit: Unit) -> Iterator[Record]:
    """A row for each number of shots and steps, with its test error."""
    score = tests(unit.place, STEPS)[0]
    for at in np.ndindex(len(SHOTS), len(STEPS)):
        shots, steps = SHOTS[at[0]], STEPS[at[1]]
        done = timed(lambda shots=shots, steps=steps: trained(unit, "auto", shots, steps))
        row = unit.place._asdict() | {"seed": unit.seed, "shots": shots, "steps": steps}
        row |= {"wall": round(done.wall, 3), "cpu": round(done.cpu, 3), "error": None}
        if done.learner is not None:
            metas = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], done.learner.meta)
            choice = done.learner.choice
            row["error"] = float(score(metas)[(0, *at)])
            row["chosen"] = float(done.learner.hyper.beta)
            row["rungs"] = None if choice is None else choice.rungs
        yield row


def train(options: argparse.Namespace) -> None:
    """Go through the units that are not in the file yet."""
    rows = read_rows(options.out) if options.out.exists() else []
    known = {_unit(row) for row in rows}
    todo = [unit for unit in units(options.iterations, options.seeds) if unit not in known]

    def keep(unit: Unit, found: list[Record]) -> None:
        rows.extend(found)
        part = options.out.with_suffix(".part")
        part.write_text(json.dumps(rows))
        part.replace(options.out)

    run_all(measure, todo, keep, processes=options.processes, minutes=options.minutes)


def read_rows(path: Path) -> list[Record]:
    """The rows that `train` has written to a file."""
    rows = read_json(path)
    fields = {*Place._fields, "seed", "shots", "steps", "error"}
    if not all(fields <= {*row} for row in rows):
        raise DataError(f"{path} must have rows of auto_regret.py train; got others")
    return rows


def _unit(row: Record) -> Unit:
    return Unit(Place(*(row[name] for name in Place._fields)), row["seed"])


class Cell(NamedTuple):
    """Errors, means over the seeds, of one place, number of shots and of steps."""

    place: Place
    shots: int
    steps: int
    seeds: int
    auto: float
    best: float
    best_beta: float
    one: float
    rule: float
    chosen: list[float]
    useless: float
    rungs: list[list[Record]]  # of each seed

    @property
    def excess(self) -> tuple[float, float, float, float]:
        """Per cent: auto, rule and beta = 1 over the best fixed beta; auto over beta = 1."""
        over = [(self.auto, self.best), (self.rule, self.best), (self.one, self.best)]
        return tuple(100 * (a / b - 1) for a, b in [*over, (self.auto, self.one)])  # type: ignore[return-value]


def cells(rows: Sequence[Record], fixed: dict[Unit, dict[str, np.ndarray]]) -> Iterator[Cell]:
    """All cells, with the seeds that have all their trainings."""
    groups: dict[tuple[Place, int, int], list[Record]] = {}
    for row in rows:
        if _unit(row) in fixed:
            groups.setdefault((_unit(row).place, row["shots"], row["steps"]), []).append(row)
    for (place, shots, steps), mine in groups.items():
        at = SHOTS.index(shots), STEPS.index(steps)
        those = [fixed[_unit(row)] for row in mine]
        useless = float(those[0]["useless"])
        capped = lambda errors, most=useless: np.minimum(np.nan_to_num(errors, nan=most), most)
        mean = np.mean([capped(one["errors"][:, *at].astype(float)) for one in those], axis=0)
        betas, own = np.array(GRID), rule(place, shots, steps)
        above = excess(betas, mean, own, np.inf)
        auto = [capped(np.inf if row["error"] is None else row["error"]) for row in mine]
        good = [row for row in mine if row["error"] is not None]
        yield Cell(
            place, shots, steps, len(mine), float(np.mean(auto)), float(mean.min()),
            GRID[int(mean.argmin())], float(mean[0]), float(mean.min() * (1 + above / 100)),
            [row["chosen"] for row in good], useless,
            [row["rungs"] or [] for row in good],
        )  # fmt: skip


def line(name: str, found: Sequence[Cell]) -> str:
    """The means, medians and the worst of some cells."""
    over = np.array([cell.excess for cell in found]).T
    three = [(each.mean(), np.median(each), each.max()) for each in over]
    beyond = int((over[3] > 3).sum())
    figures = "".join("  " + "".join(f"{x:8.1f}" for x in each) for each in three)
    return f"{name:<26}{len(found):5}{figures}{beyond:8}"


def table(options: argparse.Namespace) -> None:
    """Print the regret of the rows in some files."""
    rows = read_rows(options.rows)
    everything = list(cells(rows, fixed_errors(options.fixed / "branches.tar")))
    found = [cell for cell in everything if cell.best < cell.useless]
    if not found:
        raise DataError("at least one cell must have all its trainings; none has: train further")
    seeds = sorted({cell.seeds for cell in found})
    lost = sum(row["error"] is None for row in rows)
    print(
        f"beta = auto: {len(rows)} trainings, {lost} diverged; eta {ETA}; seeds of a cell {seeds};"
        f" iterations {sorted({cell.place.iterations for cell in found})}\n"
        f"{len(everything) - len(found)} cells left out, in which no beta is better than zero\n"
        "Excess of the error in per cent; 'beyond': cells where auto is more than 3 % above 1\n\n"
        f"{'':31}  {'auto over best':>24}  {'rule over best':>24}  {'1 over best':>24}"
        f"  {'auto over 1':>24}\n{'':26}{'cells':>5}"
        + f"  {'mean':>8}{'median':>8}{'worst':>8}" * 4 + f"{'beyond':>8}"
    )  # fmt: skip
    kind = lambda cell: (cell.place.family, cell.place.n, cell.place.noise)
    for name, n, noise in dict.fromkeys(map(kind, found)):
        mine = [cell for cell in found if kind(cell) == (name, n, noise)]
        about = f"{name}, {n} tasks" + (f", noise {noise:g}" if noise else "")
        print(line(about, mine))
    for k in (1, 2, 5):
        if mine := [cell for cell in found if cell.place.k == k]:
            print(line(f"all with K = {k}", mine))
    for steps in STEPS:
        if mine := [cell for cell in found if cell.steps == steps]:
            print(line(f"all with {steps} test steps", mine))
    if waves := [cell for cell in found if cell.place.family != "linear"]:
        print(line("all but linear", waves))
    print(line("all", found))
    ends = Counter(fate(cell.best_beta, rungs) for cell in found for rungs in cell.rungs)
    print("\nthe candidate nearest to the best fixed beta, counted over cells and seeds")
    for name, count in ends.most_common():
        print(f"  {name:<40}{count:5}")
    print("\nthe cells in which auto is furthest above the best fixed beta, and above beta = 1")
    worst = sorted(found, key=lambda cell: -cell.excess[0])[:8]
    worst += [c for c in sorted(found, key=lambda c: -c.excess[3])[:8] if c not in worst]
    for cell in worst:
        p, over = cell.place, cell.excess
        print(
            f"  {p.family} {p.n}, noise {p.noise:g}, K {p.k}, {cell.shots} shots, {cell.steps} "
            f"steps: auto {cell.auto:.4g} (chosen {' '.join(f'{b:.2g}' for b in cell.chosen)}), "
            f"best {cell.best:.4g} (beta {cell.best_beta:.2g}), beta 1 {cell.one:.4g}, rule "
            f"{cell.rule:.4g}: {over[0]:+.1f} % over best, {over[3]:+.1f} % over 1"
        )


def fate(best: float, rungs: Sequence[Record]) -> str:
    """What became of the candidate that is nearest to the best fixed beta."""
    if not rungs:
        return "the rule, without a choice"
    distance = lambda beta: abs(np.log(beta / best))
    near = min(rungs[0]["beta"], key=distance)
    if distance(near) > np.log(1.5):
        return "no candidate within a factor of 1.5"
    gone = next((rung for rung in rungs if near not in rung["kept"]), None)
    return "chosen" if gone is None else f"dropped at step {gone['step']}"


def cost(options: argparse.Namespace) -> None:
    """Time auto against one plain training: with compilation, then in turns without."""
    jax.config.update("jax_enable_compilation_cache", False)
    machine()
    unit = Unit(Place("sine", 25, 1, 0.0, options.iterations), 0)
    sides = {"plain": 0.3, "auto": "auto"}
    call = lambda beta: timed(lambda: trained(unit, beta, 10, 10))
    trained(Unit(unit.place._replace(iterations=100), 0), 0.3, 10, 10)  # starts the backend
    cold = {}
    for name, beta in sides.items():
        jax.clear_caches()
        cold[name] = call(beta)
    turns: dict[str, list[Timed]] = {name: [] for name in sides}
    for turn in range(options.turns + 1):
        for name, beta in sides.items():
            turns[name] += [call(beta)][:turn]  # the first turn compiles
    print(f"sine, K = 1, 10 shots, 10 test steps, {options.iterations} iterations; seconds")
    for name in sides:
        wall, cpu = ([getattr(one, clock) for one in turns[name]] for clock in ("wall", "cpu"))
        print(
            f"{name:6} first {cold[name].wall:7.2f} wall {cold[name].cpu:7.2f} CPU; compiled "
            f"{statistics.median(wall):7.2f} wall {statistics.median(cpu):7.2f} CPU, median of "
            f"{options.turns}"
        )
    for clock in ("wall", "cpu"):
        first = getattr(cold["auto"], clock) / getattr(cold["plain"], clock)
        each = {n: statistics.median(getattr(one, clock) for one in turns[n]) for n in sides}
        print(f"ratio auto over plain, {clock}: {first:.2f} with compilation, "
              f"{each['auto'] / each['plain']:.2f} compiled")  # fmt: skip


def main() -> None:
    """Parse the words."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("train")
    one.set_defaults(run=train)
    one.add_argument("out", type=Path)
    one.add_argument("--processes", type=whole, default=2)
    one.add_argument("--minutes", type=positive, default=1e6)
    one.add_argument("--seeds", type=whole, default=3)
    one.add_argument("--iterations", type=whole, default=FULL.iterations)
    two = commands.add_parser("table")
    two.set_defaults(run=table)
    two.add_argument("rows", type=Path)
    two.add_argument("fixed", type=Path)
    three = commands.add_parser("cost")
    three.set_defaults(run=cost)
    three.add_argument("--iterations", type=whole, default=FULL.iterations)
    three.add_argument("--turns", type=whole, default=3)
    options = parser.parse_args()
    try:
        options.run(options)
    except MomlError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
