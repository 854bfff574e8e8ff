"""What becomes of trainings whose beta changes in the middle, and what held-out tasks say of them.

    python benchmarks/auto_branches.py record OUT [--processes 11] [--minutes 9] [--seeds 3]

For each place of auto_cells.py and seed: `moml` with twelve fixed values of beta; and, from the
states of beta = 1 and beta = 0.354 in the middle of the training, others with half as many values.
Kept are the test errors at the end and, on the way, means and covariances over held-out tasks of
the members' scores: by the tasks that auto has, and by 1,000 others. OUT/branches.tar grows by
a file a place; the same words go on from there.
"""

import argparse
import io
import tarfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from auto_cells import GRID, STEPS, Unit, held_out, kept_tasks, units, validation
from auto_curves import population, scorer
from moml.paper.shots.families import family, learner
from moml.paper.shots.study import FULL, tests
from moml.training.choice.population import Population, take, values
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
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
