"""What becomes of trainings whose beta changes in the middle, and what held-out tasks say of them.

    python benchmarks/auto_branches.py record OUT [--processes 11] [--minutes 9] [--seeds 3]
    python benchmarks/auto_branches.py table OUT

For each place of auto_cells.py and seed: `moml` with twelve fixed values of beta; and, from the
states of beta = 1 and beta = 0.354 in the middle of the training, others with half as many values.
Kept are the test errors at the end and, on the way, means and covariances over held-out tasks of
the members' scores: by the tasks that auto has, and by 1,000 others. OUT/branches.tar grows by
a file a place; the same words go on from there. `table` replays choices among these trainings, made
at 85 % of the steps. Errors are means over the seeds that a place has; of all fixed beta the one
with the least mean is the best. Where auto holds out 40 of 400 tasks, every second fixed beta was
trained on all 400, the others on 360. An error above that of always answering zero counts as that:
with few shots and many steps one task in a thousand can diverge, and would be the whole mean.
"""

import argparse
import io
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from auto_cells import GRID, STEPS, Unit, held_out, kept_tasks, rule, units, validation
from auto_curves import population, scorer
from moml.paper.shots.families import family, learner
from moml.paper.shots.study import FULL, SHOTS, Place, tests
from moml.training.choice.population import LIKELY, Population, take, values
from moml.training.loop import Members
from moml.types import Meta
from pool import positive, run_all, whole

MIDDLE, STOPS = 0.5, (0.6, 0.7, 0.85)  # shares of the training
LAST = STOPS[-1]
TRUNKS = (0, 3)  # places in the grid of those that others continue from
BRANCHES = GRID[2::2]  # their beta
MANY, OTHERS = 1000, 4243  # tasks to score on besides, and their seed
Arrays = dict[str, np.ndarray]


def summary(scores: np.ndarray, tasks: int) -> Arrays:
    """Means and covariances over tasks [shots, steps, ...] of scores [members, shots, steps, .]."""
    members, shots, steps, _ = scores.shape
    mean = np.zeros((shots, steps, members), np.float32)
    raw, covariance = mean.copy(), np.zeros((shots, steps, members, members), np.float32)
    for at in np.ndindex(shots, steps):
        each = scores[:, *at].astype(float).reshape(members, -1, tasks).mean(axis=1)
        by = values(each, higher=False)
        with np.errstate(all="ignore"):
            raw[at], mean[at], covariance[at] = each.mean(axis=1), by.mean(axis=1), np.cov(by)
    return {"raw": raw, "mean": mean, "cov": covariance}


def record(unit: Unit) -> Arrays:
    """All trainings of a unit."""
    place, model = unit.place, learner(unit.place.family)
    tasks, held = held_out(place)
    many = family(place.family, jax.random.key(OTHERS), MANY, place.noise)
    scorers = {"own": (scorer(held, model), held.n or 1), "many": (scorer(many, model), MANY)}
    errors_of, useless = tests(place, STEPS)
    out: Arrays = {"useless": np.array(useless)}

    def advanced(members: Population, betas: list[float], carry: Members, begin: float, to: float):
        advance, step = members.advance(betas), round(begin * place.iterations)
        while step < (stop := round(to * place.iterations)):
            size = min(1000, stop - step)
            carry, _ = advance(carry, step, size)
            step += size
        return carry

    def errors(carry: Members) -> np.ndarray:
        return np.asarray(errors_of(jax.tree.map(jnp.asarray, carry.state.meta)), np.float32)

    def keep(name: str, means: list[Meta], sets: tuple[str, ...]) -> None:
        for which in sets:
            score, count = scorers[which]
            found = summary(np.stack([score(mean) for mean in means]), count)
            out.update({f"{name}-{which}-{key}": value for key, value in found.items()})

    each = lambda carry, count: [take(carry.state.mean, i) for i in range(count)]
    members = population(unit, tasks, held)
    middle = advanced(members, GRID, members.first(GRID), 0.0, MIDDLE)
    carry, one, begin = middle, {}, MIDDLE
    for stop in STOPS:
        carry, begin = advanced(members, GRID, carry, begin, stop), stop
        one[stop] = take(carry.state.mean, 0)
    keep("grid", each(carry, len(GRID)), ("own", "many"))
    out["errors"] = errors(advanced(members, GRID, carry, LAST, 1.0))
    for trunk in TRUNKS:
        carry, begin = take(middle, np.full(len(BRANCHES), trunk)), MIDDLE
        for stop in STOPS:
            carry, begin = advanced(members, BRANCHES, carry, begin, stop), stop
            sets = ("own", "many") if stop == LAST else ("own",)
            keep(f"from{trunk}-{stop:g}", [one[stop], *each(carry, len(BRANCHES))], sets)
        out[f"from{trunk}-errors"] = errors(advanced(members, BRANCHES, carry, LAST, 1.0))
    if validation(place) is None:  # fixed values of beta have all tasks to train on
        members, some = population(unit, kept_tasks(*place[:2], place.noise), held), GRID[::2]
        carry = advanced(members, some, members.first(some), 0.0, 1.0)
        out["errors_all"] = errors(carry)
    return out


def name_of(unit: Unit) -> str:
    """The file of a unit."""
    return f"{'_'.join(map(str, unit.place))}_{unit.seed}.npz"


def record_all(options: argparse.Namespace) -> None:
    """Go through the units that are not in the files yet."""
    options.out.mkdir(parents=True, exist_ok=True)
    known: set[str] = set()
    for path in options.out.glob("branches.tar"):
        with tarfile.open(path) as tar:
            known |= set(tar.getnames())
    every = units(options.iterations, options.seeds)
    todo = [unit for unit in every if name_of(unit) not in known]

    def keep(unit: Unit, found: Arrays) -> None:
        data = io.BytesIO()
        np.savez_compressed(data, **found)
        about = tarfile.TarInfo(name_of(unit))
        about.size = len(data.getvalue())
        with tarfile.open(options.out / "branches.tar", "a") as tar:
            tar.addfile(about, io.BytesIO(data.getvalue()))

    run_all(record, todo, keep, processes=options.processes, minutes=options.minutes)


class Cell(NamedTuple):
    """What one seed of a place has, at one number of shots and steps."""

    found: Arrays
    place: Place
    at: tuple[int, int]

    @property
    def rule(self) -> float:
        """The beta of the matching rule."""
        return rule(self.place, SHOTS[self.at[0]], STEPS[self.at[1]])

    @property
    def fixed(self) -> np.ndarray:
        """The test error of each beta of the grid."""
        errors = self.found["errors"][:, *self.at].astype(float)
        if "errors_all" in self.found:
            errors[::2] = self.found["errors_all"][:, *self.at]
        return self.capped(errors)

    def capped(self, errors: np.ndarray) -> np.ndarray:
        """The errors, at most that of always answering zero."""
        useless = float(self.found["useless"])
        return np.minimum(np.nan_to_num(errors, nan=useless), useless)

    def errors(self, name: str) -> np.ndarray:
        """The test errors of those that are compared: of the grid, or beta = 1 and branches."""
        one = self.capped(self.found["errors"][:, *self.at].astype(float))
        if name == "grid":
            return one
        return np.append(one[0], self.capped(self.found[f"{name}-errors"][:, *self.at]))

    def chosen(self, name: str, which: str, among: list[int], sure: float = LIKELY) -> float:
        """The error of the choice; beta = 1 unless beaten by `sure` standard errors."""
        scores = f"{name}-{which}" if name == "grid" else f"{name}-{LAST:g}-{which}"
        tasks = MANY if which == "many" else held_out(self.place)[1].n or 1
        mean = np.nan_to_num(self.found[f"{scores}-mean"][self.at].astype(float), nan=np.inf)
        covariance = self.found[f"{scores}-cov"][self.at].astype(float)
        best = min(among, key=lambda i: mean[i])
        variance = covariance[0, 0] + covariance[best, best] - 2 * covariance[0, best]
        if 0 in among and mean[0] - mean[best] <= sure * np.sqrt(max(0.0, variance) / tasks):
            best = 0
        return float(self.errors(name)[best])

    def near(self, *factors: float) -> list[int]:
        """Places in the grid of 1 and of the rule's beta times these factors."""
        wanted = [min(1.0, self.rule * factor) for factor in factors]
        return sorted({0, *(int(np.abs(np.log(np.array(GRID) / b)).argmin()) for b in wanted)})


GRIDS, SIX = list(range(len(GRID))), list(range(len(BRANCHES) + 1))
CHOICES: dict[str, Callable[[Cell], float]] = {
    "rule": lambda c: float(np.interp(-np.log(c.rule), -np.log(GRID), c.fixed)),
    "beta = 1": lambda c: float(c.fixed[0]),
    "12 beta": lambda c: c.chosen("grid", "own", GRIDS),
    "12 beta, 1 not preferred": lambda c: c.chosen("grid", "own", GRIDS, 0.0),
    "12 beta, 1,000 tasks": lambda c: c.chosen("grid", "many", GRIDS),
    "1, rule": lambda c: c.chosen("grid", "own", c.near(1.0)),
    "1, rule, rule / 2": lambda c: c.chosen("grid", "own", c.near(1.0, 0.5)),
    "1, rule, rule / 4": lambda c: c.chosen("grid", "own", c.near(1.0, 0.25)),
    "1, rule * 1.4, rule / 2": lambda c: c.chosen("grid", "own", c.near(1.4, 0.5)),
    "1, rule * 1.4, rule / 4": lambda c: c.chosen("grid", "own", c.near(1.4, 0.25)),
    "1, rule * 2, rule, rule / 2": lambda c: c.chosen("grid", "own", c.near(2.0, 1.0, 0.5)),
    "1, rule, rule / 2, rule / 4": lambda c: c.chosen("grid", "own", c.near(1.0, 0.5, 0.25)),
    "from 1 in the middle": lambda c: c.chosen("from0", "own", SIX),
    "from 1, best on test tasks": lambda c: float(np.nanmin(c.errors("from0"))),
    "from 0.354 in the middle": lambda c: c.chosen("from3", "own", SIX),
    "from 0.354, 1,000 tasks": lambda c: c.chosen("from3", "many", SIX),
    "from 0.354, best on test": lambda c: float(np.nanmin(c.errors("from3"))),
}


def recorded(path: Path) -> dict[Place, dict[int, Arrays]]:
    """What a file has, the seeds of each place; nothing where there is no file."""
    found: dict[Place, dict[int, Arrays]] = {}
    if not path.exists():
        return found
    with tarfile.open(path) as tar:
        for name in tar.getnames():
            kind, n, k, noise, iterations, seed = name[:-4].split("_")
            place = Place(kind, int(n), int(k), float(noise), int(iterations))
            data = tar.extractfile(name)
            with np.load(io.BytesIO(data.read() if data else b"")) as arrays:
                found.setdefault(place, {})[int(seed)] = dict(arrays)
    return found


def fixed_errors(path: Path) -> dict[Unit, Arrays]:
    """Of each place and seed the errors of fixed beta [grid, shots, steps]."""
    out: dict[Unit, Arrays] = {}
    for place, seeds in recorded(path).items():
        for seed, found in seeds.items():
            errors = found["errors"].copy()
            if "errors_all" in found:
                errors[::2] = found["errors_all"]
            out[Unit(place, seed)] = {"errors": errors, "useless": found["useless"]}
    return out


def excesses(found: dict[Place, dict[int, Arrays]]) -> Iterator[tuple[Place, np.ndarray]]:
    """Of each cell in which a fixed beta is better than zero, and each choice: per cent over the
    best fixed beta, and over beta = 1."""
    for place, seeds in found.items():
        for at in np.ndindex(len(SHOTS), len(STEPS)):
            mine = [Cell(one, place, at) for one in seeds.values()]
            fixed = np.nan_to_num(np.mean([cell.fixed for cell in mine], axis=0), nan=np.inf)
            if fixed.min() >= mine[0].found["useless"]:
                continue
            with np.errstate(over="ignore"):
                got = [np.mean([by(cell) for cell in mine]) for by in CHOICES.values()]
            over = [[100 * (one / fixed.min() - 1), 100 * (one / fixed[0] - 1)] for one in got]
            yield place, np.array(over)


def table(options: argparse.Namespace) -> None:
    """Print the excess of each choice."""
    found = recorded(options.out / "branches.tar")
    cells = list(excesses(found))
    counts = sorted(len(seeds) for seeds in found.values())
    print(
        f"{len(found)} places, {counts[0]} to {counts[-1]} seeds of a place, {sum(counts)} in all"
    )
    parts: dict[str, Callable[[Place], bool]] = {
        "all but linear regression": lambda p: p.family != "linear",
        "few tasks, two seeds or more, not linear":
            lambda p: p.family != "linear" and p.n < 200 and len(found[p]) > 1,
        "the same, its first seed": lambda p: False,
        "400 tasks": lambda p: p.n >= 200,
        "linear regression": lambda p: p.family == "linear",
    }  # fmt: skip
    first = {
        p: dict([*seeds.items()][:1]) for p, seeds in found.items() if len(seeds) > 1 and p.n < 200
    }
    for name, wanted in parts.items():
        some = excesses({p: s for p, s in first.items() if p.family != "linear"})
        mine = np.array([o for p, o in (some if "first" in name else cells)
                         if "first" in name or wanted(p)])  # fmt: skip
        if not len(mine):
            continue
        print(
            f"\n{name}, {len(mine)} cells\n{'':30}{'over the best fixed, %':>34}{'over 1, %':>24}"
        )
        columns = ("mean", "but worst", "median", "worst", "worst", "above 3")
        print(f"{'':30}" + "".join(f"{column:>10}" for column in columns))
        for i, choice in enumerate(CHOICES):
            best, one = mine[:, i, 0], mine[:, i, 1]
            least = np.sort(best)[:-1].mean()
            line = (best.mean(), least, np.median(best), best.max(), one.max())
            print(f"{choice:30}" + "".join(f"{x:10.4g}" for x in line) + f"{(one > 3).sum():10}")


def main() -> None:
    """Parse the words."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("record")
    one.set_defaults(run=record_all)
    one.add_argument("out", type=Path)
    one.add_argument("--processes", type=whole, default=2)
    one.add_argument("--minutes", type=positive, default=1e6)
    one.add_argument("--seeds", type=whole, default=3)
    one.add_argument("--iterations", type=whole, default=FULL.iterations)
    two = commands.add_parser("table")
    two.set_defaults(run=table)
    two.add_argument("out", type=Path)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
