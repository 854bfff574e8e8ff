"""What the surfaces say: ways to choose beta against the best beta of every cell; rows in and out.

A cell is a number of shots and of steps on one surface. Cells where no beta does better than always
answering zero (so many steps on so few samples help nobody) are left out, and counted.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from moml.algorithms.single.matching import match_beta
from moml.errors import DataError
from moml.paper.shots.study import SHOTS, Place, Plan, Surface, tests

Way = Callable[[Surface, int, int], float]  # surface, shots, steps -> beta


def bare(found: Surface, shots: int, steps: int = 1) -> float:
    """The rule itself, without power and floor."""
    return match_beta(found.place.k, shots, both_ways=found.both_ways, floor=0.0)


def matched(found: Surface, shots: int, steps: int) -> float:
    """What the method `moml` would take."""
    visits = found.place.iterations * 3 / found.place.n
    both = found.both_ways
    return match_beta(found.place.k, shots, steps=steps, visits=visits, both_ways=both)


WAYS: dict[str, Way] = {
    "the bare rule": bare,
    "match_beta": matched,
    "maml": lambda found, shots, steps: 1.0,
    "beta = 0.1": lambda found, shots, steps: 0.1,
}


def excess(betas: np.ndarray, errors: np.ndarray, beta: float, useless: float) -> float:
    """How far above the best beta's error a beta is, in per cent, at most 1000.

    Between the betas that were trained, interpolated on logarithms. Not a number where even the
    best is worse than `useless`.
    """
    if errors.min() > useless:
        return float("nan")
    over = np.log(np.minimum(errors, 11 * errors.min()) / errors.min())
    order = np.argsort(betas)
    return 100 * float(np.expm1(np.interp(np.log(beta), np.log(betas[order]), over[order])))


class Verdict(NamedTuple):
    """Over the cells: the mean and the worst excess, in per cent, of a way to choose beta."""

    name: str
    steps: int
    cells: int
    mean: float
    worst: float


def verdicts(surfaces: list[Surface], plan: Plan) -> list[Verdict]:
    """Every way at every number of steps."""
    useless = {found.place: tests(found.place, plan.steps)[1] for found in surfaces}
    out = []
    for t, steps in enumerate(plan.steps):
        for name, way in WAYS.items():
            over = [
                excess(f.betas, f.best[:, s, t], way(f, shots, steps), useless[f.place])
                for f in surfaces for s, shots in enumerate(SHOTS)
            ]  # fmt: skip
            cells = int(np.isfinite(over).sum())
            mean, worst = (np.nanmean(over), np.nanmax(over)) if cells else (np.nan, np.nan)
            out.append(Verdict(name, steps, cells, float(mean), float(worst)))
    return out


POWERS = (1.0, 1.25, 1.5, 1.75, 2.0, 2.5)


def powers(surfaces: list[Surface], plan: Plan) -> list[tuple[int, list[float]]]:
    """For each number of steps: the mean excess of the rule to so high a power, POWERS in turn."""
    useless = {found.place: tests(found.place, plan.steps)[1] for found in surfaces}

    def mean(t: int, power: float) -> float:
        beta = lambda f, shots: max(0.1, bare(f, shots) ** power)
        over = [
            excess(f.betas, f.best[:, s, t], beta(f, shots), useless[f.place])
            for f in surfaces for s, shots in enumerate(SHOTS)
        ]  # fmt: skip
        return float(np.nanmean(over)) if np.isfinite(over).any() else float("nan")

    return [(steps, [mean(t, p) for p in POWERS]) for t, steps in enumerate(plan.steps)]


def floors(found: Surface, shots: int = 50) -> list[tuple[float, float, float, float]]:
    """For each eta: the best beta for many shots, its error, and the least beta within 10 %."""
    out = []
    for eta, column in zip(found.etas, found.errors[:, :, SHOTS.index(shots), 0].T, strict=True):
        near = found.betas[column <= 1.1 * column.min()]
        out.append(
            (float(eta), float(found.betas[column.argmin()]), float(column.min()), float(near[-1]))
        )
    return out


def rows_of(found: Surface, plan: Plan) -> list[dict[str, Any]]:
    """A row a cell of the heat map."""
    rows = []
    for (b, e, s, t), mean in np.ndenumerate(found.errors):
        setting = {"n": found.place.n, "k": found.place.k, "noise": found.place.noise}
        setting |= {"beta": float(found.betas[b]), "eta": float(found.etas[e])}
        setting |= {"both_ways": found.both_ways}
        kept = np.isfinite(mean)
        rows.append(
            {
                "table": "shots",
                "dataset": found.place.family,
                "setting": setting | {"shots": SHOTS[s], "steps": plan.steps[t]},
                "method": "maml" if found.betas[b] == 1 else "moml-v1",
                "protocol": "strict",
                "metric": "test_error",
                "mean": float(mean) if kept else None,
                "std": float(found.spread[b, e, s, t]) if kept else None,
                "seeds": plan.seeds,
                "lost": int(found.lost[b, e]),
                "paper_mean": None,
                "paper_std": None,
                "samples": found.samples,
                "iterations": found.place.iterations,
                "seconds": round(found.seconds, 2),
            }
        )
    return rows


def _place(row: dict[str, Any]) -> Place:
    setting = row["setting"]
    return Place(row["dataset"], setting["n"], setting["k"], setting["noise"], row["iterations"])


def surfaces_of(rows: Any) -> tuple[list[Surface], Plan]:
    """Rows of a file back into surfaces, to be judged and drawn without training again."""
    if not rows or not isinstance(rows, list):
        raise DataError("there are no rows to judge")
    try:
        together: dict[Place, list[dict[str, Any]]] = {}
        for row in rows:
            together.setdefault(_place(row), []).append(row)
        steps = sorted({row["setting"]["steps"] for row in rows})
        surfaces = []
        for place, mine in together.items():
            axis = lambda name, mine=mine: np.array(sorted({row["setting"][name] for row in mine}))
            betas, etas = axis("beta")[::-1], axis("eta")
            shape = (len(betas), len(etas), len(SHOTS), len(steps))
            values = lambda name, mine=mine, shape=shape: np.array(
                [row[name] for row in mine], float
            ).reshape(shape)
            errors = np.nan_to_num(values("mean"), nan=np.inf)
            lost = values("lost")[:, :, 0, 0].astype(int)
            both = mine[0]["setting"].get("both_ways", False)
            last = (mine[0]["samples"], mine[0]["seconds"], both)
            surfaces.append(Surface(place, betas, etas, errors, values("std"), lost, *last))
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise DataError(f"these are not rows of `moml reproduce shots`: {error}") from error
    return surfaces, Plan(steps=tuple(steps), seeds=rows[0]["seeds"])
