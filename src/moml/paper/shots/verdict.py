"""What the surfaces show: ways to choose beta against the best beta of every cell; rows in and out.

A cell is a number of shots and of steps on one surface. Cells where no beta does better than always
answering zero (so many steps on so few samples help nobody) are left out, and counted.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from moml.algorithms.single.matching import match_beta
from moml.errors import DataError
from moml.paper.shots.study import SHOTS, Place, Plan, Surface, tests
from moml.report.figures import heat_map, legend_below, panels, save
from moml.training.rows import result_row
from moml.types import Record

Ways = Mapping[str, Callable[[Surface, int, int], float]]  # surface, shots, steps -> beta


def bare(found: Surface, shots: int, steps: int = 1) -> float:
    """The rule itself, without power and floor."""
    return match_beta(found.place.k, shots, both_ways=found.both_ways, floor=0.0)


def matched(found: Surface, shots: int, steps: int) -> float:
    """What the method `moml` would take."""
    place, both = found.place, found.both_ways
    visits = place.iterations * 3 / place.n
    return match_beta(place.k, shots, steps=steps, visits=visits, both_ways=both)


WAYS: Ways = {
    "the bare rule": bare,
    "match_beta": matched,
    "maml": lambda found, shots, steps: 1.0,
    "beta = 0.1": lambda found, shots, steps: 0.1,
}


def shared(found: Surface, shots: int, steps: int) -> float:
    """K / shots: what S2 = S1 asks for where gradients are linear."""
    return min(1.0, found.place.k / shots)


def raised(found: Surface, shots: int, steps: int, power: float) -> float:
    """The rule to a power."""
    return max(0.1, bare(found, shots) ** power)


POWERS = {f"{p:7}": partial(raised, power=p) for p in (1.0, 1.25, 1.5, 1.75, 2.0, 2.5)}


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


def verdicts(surfaces: Sequence[Surface], plan: Plan, ways: Ways = WAYS) -> list[Verdict]:
    """Every way at every number of steps."""
    useless = {found.place: tests(found.place, plan.steps)[1] for found in surfaces}
    out = []
    for (t, steps), (name, way) in itertools.product(enumerate(plan.steps), ways.items()):
        over = [
            excess(f.betas, f.best[:, s, t], way(f, shots, steps), useless[f.place])
            for f in surfaces for s, shots in enumerate(SHOTS)
        ]  # fmt: skip
        cells = int(np.isfinite(over).sum())
        mean, worst = (np.nanmean(over), np.nanmax(over)) if cells else (np.nan, np.nan)
        out.append(Verdict(name, steps, cells, float(mean), float(worst)))
    return out


def floors(found: Surface) -> list[tuple[float, float, float, float]]:
    """For each eta: the best beta for 50 shots, its error, and the least beta within 10 %."""
    errors, betas = found.errors[:, :, SHOTS.index(50), 0], found.betas
    least = errors.min(axis=0)
    near = [float(betas[column][-1]) for column in (errors <= 1.1 * least).T]
    best = betas[errors.argmin(axis=0)].tolist()
    return list(zip(found.etas.tolist(), best, least.tolist(), near, strict=True))


def rows_of(found: Surface, plan: Plan) -> list[Record]:
    """A row a cell of the heat map; without a mean where a seed was lost."""
    place, rows = found.place, []
    for b, e, s, t in np.ndindex(found.values.shape[:-1]):
        setting = {
            "n": place.n, "k": place.k, "noise": place.noise, "beta": float(found.betas[b]),
            "eta": float(found.etas[e]), "both_ways": found.both_ways, "shots": SHOTS[s],
            "steps": plan.steps[t],
        }  # fmt: skip
        row = result_row(
            table="shots", dataset=place.family, setting=setting, metric="test_error",
            method="maml" if found.betas[b] == 1 else "moml-v1", values=found.values[b, e, s, t],
            samples=found.samples, iterations=place.iterations, seconds=found.seconds,
        )  # fmt: skip
        rows.append(row | ({"mean": None, "std": None} if row["lost"] else {}))
    return rows


def surfaces_of(rows: object) -> tuple[list[Surface], Plan]:
    """Rows of a file back into surfaces, to be judged and drawn without training again."""
    if not rows or not isinstance(rows, list):
        raise DataError("rows must be a list with at least one row")
    try:
        by_place: dict[Place, list[Record]] = {}
        for row in rows:
            n, k, noise = (row["setting"][name] for name in ("n", "k", "noise"))
            place = Place(row["dataset"], n, k, noise, row["iterations"])
            by_place.setdefault(place, []).append(row)
        steps = sorted({row["setting"]["steps"] for row in rows})
        surfaces = []
        for place, mine in by_place.items():
            axis = lambda name, mine=mine: np.array(sorted({row["setting"][name] for row in mine}))
            betas, etas, first = axis("beta")[::-1], axis("eta"), mine[0]
            values = np.array([row["values"] for row in mine], float)
            values = values.reshape(len(betas), len(etas), len(SHOTS), len(steps), -1)
            about = (first["samples"], first["seconds"], first["setting"]["both_ways"])
            surfaces.append(Surface(place, betas, etas, values, *about))
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise DataError(f"these are not rows of `moml reproduce shots`: {error}") from error
    return surfaces, Plan(steps=tuple(steps), seeds=rows[0]["seeds"])


def shots_figure(surfaces: Sequence[Surface], path: Path) -> Path:
    """A panel a K and noise; colour is the excess over the best beta for that many shots."""
    noises = sorted({found.place.noise for found in surfaces})
    ks = sorted({found.place.k for found in surfaces})
    figure, grid = panels(len(noises), len(ks), (4.4 * len(ks), 3.6 * len(noises)))
    for found in surfaces:
        axes = grid[noises.index(found.place.noise), ks.index(found.place.k)]
        error = found.best[:, :, 0]
        over = 100 * (error / error.min(axis=0) - 1)
        numbers = np.where(over > 999, ">999", np.char.mod("%.0f", over))
        texts, rule = np.where(over == 0, "best", numbers), [bare(found, s) for s in SHOTS]
        image = heat_map(axes, over, found.betas, SHOTS, rule, most=100, texts=texts, fontsize=6.5)
        axes.set_title(f"K = {found.place.k}, label noise {found.place.noise:g}")
        axes.set(xlabel="shots at test", ylabel="β (1 is MAML)")
    legend_below(figure, grid.flat)
    figure.colorbar(image, ax=grid, label="% above the best β's error", shrink=0.7)
    return save(figure, path)


def print_best(surfaces: Sequence[Surface]) -> None:
    """For each K and number of shots, after one step: the best beta and what others cost."""
    for found, (s, shots) in itertools.product(surfaces, enumerate(SHOTS)):
        errors = found.best[:, s, 0]
        cost = lambda beta, found=found, errors=errors: excess(found.betas, errors, beta, np.inf)
        own, rule = shared(found, shots, 1), bare(found, shots)
        print(
            f"  K = {found.place.k}, {shots:2} shots: best beta {found.betas[errors.argmin()]:.3g} "
            f"(error {errors.min():.5f}); K / shots {own:.3g} {cost(own):+.1f} %, "
            f"rule {rule:.3g} {cost(rule):+.1f} %, maml {cost(1.0):+.1f} %"
        )


def print_verdicts(surfaces: Sequence[Surface], plan: Plan) -> None:
    """How far each way to choose beta is from the best one, and where the floor lies."""
    by_size = lambda found: (found.place.family, found.place.n, found.place.iterations)
    for size in dict.fromkeys(map(by_size, surfaces)):
        name, n, iterations = size
        print(f"{name}, n = {n}, {iterations} iterations: per cent above the best beta's error")
        ways, mine = WAYS, [found for found in surfaces if by_size(found) == size]
        if name == "linear":
            ways = {"K / shots": shared, **WAYS}
            print_best(mine)
        for verdict in verdicts(mine, plan, ways):
            print(
                f"  {verdict.steps:2} steps  {verdict.name:<14} mean {verdict.mean:6.1f}  worst "
                f"{verdict.worst:5.0f}   ({verdict.cells} cells)"
            )
    kind = lambda found: (found.place.noise, found.place.family)
    for noise, family in dict.fromkeys(map(kind, sorted(surfaces, key=lambda f: f.place.noise))):
        mine = [found for found in surfaces if kind(found) == (noise, family)]
        print(f"{family}, label noise {noise:g}: the same for the rule to the power of")
        print(" " * 10 + "".join(POWERS))
        for steps, line in itertools.groupby(verdicts(mine, plan, POWERS), lambda one: one.steps):
            print(f"  {steps:2} steps" + "".join(f"{one.mean:7.1f}" for one in line))
    for found in surfaces:
        if (found.place.family, found.place.k, found.place.noise) == ("sine", 1, 0.0):
            print(f"the floor, 50 shots, n = {found.place.n}, {found.place.iterations} iterations:")
            for eta, best, error, least in floors(found):
                print(f"  eta {eta:<7g} best beta {best:<7g} (error {error:.3f}), 10 % {least:g}")
