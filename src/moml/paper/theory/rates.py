"""Rates as measurements: the mean of |grad F(w_t)|^2 over a run, against the samples it draws.

Every line is run at several horizons; step sizes and batch sizes follow the paper's theorem for it,
as powers of the accuracy eps. Constants are ours: such that gradient descent from the same start
would converge within the first horizon. Theorem 1 is run with its own as well. The mean over the
whole run is what the theorems bound; that over its last quarter shows where it ends. Their slopes
over log samples stand beside those of Tables 1 and 2: samples of order eps^-p make |grad F|^2 fall
as samples^(-2/p). S2 is independent of S1.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from moml.methods import method
from moml.paper.cells import choose, train
from moml.paper.theory.logistic import LOSS, D, N, Problem, problem
from moml.report.figures import PALETTE, panels, save
from moml.report.terminal import print_table
from moml.training.rows import result_row
from moml.types import Record

MANY = 2_000  # tasks that stand for infinitely many
POINTS = 40  # evaluations of a run
LARGEST = 4 / 3  # the accuracy that the first horizon is for, in our units
SHRINK = 4.0 ** (-1 / 5)  # from one horizon to the next: four times v1's iterations
START = 0.5  # of every coordinate of w: |grad F|^2 is 9e-3 there, and 4e-4 at 0


class Setting(NamedTuple):
    """What one horizon of a line runs."""

    iterations: int
    eta: float
    beta: float | None = None
    options: dict[str, int | bool] = {}


class Rate(NamedTuple):
    """A line: how its setting follows eps, and the power p of the samples that it needs."""

    label: str
    method: str
    power: float | None  # of 1 / eps in the paper's table; None: it has no rate there
    at: Callable[[float, int], Setting]  # eps, n
    ns: tuple[int, ...] = (N,)


def whole(x: float) -> int:
    """The nearest count."""
    return max(1, round(x))


def v1(eps: float, n: int) -> Setting:
    """eta = O(eps^3 / n), beta = O(eps^2), n / eps^5 iterations with one task each."""
    return Setting(whole(250 * n / eps**5), 0.2 * eps**3 / n, 0.15 * eps**2, {"tasks_per_step": 1})


def theorem_1(eps: float, n: int) -> Setting:
    """The same iterations at B = K = 1, with eta = n^(-2/5) T^(-3/5), beta = n^(2/5) T^(-2/5)."""
    t = v1(eps, n).iterations
    return Setting(t, n**-0.4 * t**-0.6, n**0.4 * t**-0.4, {"tasks_per_step": 1})


def v2(eps: float, n: int) -> Setting:
    """As v1, in the paper's two batches; a visit has the weight beta n / B, so beta is B / n's."""
    same = v1(eps, n)
    return same._replace(beta=0.15 * eps**2 / n, options={"tasks_per_step": 1, "two_batches": True})


def maml(eps: float, n: int) -> Setting:
    """MAML with one sample, at v1's step sizes."""
    return v1(eps, n)._replace(beta=None)


def bsgd(eps: float, n: int) -> Setting:
    """eta = O(eps^2), K = O(1 / eps^2), 1 / eps^4 iterations."""
    options = {"tasks_per_step": 1, "k": whole(4 / eps**2)}
    return Setting(whole(2500 / eps**4), 0.02 * eps**2, None, options)


def spider(eps: float, n: int) -> Setting:
    """eta = O(1), K = O(1 / eps^2), 1 / eps^2 iterations; N1 = n, N2 = q = sqrt(n)."""
    root = whole(n**0.5)
    options = {"tasks_per_step": root, "large_tasks": n, "period": root, "k": whole(4 / eps**2)}
    return Setting(whole(100 / eps**2), 0.3, None, options)


def restarted(eps: float, n: int) -> Setting:
    """Cross-device: eta = O(eps^4), beta = O(eps^2), H = K0 = O(1 / eps^2), 1 / eps^6 steps."""
    h = whole(8 / eps**2)
    options = {"tasks_per_step": 1, "local_steps": h, "restart_samples": h}
    return Setting(whole(2500 / eps**6), 0.02 * eps**4, min(1.0, 0.25 * eps**2), options)


def fixed(h: int) -> Callable[[float, int], Setting]:
    """Restarted with H = K0 that do not follow eps, at v1's eta."""
    options = {"tasks_per_step": 1, "local_steps": h, "restart_samples": h}
    return lambda eps, n: v1(eps, n)._replace(beta=1 / (h + 1), options=options)


def carried(eps: float, n: int) -> Setting:
    """Cross-silo, all clients: eta = O(eps^3), beta = O(eps^2), H = O(1 / eps^2), eps^-5 steps."""
    options = {"tasks_per_step": n, "local_steps": whole(4 / eps**2), "carried": True}
    return Setting(whole(250 / eps**5), 0.2 * eps**3, 0.15 * eps**2, options)


def per_fedavg(eps: float, n: int) -> Setting:
    """eta = O(eps^3), H = O(1 / eps), K = O(1 / eps^2), 1 / eps^5 steps."""
    options = {"tasks_per_step": 1, "local_steps": whole(4 / eps), "k": whole(4 / eps**2)}
    return Setting(whole(2500 / eps**5), 0.02 * eps**3, None, options)


RATES = (
    Rate("maml, K = 1", "maml", None, maml),
    Rate("maml (bsgd)", "maml", 6, bsgd, (N, MANY)),
    Rate("bspiderboost", "bspiderboost", 4, spider, (N, 80)),
    Rate("moml-v1", "moml-v1", 5, v1, (5, N, 80)),
    Rate("moml-v1, theorem 1", "moml-v1", 5, theorem_1),
    Rate("moml-v2", "moml-v2", 5, v2),
    Rate("per-fedavg", "per-fedavg", 7, per_fedavg),
    Rate("localmoml", "localmoml", 6, restarted, (N, MANY)),
    Rate("localmoml, H = K0 = 5", "localmoml", None, fixed(5)),
    Rate("localmoml, H = K0 = 20", "localmoml", None, fixed(20)),
    Rate("localmoml, carried", "localmoml", 5, carried),
)


METRICS = {"mean_gap_of_run": "whole run", "mean_gap_at_end": "last quarter"}


class Curve(NamedTuple):
    """A line at one n: a row a horizon, a column a seed."""

    rate: Rate
    n: int
    settings: list[Setting]
    samples: np.ndarray  # [horizons]
    gaps: dict[str, np.ndarray]  # metric: [horizons, seeds]
    seconds: float

    def slopes(self, metric: str) -> np.ndarray:
        """Each seed's slope of log gap over log samples, by least squares."""
        return np.polyfit(np.log(self.samples), np.log(self.gaps[metric]), 1)[0]


def accuracies(horizons: int) -> list[float]:
    """The eps of every horizon."""
    return [LARGEST * SHRINK**i for i in range(horizons)]


@cache
def of(n: int) -> Problem:
    """The problem with n tasks."""
    return problem(jax.random.key(0), n)


def run_one(rate: Rate, n: int, eps: float, seeds: int, progress: bool) -> tuple[int, np.ndarray]:
    """The samples of one horizon, and |grad F(w_t)|^2 on the way: [points, seeds]."""
    p, setting = of(n), rate.at(eps, n)
    shape: Record = {"n": n, "k": 1} | setting.options
    apart = {} if rate.method == "moml-v2" else {"independent_hessian": True}
    chosen = method(rate.method, LOSS, **shape, **apart)
    calls = -(-setting.iterations // chosen.algorithm.iterations)
    grid = {"eta": [setting.eta], "alpha": [1.0]}
    grid |= {} if setting.beta is None else {"beta": [setting.beta]}
    done = train(
        chosen, LOSS, lambda key: jnp.full(D, START), p.tasks, seeds=seeds,
        iterations=setting.iterations, grid=grid, chunk=-(-calls // POINTS), progress=progress,
        score=lambda meta, hyper: np.sum(np.asarray(p.grad(meta, 1.0)) ** 2, axis=-1),
    )  # fmt: skip
    return done.run.samples, np.stack([gap for _, gap in done.curve])


def run_rates(
    rates: Sequence[Rate], *, horizons: int, seeds: int, progress: bool
) -> Iterator[Curve]:
    """Run lines at their n and horizons, in float64."""
    with jax.enable_x64(True):
        for rate in rates:
            for n in rate.ns:
                began, wanted = time.monotonic(), accuracies(horizons)
                found = [run_one(rate, n, eps, seeds, progress) for eps in wanted]
                quarter = lambda gap: gap[3 * len(gap) // 4 :]
                gaps = {
                    "mean_gap_of_run": np.stack([gap.mean(axis=0) for _, gap in found]),
                    "mean_gap_at_end": np.stack([quarter(gap).mean(axis=0) for _, gap in found]),
                }
                settings, seconds = [rate.at(eps, n) for eps in wanted], time.monotonic() - began
                yield Curve(rate, n, settings, np.array([s for s, _ in found]), gaps, seconds)


def rows_of(curve: Curve) -> list[Record]:
    """A row for each horizon and reading."""
    rows = []
    for metric, gaps in curve.gaps.items():
        for setting, samples, values in zip(curve.settings, curve.samples, gaps, strict=True):
            used: Record = {"n": curve.n, "eta": setting.eta, "beta": setting.beta}
            about = {"k": 1} | used | {"s2": "independent"} | setting.options
            rows.append(result_row(
                table="theory", dataset="logistic", setting=about, method=curve.rate.label,
                protocol="paper", metric=metric, values=values, samples=int(samples),
                iterations=setting.iterations, seconds=curve.seconds,
            ))  # fmt: skip
    return rows


def rates_of(labels: Sequence[str] | None) -> list[Rate]:
    """The lines of these labels; all by default."""
    chosen = choose("methods", labels, [rate.label for rate in RATES])
    return [rate for rate in RATES if rate.label in chosen]


def claim(rate: Rate) -> str:
    """The slope that the paper's table implies."""
    return "-" if rate.power is None else f"{-2 / rate.power:.2f}"


def print_rates(curves: Sequence[Curve]) -> None:
    """One line for each method and n: its gaps at the first and last horizon, and its slopes."""
    columns = ("method", "n", "samples", "first", "last", *METRICS.values(), "paper")
    short = lambda count: f"{count:.0e}".replace("e+0", "e")
    lines = []
    for curve in curves:
        means = curve.gaps["mean_gap_of_run"].mean(axis=1)
        slopes = [curve.slopes(metric) for metric in METRICS]
        lines.append((
            curve.rate.label, str(curve.n), ", ".join(map(short, curve.samples[[0, -1]])),
            f"{means[0]:.1e}", f"{means[-1]:.1e}",
            *(f"{each.mean():.2f} ± {each.std():.2f}" for each in slopes), claim(curve.rate),
        ))  # fmt: skip
    title = f"Mean of |grad F(w_t)|^2 and its slope, {len(curves[0].samples)} horizons, "
    print_table(
        f"{title}{curves[0].gaps['mean_gap_of_run'].shape[1]} seeds", columns, lines, columns
    )


def rates_figure(curves: Sequence[Curve], path: Path) -> Path:
    """The gap against samples. Above: over the whole run, below: its last quarter."""
    figure, grid = panels(2, 2, (13, 9), sharey="row")
    local = lambda curve: curve.rate.method in ("localmoml", "per-fedavg")
    for row, (metric, title) in zip(grid, METRICS.items(), strict=True):
        for axes, rounds in zip(row, (False, True), strict=True):
            mine = [one for one in curves if local(one) == rounds]
            for i, curve in enumerate(mine):
                slope = f"{curve.slopes(metric).mean():.2f} (paper {claim(curve.rate)})"
                look = {"color": PALETTE[i % len(PALETTE)], "marker": "o", "markersize": 4}
                label = f"{curve.rate.label}, n = {curve.n}: {slope}"
                axes.plot(curve.samples, curve.gaps[metric].mean(axis=1), label=label, **look)
            axes.set(xscale="log", yscale="log", xlabel="samples drawn")
            if mine:
                axes.legend(frameon=False, fontsize=7, title="slope", title_fontsize=7)
        row[0].set_ylabel(f"mean of |grad F(w_t)|², {title}")
    return save(figure, path)
