"""How a choice of beta by held-out scores would end, replayed on recorded trainings.

    python benchmarks/auto_curves.py record OUT [--processes 11] [--minutes 8] [--seeds 3]
    python benchmarks/auto_curves.py replay OUT ROWS.json
    python benchmarks/auto_regret.py table ROWS.json OUT

`record` trains `moml` with each beta of a grid, on all families of `moml reproduce shots`. It keeps
the scores of held-out tasks on the way and the test errors at the end, for all shots and steps.
OUT/curves-SEED.tar grows by a file a place; the same words go on from there. The winner of
a choice among trainings from the first step on is one of them, so `replay` finds it from these
scores, with six candidates moved to the grid, and writes the rows of `auto_regret.py
train`. With --forks it also records what becomes of trainings that branch off in the middle.
"""

import argparse
import io
import json
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from auto_cells import (
    BATCH,
    ETA,
    GIVEN,
    GRID,
    STEPS,
    Unit,
    held_out,
    kept_schedule,
    kept_tasks,
    rule,
    units,
    validation,
)
from moml.algorithms.parts.adapt import gradient_steps
from moml.paper.shots.families import Learner, learner
from moml.paper.shots.study import FULL, SHOTS, Place, tests
from moml.training.choice.population import Population, rung_row, survivors, take
from moml.training.compose import compose, init_key, run_key
from moml.training.loop import Members
from moml.types import Batch, Hyper, Meta, Record, Tasks
from pool import positive, run_all, whole

STOPS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.85)  # shares of the training
FORKS, FORKED = (1.0, 0.25), 0.5  # beta before, and the share at which others continue from it
FACTORS = (3.0, 1.75, 1.0, 0.6, 0.35)  # of the rule: what `replay` compares, and 1
LADDER = ((6, 0.05), (3, 0.2), (2, 0.85))  # that `replay` compares on: members, and up to where
QUERIES = 100
Scored = Callable[[Meta], np.ndarray]  # [shots, steps, scores]


def scorer(tasks: Tasks, model: Learner) -> Scored:
    """The error on each held-out task, several draws of few tasks; of all shots and steps."""
    n, most = tasks.n or 0, max(SHOTS)
    ids = jnp.tile(jnp.arange(n, dtype=jnp.int32), -(-GIVEN // n))
    samples = tasks.fetch(ids, tasks.draw(jax.random.key(11), ids, most + QUERIES))
    once, hyper = gradient_steps(model.loss), Hyper(eta=1.0, alpha=model.alpha)
    step = lambda meta, few: once.merge(meta, once.apply(meta, few, hyper))

    def one(meta: Meta, few: Batch, many: Batch) -> jax.Array:
        first = step(meta, few)
        last = jax.lax.fori_loop(1, STEPS[-1], lambda i, meta: step(meta, few), first)
        return jnp.stack([model.loss(first, many), model.loss(last, many)])

    def every(meta: Meta, samples: Batch) -> jax.Array:
        part = lambda at: Batch(samples.x[:, at], samples.y[:, at])
        each = [
            jax.vmap(one, (None, 0, 0), 1)(meta, part(slice(few)), part(slice(most, None)))
            for few in SHOTS
        ]
        return jnp.stack(each)

    program = jax.jit(every)
    return lambda meta: np.asarray(program(meta, samples))


def population(unit: Unit, tasks: Tasks, held: Tasks) -> Population:
    """The trainings of a unit, without their scores."""
    place, model = unit.place, learner(unit.place.family)
    options = {
        "beta": "auto", "eta": ETA, "alpha": model.alpha, "k": place.k, "tasks_per_step": BATCH,
        "shots": 10, "test_steps": 1,
    }  # fmt: skip
    chosen = compose("moml", model.loss, tasks, options, place.iterations)
    return Population(
        chosen, model.init(init_key(unit.seed)), tasks, run_key(unit.seed),
        kept_schedule(place.iterations * 3 // 4), lambda *_: jnp.zeros(1), held,
        steps=place.iterations, length=1000, turns=True,
    )  # fmt: skip


def record(job: tuple[Unit, bool]) -> dict[str, Any]:
    """Train the grid of a unit, or the forks of it, with scores on the way."""
    unit, forked = job
    steps, model = unit.place.iterations, learner(unit.place.family)
    tasks, held = held_out(unit.place)
    errors_of, useless = tests(unit.place, STEPS)
    score = scorer(held, model)
    at = lambda share: round(share * steps)
    out: dict[str, Any] = {"useless": useless}

    def errors(carry: Members) -> np.ndarray:
        return np.asarray(errors_of(jax.tree.map(jnp.asarray, carry.state.meta)), np.float32)

    def trained(
        members: Population, betas: list[float], carry: Members, begin: int, stops: list[int]
    ) -> tuple[Members, np.ndarray]:
        """Up to the last stop, with scores at all others."""
        advance, found = members.advance(betas), []
        for stop in stops:
            while begin < stop:
                size = min(1000, stop - begin)
                carry, _ = advance(carry, begin, size)
                begin += size
            if stop is not stops[-1]:
                means = (take(carry.state.mean, i) for i in range(len(betas)))
                found.append(np.stack([score(mean) for mean in means]))
        return carry, np.array(found).astype(np.float16)

    if not forked:
        members = population(unit, tasks, held)
        stops = [*map(at, STOPS), steps]
        carry, out["scores"] = trained(members, GRID, members.first(GRID), 0, stops)
        out["errors"] = errors(carry)
        if validation(unit.place) is None:  # others have all tasks to train on
            whole = kept_tasks(unit.place.family, unit.place.n, unit.place.noise)
            members = population(unit, whole, held)
            carry, _ = trained(members, GRID, members.first(GRID), 0, [steps])
            out["errors_all"] = errors(carry)
        return out
    for beta in FORKS:
        members = population(unit, tasks, held)
        trunk, _ = trained(members, [beta], members.first([beta]), 0, [at(FORKED)])
        later = sorted({at(FORKED + 0.05), at(FORKED + 0.1), at(0.7), at(0.85), steps})
        carry = take(trunk, np.zeros(len(GRID), int))
        carry, found = trained(members, GRID, carry, at(FORKED), later)
        out |= {f"scores-{beta:g}": found, f"errors-{beta:g}": errors(carry)}
    return out


def recorded(folder: Path) -> dict[Unit, dict[str, np.ndarray]]:
    """What the files of a folder have, without forks."""
    found = {}
    for path in sorted(folder.glob("curves-*.tar")):
        with tarfile.open(path) as tar:
            for name in tar.getnames():
                family, n, k, noise, iterations, seed = name[:-4].split("_")[1:]
                place = Place(family, int(n), int(k), float(noise), int(iterations))
                data = tar.extractfile(name)
                with np.load(io.BytesIO(data.read() if data else b"")) as arrays:
                    found[Unit(place, int(seed))] = dict(arrays)
    return found


def name_of(job: tuple[Unit, bool]) -> str:
    """The file of a unit."""
    (place, seed), forked = job
    return f"{'fork' if forked else 'all'}_{'_'.join(map(str, place))}_{seed}.npz"


def record_all(options: argparse.Namespace) -> None:
    """Go through the units that are not in the files yet."""
    options.out.mkdir(parents=True, exist_ok=True)
    known: set[str] = set()
    for path in options.out.glob("*.tar"):
        with tarfile.open(path) as tar:
            known |= set(tar.getnames())
    every = units(options.iterations, options.seeds)
    first, others = ([(u, False) for u in every if (u.seed == 0) == is_] for is_ in (True, False))
    quiet = [u for u in every if u.place.n < 200 and not u.place.noise and u.place.k in (1, 5)]
    forks = [(unit, True) for unit in quiet if unit.seed == 0 and unit.place.family != "linear"]
    jobs = first + (forks if options.forks else []) + others
    todo = [job for job in jobs if name_of(job) not in known]

    def keep(job: tuple[Unit, bool], found: dict[str, Any]) -> None:
        data = io.BytesIO()
        np.savez_compressed(data, **found)
        about = tarfile.TarInfo(name_of(job))
        about.size = len(data.getvalue())
        file = "forks.tar" if job[1] else f"curves-{job[0].seed}.tar"
        with tarfile.open(options.out / file, "a") as tar:
            tar.addfile(about, io.BytesIO(data.getvalue()))

    run_all(record, todo, keep, processes=options.processes, minutes=options.minutes)


def replayed(unit: Unit, found: dict[str, np.ndarray], every: bool) -> Iterator[Record]:
    """The rows of a choice on one unit; `every`: among the whole grid, all trained to the end."""
    tasks = held_out(unit.place)[1].n or 1
    for s, t in np.ndindex(len(SHOTS), len(STEPS)):
        own = rule(unit.place, SHOTS[s], STEPS[t])
        wanted = GRID if every else [1.0, *(min(1.0, own * factor) for factor in FACTORS)]
        alive = sorted({int(np.abs(np.log(np.array(GRID) / beta)).argmin()) for beta in wanted})
        ladder = {min(most, len(alive)): share for most, share in LADDER}
        ladder = {len(GRID): LADDER[-1][1]} if every else ladder
        rungs = []
        for left, share in zip([*ladder, 1][1:], ladder.values(), strict=True):
            scores = found["scores"][STOPS.index(share), alive, s, t].astype(float)
            scores = scores.reshape(len(alive), -1, tasks).mean(axis=1)
            kept = survivors(scores, left, higher=False, one=alive[0] == 0)
            step = round(share * unit.place.iterations)
            rungs.append(rung_row(step, [GRID[i] for i in alive], scores, kept))
            alive = [alive[i] for i in kept]
        row = unit.place._asdict() | {"seed": unit.seed, "shots": SHOTS[s], "steps": STEPS[t]}
        error = float(found["errors"][alive[0], s, t])
        yield row | {"error": error, "chosen": GRID[alive[0]], "rungs": rungs}


def replay(options: argparse.Namespace) -> None:
    """Replay all units of a folder."""
    found = recorded(options.out)
    rows = [row for unit, arrays in found.items() for row in replayed(unit, arrays, options.all)]
    options.rows.write_text(json.dumps(rows))
    print(f"{len(rows)} cells and seeds of {len(found)} units")


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
    one.add_argument("--forks", action="store_true")
    two = commands.add_parser("replay")
    two.set_defaults(run=replay)
    two.add_argument("out", type=Path)
    two.add_argument("rows", type=Path)
    two.add_argument("--all", action="store_true", help="all beta of the grid, to the last stop")
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
