"""The regret and the cost of beta = auto, by whole trainings with `moml.fit`.

    python benchmarks/auto_regret.py train --out DIR [--part 0 --of 16] [--minutes 12] [--seeds 3]
    python benchmarks/auto_regret.py table DIR/*.json
    python benchmarks/auto_regret.py cost [--iterations 40000] [--turns 3]

`train` goes through the families of `moml reproduce shots`: 25 waves, 50 bumps and 50 ramps, with
and without label noise, 400 of each, and linear regression; K = 1, 2, 5. For each of them and each
seed it trains `moml` with every fixed beta of a grid, with the rule's beta, and with beta = auto
for each number of shots and steps; all at one eta, tested on the same 500 unseen tasks (20,000 of
linear regression). With 25 and 50 tasks auto is given 300 others to choose on; of 400 it holds out
its own 40, and the fixed beta are trained on all 400. Rows are on disk after every training; the
same words go on from there. Parts are processes: each takes every n-th unit, and one core is enough
for it. `cost` times auto against one plain training, in turns, in one process.
"""

import argparse
import json
import os
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("NPROC", "1")

import jax
import jax.numpy as jnp
import numpy as np

from common import machine
from moml.algorithms.parts.schedule import decay_at
from moml.algorithms.single.matching import match_beta
from moml.errors import Diverged
from moml.paper.shots.families import family, learner, training_tasks
from moml.paper.shots.study import FULL, SHOTS, Place, tests
from moml.training.compose import init_key
from moml.training.fit import fit
from moml.training.learner import Learner
from moml.types import Record, Tasks

STEPS = (1, 10)
VALIDATION = 4242  # seed of the tasks that auto is given
GIVEN, BATCH = 200, 3  # tasks to choose on; tasks of a step
GRID = [float(f"{2 ** (-i / 2):.3g}") for i in range(12)]  # from 1 down to 0.0221, all fixed beta
Value = float | str


class Unit(NamedTuple):
    """A place and a seed: what one process trains in one go."""

    place: Place
    seed: int


def units(iterations: int, seeds: int) -> list[Unit]:
    """All of them; every place has its first seed before any has its second."""
    curves = (("sine", 25), ("bump", 50), ("ramp", 50))
    quiet = [Place(name, n, k, 0.0, iterations) for name, n in curves for k in (1, 2, 5)]
    many = [place._replace(n=400) for place in quiet]
    noisy = [place._replace(noise=1.0) for place in quiet]
    linear = [Place("linear", 50, k, 0.0, iterations) for k in (1, 2)]
    places = quiet + many + noisy + linear
    return [Unit(place, seed) for seed in range(seeds) for place in places]


def rule(place: Place, shots: int, steps: int) -> float:
    """The beta that `moml` takes by default."""
    visits = place.iterations * BATCH / place.n
    return match_beta(place.k, shots, steps=steps, visits=visits, both_ways=True)


@lru_cache
def validation(place: Place) -> Tasks | None:
    """The tasks that auto is given; None where it holds out its own."""
    if place.n >= 200:
        return None
    return family(place.family, jax.random.key(VALIDATION), GIVEN, place.noise)


kept_schedule = lru_cache(decay_at)  # an equal one would be compiled again
kept_tasks = lru_cache(training_tasks)


def trained(unit: Unit, beta: Value, shots: int, steps: int, eta: float) -> Learner:
    """One call of `fit`, as a user would make it."""
    place, model = unit.place, learner(unit.place.family)
    return fit(
        "moml", model.loss, model.init(init_key(unit.seed)),
        kept_tasks(place.family, place.n, place.noise), seed=unit.seed, beta=beta, eta=eta,
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


def measure(
    unit: Unit, eta: float, shots: Sequence[int], known: Sequence[Record]
) -> Iterator[Record]:
    """A row a training that is not known yet, with its test errors."""
    place = unit.place
    score, useless = tests(place, STEPS)
    cells = [(few, steps) for few in shots for steps in STEPS]
    fixed = sorted({*FULL.betas, *(rule(place, *cell) for cell in cells)}, reverse=True)
    todo: list[tuple[Value, int, int]] = [(beta, shots[-1], 1) for beta in fixed]
    todo += [("auto", *cell) for cell in cells]
    seen = {(row["beta"], row["shots"], row["steps"]) for row in known}
    about = place._asdict() | {"seed": unit.seed, "eta": eta, "useless": useless}
    for beta, few, steps in todo:
        auto = beta == "auto"
        key = (beta, few, steps) if auto else (beta, None, None)  # a fixed beta serves all cells
        if key in seen:
            continue
        done = timed(lambda beta=beta, few=few, steps=steps: trained(unit, beta, few, steps, eta))
        row = about | dict(zip(("beta", "shots", "steps"), key, strict=True))
        row |= {"wall": round(done.wall, 3), "cpu": round(done.cpu, 3), "errors": None}
        if done.learner is not None:
            metas = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], done.learner.meta)
            row["errors"] = np.asarray(score(metas), float)[0].tolist()  # [shots, steps]
            row["chosen"] = float(done.learner.hyper.beta)
            choice = done.learner.choice
            row["rungs"] = None if choice is None else choice.rungs
        yield row


def train(options: argparse.Namespace) -> None:
    """Go through the units of a part."""
    end = time.monotonic() + 60 * options.minutes
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"auto-{options.part:02d}-of-{options.of:02d}.json"
    rows: list[Record] = json.loads(path.read_text()) if path.exists() else []
    machine()
    mine = units(options.iterations, options.seeds)[options.part :: options.of]
    mine = [unit for unit in mine if not options.family or unit.place.family in options.family]
    for unit in mine:
        about = unit.place._asdict() | {"seed": unit.seed, "eta": options.eta}
        known = [row for row in rows if about.items() <= row.items()]
        print(f"{time.strftime('%H:%M:%S')} {unit.place}, seed {unit.seed}", flush=True)
        for row in measure(unit, options.eta, options.shots, known):
            rows.append(row)
            part = path.with_suffix(".tmp")
            part.write_text(json.dumps(rows))
            part.replace(path)
            if time.monotonic() > end:
                print("out of time; the same words go on from here", flush=True)
                return
    print("done", flush=True)


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


def cells(rows: Sequence[Record]) -> Iterator[Cell]:
    """All cells with the seeds that have all their trainings."""
    groups: dict[Place, list[Record]] = {}
    for row in rows:
        groups.setdefault(Place(*(row[name] for name in Place._fields)), []).append(row)
    for place, mine in groups.items():
        error = lambda row, at: np.inf if row["errors"] is None else row["errors"][at[0]][at[1]]
        for at in np.ndindex(len(SHOTS), len(STEPS)):
            shots, steps = SHOTS[at[0]], STEPS[at[1]]
            own = rule(place, shots, steps)
            auto = {
                row["seed"]: row for row in mine
                if (row["beta"], row["shots"], row["steps"]) == ("auto", shots, steps)
            }  # fmt: skip
            wanted = {*FULL.betas, own}
            fixed: dict[int, dict[float, float]] = {}
            for row in mine:
                if row["beta"] != "auto":
                    fixed.setdefault(row["seed"], {})[row["beta"]] = error(row, at)
            seeds = [seed for seed in sorted(auto) if wanted <= fixed.get(seed, {}).keys()]
            if not seeds:
                continue
            mean = {b: float(np.mean([fixed[s][b] for s in seeds])) for b in wanted}
            best = min(mean, key=lambda b: mean[b])
            yield Cell(
                place, shots, steps, len(seeds),
                float(np.mean([error(auto[s], at) for s in seeds])), mean[best], best, mean[1.0],
                mean[own], [auto[s]["chosen"] for s in seeds if auto[s]["errors"]],
                mine[0]["useless"], [auto[s]["rungs"] or [] for s in seeds if auto[s]["errors"]],
            )  # fmt: skip


def line(name: str, found: Sequence[Cell]) -> str:
    """The means and the worst of some cells."""
    over = np.array([cell.excess for cell in found])
    mean, worst = over.mean(axis=0), over.max(axis=0)
    beyond = int((over[:, 3] > 3).sum())
    return (
        f"{name:<26}{len(found):5}  {mean[0]:8.1f}{worst[0]:8.1f}  {mean[1]:8.1f}{worst[1]:8.1f}"
        f"  {mean[2]:8.1f}{worst[2]:8.1f}  {mean[3]:8.1f}{worst[3]:8.1f}{beyond:8}"
    )


def table(options: argparse.Namespace) -> None:
    """Print the regret of the rows in some files."""
    rows = [row for path in options.rows for row in json.loads(path.read_text())]
    everything = list(cells(rows))
    found = [cell for cell in everything if cell.best <= cell.useless]
    seeds = sorted({cell.seeds for cell in found})
    eta, lost = sorted({row["eta"] for row in rows}), sum(row["errors"] is None for row in rows)
    print(
        f"beta = auto: {len(rows)} trainings, {lost} diverged; eta {eta}; seeds of a cell {seeds};"
        f" iterations {sorted({cell.place.iterations for cell in found})}\n"
        f"{len(everything) - len(found)} cells left out, in which no beta is better than zero\n"
        "Excess of the error in per cent; 'beyond': cells where auto is more than 3 % above 1\n\n"
        f"{'':31}  {'auto over best':>16}  {'rule over best':>16}  {'1 over best':>16}"
        f"  {'auto over 1':>16}\n{'':26}{'cells':>5}" + f"  {'mean':>8}{'worst':>8}" * 4
        + f"{'beyond':>8}"
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
    call = lambda beta: timed(lambda: trained(unit, beta, 10, 10, 0.005))
    trained(Unit(unit.place._replace(iterations=100), 0), 0.3, 10, 10, 0.005)  # starts the backend
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
    one.add_argument("--out", type=Path, required=True)
    one.add_argument("--part", type=int, default=0)
    one.add_argument("--of", type=int, default=1)
    one.add_argument("--minutes", type=float, default=1e6)
    one.add_argument("--seeds", type=int, default=3)
    one.add_argument("--iterations", type=int, default=FULL.iterations)
    one.add_argument("--eta", type=float, default=0.005)
    one.add_argument("--shots", type=int, nargs="+", default=SHOTS)
    one.add_argument("--family", nargs="+")
    two = commands.add_parser("table")
    two.set_defaults(run=table)
    two.add_argument("rows", type=Path, nargs="+")
    three = commands.add_parser("cost")
    three.set_defaults(run=cost)
    three.add_argument("--iterations", type=int, default=FULL.iterations)
    three.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
