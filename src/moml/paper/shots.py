"""When memory pays: the error over beta x shots, and the rule that picks beta.

Training does not know how many samples a user will have; only the test does. So one sweep over
eta x beta x seeds for each K and label noise gives every cell of the picture.
"""

import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from moml.algorithms.adapt import gradient_steps
from moml.algorithms.matching import match_beta
from moml.algorithms.schedule import decay_at
from moml.errors import DataError
from moml.paper.sine_score import LOSS, NET, TESTED_WITH
from moml.run.sweep import sweep
from moml.tasks import sine, unseen_sine
from moml.types import Batch, Tasks

SHOTS = (1, 2, 5, 10, 20, 50)
UNTRAINED = 4.88  # the untrained network's error in `moml reproduce sine`


@dataclass(frozen=True)
class Plan:
    """What is trained and tested. The default is the quick form."""

    ks: tuple[int, ...] = (1, 2, 5)
    noises: tuple[float, ...] = (0.0,)
    betas: tuple[float, ...] = (1.0, 0.5, 0.2, 0.1)
    etas: tuple[float, ...] = (0.002, 0.005)
    steps: tuple[int, ...] = (1,)  # adaptation steps at test
    seeds: int = 2
    iterations: int = 10_000
    more_tasks: tuple[int, ...] = ()  # besides the 25: K = 1 and no noise, to see the floor


FULL = Plan(
    noises=(0.0, 1.0),
    betas=(1.0, 0.7, 0.5, 0.33, 0.2, 0.14, 0.1, 0.07, 0.05, 0.035, 0.025),
    etas=(0.001, 0.002, 0.005, 0.01),
    steps=(1, 2, 3, 5, 10),
    seeds=3,
    iterations=40_000,
    more_tasks=(100, 400),
)


class Surface(NamedTuple):
    """One sweep's errors: each beta at its best eta, the mean over seeds; lost settings are inf."""

    n: int
    k: int
    noise: float
    betas: np.ndarray  # [beta], descending
    errors: np.ndarray  # [beta, shots, steps]
    spread: np.ndarray  # the same, standard deviation over seeds
    samples: int
    seconds: float


def waves(n: int, key: Any) -> Tasks:
    """n training waves: the paper's 25, or more of them drawn from its ranges."""
    return sine() if n == 25 else unseen_sine(key, n)


def rule_betas(k: int, steps: tuple[int, ...]) -> list[float]:
    """What the matching rule gives for the shots we test, its floor left out."""
    return [round(match_beta(k, shots, steps=s, floor=0.0), 4) for shots in SHOTS for s in steps]


def errors_of(plan: Plan, noise: float) -> Any:
    """[shots, steps] errors of a meta-model: support labels are noisy, the scored ones are not."""
    clean = unseen_sine(jax.random.key(2023), 500)
    ids = jnp.arange(500, dtype=jnp.int32)
    samples = clean.draw(jax.random.key(2024), ids, max(SHOTS) + 100)
    disturbed = samples.y + noise * jax.random.normal(jax.random.key(2025), samples.y.shape)
    query = Batch(samples.x[:, max(SHOTS) :], samples.y[:, max(SHOTS) :])

    def cell(meta: Any, shots: int, steps: int) -> Any:
        adapt = gradient_steps(LOSS, steps)
        support = Batch(samples.x[:, :shots], disturbed[:, :shots])
        one = lambda few, many: LOSS(adapt.apply(meta, few, TESTED_WITH), many)
        return jnp.mean(jax.vmap(one)(support, query))

    return lambda meta: jnp.stack(
        [jnp.stack([cell(meta, shots, steps) for steps in plan.steps]) for shots in SHOTS]
    )


def surface(plan: Plan, k: int, noise: float, *, n: int = 25, progress: bool = False) -> Surface:
    """Train the grid of one K and noise, and test it at all shots and steps."""
    began = time.monotonic()
    betas = sorted({*plan.betas, *rule_betas(k, (1,))}, reverse=True)
    tasks = waves(n, jax.random.key(7))
    noisy = tasks if noise == 0 else _noisy(tasks, noise)
    done = sweep(
        "moml-v1",
        LOSS,
        NET.init,
        noisy,
        seeds=plan.seeds,
        grid={"beta": betas, "eta": list(plan.etas)},
        iterations=plan.iterations,
        schedule=decay_at(plan.iterations * 3 // 4),
        progress=progress,
        k=k,
        outer=optax.scale_by_adam(),
    )
    test = jax.jit(lambda meta: jax.lax.map(errors_of(plan, noise), meta))
    shape = (len(betas), len(plan.etas), plan.seeds)
    errors = np.asarray(test(done.meta), float)
    errors = errors.reshape(*shape, len(SHOTS), len(plan.steps))
    lost = np.any(done.lost.reshape(shape), axis=2, keepdims=True)[..., None]
    mean = np.where(lost, np.inf, errors.mean(axis=2))
    best = np.nan_to_num(mean, nan=np.inf).argmin(axis=1)
    pick = lambda values: np.take_along_axis(values, best[:, None], axis=1)[:, 0]
    return Surface(
        n,
        k,
        noise,
        np.array(betas),
        pick(mean),
        pick(errors.std(axis=2)),
        done.samples,
        time.monotonic() - began,
    )


def _noisy(tasks: Tasks, noise: float) -> Tasks:
    """The same tasks with Gaussian noise on every label drawn."""

    def draw(key: Any, ids: Any, size: int) -> Batch:
        batch = tasks.draw(key, ids, size)
        extra = noise * jax.random.normal(jax.random.fold_in(key, 99), batch.y.shape)
        return batch._replace(y=batch.y + extra)

    return tasks._replace(draw=draw)


def excess(found: Surface, shots: int, steps_index: int, beta: float) -> float:
    """How far above the best beta's error a beta is, in per cent, at most 1000.

    Between the betas that were trained, interpolated on logarithms. Not a number where no beta
    does better than the untrained network: so many steps on so few samples then help nobody.
    """
    column = np.nan_to_num(found.errors[:, SHOTS.index(shots), steps_index], nan=np.inf)
    if column.min() > UNTRAINED:
        return float("nan")
    order = np.argsort(found.betas)
    over = np.log(np.minimum(column / column.min(), 11))
    at = np.interp(np.log(beta), np.log(found.betas[order]), over[order])
    return 100 * (float(np.exp(at)) - 1)


def rows_of(found: Surface, plan: Plan) -> list[dict[str, Any]]:
    """A row a cell of the heat map."""
    rows = []
    for (b, s, t), mean in np.ndenumerate(found.errors):
        setting = {"n": found.n, "k": found.k, "shots": SHOTS[s], "beta": float(found.betas[b])}
        lost = not np.isfinite(mean)
        rows.append(
            {
                "table": "shots",
                "dataset": "sine",
                "setting": setting | {"noise": found.noise, "steps": plan.steps[t]},
                "method": "maml" if found.betas[b] == 1 else "moml-v1",
                "protocol": "strict",
                "metric": "test_error",
                "mean": None if lost else float(mean),
                "std": None if lost else float(found.spread[b, s, t]),
                "seeds": plan.seeds,
                "lost": plan.seeds if lost else 0,
                "paper_mean": None,
                "paper_std": None,
                "samples": found.samples,
                "iterations": plan.iterations,
                "seconds": round(found.seconds, 2),
            }
        )
    return rows


def surfaces_of(rows: list[dict[str, Any]]) -> tuple[list[Surface], Plan]:
    """Rows back into surfaces, so that they can be judged and drawn without training again."""
    if not rows or not isinstance(rows, list):
        raise DataError("there are no rows to judge")
    try:
        ordered = [(tuple(row["setting"][a] for a in ("n", "k", "noise")), row) for row in rows]
        steps = sorted({row["setting"]["steps"] for row in rows})
        surfaces = []
        for n, k, noise in dict.fromkeys(place for place, _ in ordered):
            mine = [row for place, row in ordered if place == (n, k, noise)]
            betas = sorted({row["setting"]["beta"] for row in mine}, reverse=True)
            shape = (len(betas), len(SHOTS), len(steps))
            values = lambda name, rows=mine: np.array([row[name] for row in rows], float)
            errors = np.nan_to_num(values("mean"), nan=np.inf).reshape(shape)
            spread = values("std").reshape(shape)
            first = mine[0]
            surfaces.append(
                Surface(n, k, noise, np.array(betas), errors, spread, first["samples"], 0.0)
            )
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise DataError(f"these are not rows of `moml reproduce shots`: {error}") from error
    return surfaces, Plan(steps=tuple(steps), seeds=rows[0]["seeds"])


class Verdict(NamedTuple):
    """Over the cells: the mean and the worst excess, in per cent, of a way to choose beta."""

    name: str
    steps: int
    cells: int
    mean: float
    worst: float


def verdicts(surfaces: list[Surface], plan: Plan) -> list[Verdict]:
    """The rule, MAML and a fixed beta against the best beta of every cell; surfaces of one n."""
    apart = surfaces[0].n / 3
    ways = {
        "the bare rule": lambda k, shots, steps: match_beta(k, shots, floor=0.0),
        "match_beta": lambda k, shots, steps: match_beta(k, shots, steps=steps, visits_apart=apart),
        "maml": lambda k, shots, steps: 1.0,
        "beta = 0.1": lambda k, shots, steps: 0.1,
    }
    out = []
    for t, steps in enumerate(plan.steps):
        for name, way in ways.items():
            over = [excess(f, s, t, way(f.k, s, steps)) for f in surfaces for s in SHOTS]
            cells = int(np.isfinite(over).sum())
            mean, worst = float(np.nanmean(over)), float(np.nanmax(over))
            out.append(Verdict(name, steps, cells, mean, worst))
    return out


FACTORS = (1.26, 1.0, 0.8, 0.63, 0.5, 0.4, 0.32, 0.25)


def factors(surfaces: list[Surface], plan: Plan, noise: float) -> list[tuple[int, list[float]]]:
    """For each number of steps: the mean excess of so many times the bare rule, FACTORS in turn."""
    chosen = [found for found in surfaces if found.noise == noise]
    table = []
    for t, steps in enumerate(plan.steps):
        line = []
        for factor in FACTORS:
            over = []
            for found in chosen:
                for shots in SHOTS:
                    rule = match_beta(found.k, shots, floor=0.0)
                    beta = rule if rule == 1 else min(1.0, factor * rule)
                    over.append(excess(found, shots, t, max(beta, float(found.betas.min()))))
            line.append(float(np.nanmean(over)))
        table.append((steps, line))
    return table
