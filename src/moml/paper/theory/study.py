"""The convergence theorem measured: on tasks with finite data grad F can be computed exactly.

Twenty non-convex logistic tasks, K = 1, B = 3, alpha = 1, float64. MAML's bias does not
fall with eta; with beta on the paper's schedule that of MOML does. Every run starts at w = 0, all
lines draw the same number of samples, and nothing is tuned. v2 with its theorem's step sizes has
alpha = 0.1 and a smaller eta, as the theorem asks, and MAML a second line there; what v2 draws to
measure gradients for its step sizes is not counted.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from moml.algorithms.method import Method
from moml.algorithms.parts.schedule import beta_follows_eta
from moml.algorithms.single.diagnostics import samples_of, tracking_error
from moml.algorithms.single.theory import Theory, theoretical_steps
from moml.methods import method
from moml.paper.cells import choose
from moml.paper.theory.logistic import ADAPT, LOSS, D, N, Problem, problem, watched
from moml.runtime import simulate
from moml.training.compose import run_key
from moml.training.loop import TrainingInfo, loop, members, side_by_side
from moml.training.rows import result_row
from moml.types import Hyper, Key, Record, SampleSpec

B, K, K0, H = 3, 1, 5, 5
ETA, BETA = 0.002, 0.02  # where the schedule of beta starts
FULL = {0.002: 400_000, 0.0005: 1_600_000, 0.000125: 3_200_000}  # eta: iterations of v1
QUICK = {0.002: 250_000, 0.0005: 250_000}
INSIDE = 0.1, 0.2  # alpha and eta over v1's, within the conditions of v2's theorem,
LIPSCHITZ = SampleSpec(B, support=20)  # which asks for 17 samples of each task's gradient
POINTS = 32  # evaluations of a run, the last eight of them in its last quarter


def scheduled(eta: float) -> float:
    """The paper's schedule, beta = .02 (eta / .002)^(2/3)."""
    return float(beta_follows_eta(ETA, BETA)(Hyper(eta=jnp.asarray(eta)), jnp.zeros((), int)).beta)


class Line(NamedTuple):
    """A line of the table."""

    label: str
    method: str
    beta: Callable[[float], float] = lambda eta: BETA  # the same for every eta
    gamma: float = 1.0
    speed: float = 1.0  # eta over v1's: n / B where all tasks move w at once
    alpha: float = 1.0
    options: Mapping[str, int] = {}
    theoretical: bool = False


LINES = (
    Line("maml", "maml", lambda eta: 1.0),
    Line("moml-v1", "moml-v1"),
    Line("moml-v1-scheduled", "moml-v1", scheduled),
    Line("moml-v2", "moml-v2"),
    Line("moml-v2-theorem", "moml-v2", speed=INSIDE[1], alpha=INSIDE[0], theoretical=True),
    Line("maml-theorem", "maml", lambda eta: 1.0, speed=INSIDE[1], alpha=INSIDE[0]),
    Line("scgd", "scgd", scheduled, speed=N / B),
    Line("nasa", "nasa", scheduled, gamma=0.1, speed=N / B),
    # the newest of K0 + 1 samples: u after a round's first step is their plain average
    Line("localmoml", "localmoml", lambda eta: 1 / (K0 + 1),
         options={"local_steps": H, "restart_samples": K0}),
)  # fmt: skip


class Measured(NamedTuple):
    """A line at one eta: one column a seed."""

    line: Line
    s2: str
    eta: float  # as the plan names it
    used: dict[str, float]  # eta and beta of this line, their bounds where they change
    samples: np.ndarray  # [points] drawn so far
    curve: np.ndarray  # [points, seeds] |grad F|^2 at the mean of the last quarter so far
    readings: dict[str, np.ndarray]  # metric: [seeds]
    iterations: int
    seconds: float  # its share of a program that runs several lines and etas


def compose(line: Line, s2: str, p: Problem, eta: float) -> Method:
    """The method of a line; with an independent S2, v2 has the paper's two task batches."""
    apart = "two_batches" if line.method == "moml-v2" else "independent_hessian"
    shape = {"n": N, "k": K, apart: s2 == "independent"}
    shape |= {"tasks_per_step": B} if line.method not in ("scgd", "nasa") else {}
    chosen = method(line.method, LOSS, **shape, **line.options)
    algorithm = chosen.algorithm
    if line.theoretical:
        eta0 = 4 * p.constants.smoothness * eta * line.speed  # so that eta_t <= eta * line.speed
        algorithm = theoretical_steps(
            algorithm, LOSS, LIPSCHITZ, constants=p.constants, n=N, eta0=eta0, alpha=line.alpha
        )
    return chosen._replace(algorithm=watched(algorithm))


def steps_of(line: Line, eta: float, p: Problem) -> dict[str, float]:
    """The step sizes of a line; upper bounds of those of the theorem."""
    eta = eta * line.speed
    if not line.theoretical:
        return {"eta": eta, "beta": line.beta(eta / line.speed)}
    L = p.constants.smoothness
    return {"eta": eta, "beta": 6 * L**2 * (4 * L * eta) ** (-1 / 3) * eta}


def squared_bias(grads: np.ndarray) -> np.ndarray:
    """Each seed's grad F at its average times the mean of the others', [lines, seeds, d].

    What the seeds share: their mean is |E grad F|^2, without the noise that averaging leaves, and
    may be negative where the noise is larger. Not a number where fewer than two seeds are finite.
    """
    kept = np.isfinite(grads).all(axis=-1, keepdims=True)
    total, others = np.where(kept, grads, 0).sum(axis=1, keepdims=True), kept.sum(axis=1) - 1
    return (grads * (total - grads)).sum(axis=-1) / np.where(others > 0, others, np.nan)


def read(
    w: np.ndarray, total: np.ndarray, length: int, p: Problem, alpha: float
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The curve and the readings, from w_t and sum w at every point: [points, lines, seeds, d].

    `gap_at_average` is |grad F|^2 at the average of the last quarter, bias and what noise averaging
    leaves; `mean_gap` that of w_t, over the points in the last quarter, bias and variance.
    """
    to = np.arange(1, POINTS + 1)
    sums, of = np.concatenate([0 * total[:1], total]), 3 * to // 4
    average = (sums[to] - sums[of]) / (length * (to - of))[:, None, None, None]
    models = np.stack([average, w])
    grads = np.asarray(p.grad(models.reshape(-1, D), alpha)).reshape(models.shape)
    curve, gap = (grads**2).sum(axis=-1)
    bias = {"squared_bias": squared_bias(grads[0, -1])} if w.shape[2] > 1 else {}
    mean_gap = gap[3 * POINTS // 4 :].mean(axis=0)
    return curve, {"gap_at_average": curve[-1], "mean_gap": mean_gap} | bias


def measure(
    lines: Sequence[Line], s2: str, plan: Mapping[float, int], p: Problem, seeds: int,
    progress: bool,
) -> Iterator[Measured]:  # fmt: skip
    """Lines of one method, all seeds and all etas with the same number of steps side by side."""
    chosen = compose(lines[0], s2, p, next(iter(plan)))
    program, needs = simulate.program(chosen.algorithm, members=True), chosen.algorithm.needs
    drawn = simulate.samples_per_step(needs, p.tasks)
    counted = needs.visits if isinstance(needs, Theory) else needs
    own = simulate.samples_per_step(counted, p.tasks)
    as_v1 = B * K * (3 if s2 == "independent" else 2) / own  # steps on the samples of one of v1
    error = tracking_error(ADAPT, chosen.memory, samples_of(p.tasks))
    both = lambda *state: (error(*state), error(*state[:2], jnp.arange(N), state[3]))
    tracking = jax.jit(jax.vmap(both))

    def train(hyper: Hyper, keys: Key, length: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """w and the sum of w at every point, and tracking errors at those of the last quarter."""
        seen, tracked = [], []

        def after(info: TrainingInfo) -> None:
            state = info.carry.state
            seen.append(np.stack([state.meta, state.total]))
            if info.step > 3 * POINTS * length // 4 and jax.tree.leaves(state.memory):
                at = (state.memory, state.before, state.ids, hyper)
                tracked.append(np.stack(tracking(*at)))

        first = jax.vmap(chosen.algorithm.init, (None, 0))(jnp.zeros(D), hyper)
        stretches = simulate.advance(program, p.tasks, keys, hyper, length)
        advance, name = side_by_side(stretches), f"{lines[0].label}, S2 {s2}"
        carry, steps = members(first), POINTS * length
        loop(name, advance, carry, steps=steps, length=length, after=after, progress=progress)
        return seen, tracked

    for iterations in dict.fromkeys(plan.values()):
        began = time.monotonic()
        etas = [eta for eta, many in plan.items() if many == iterations]
        cells = [(line, eta, steps_of(line, eta, p)) for line in lines for eta in etas]
        each = [Hyper(**used, alpha=line.alpha, gamma=line.gamma) for line, _, used in cells]
        hyper = jax.tree.map(lambda *values: jnp.repeat(jnp.asarray(values, float), seeds), *each)
        keys = jax.vmap(run_key)(jnp.tile(jnp.arange(seeds), len(cells)))
        length = max(1, round(iterations * as_v1 / POINTS))
        seen, tracked = train(hyper, keys, length)
        w, total = np.stack(seen, axis=1).reshape(2, POINTS, len(cells), seeds, D)
        curve, readings = read(w, total, length, p, lines[0].alpha)
        if tracked:  # the mean over the last quarter's points, in the readings of v1 and of v2
            errors = np.mean(tracked, axis=0).reshape(2, len(cells), seeds)
            readings |= {"tracking_error": errors[0], "tracking_error_all_tasks": errors[1]}
        samples = np.arange(1, POINTS + 1) * length * drawn
        seconds = (time.monotonic() - began) / len(cells)
        for i, (line, eta, used) in enumerate(cells):
            mine = {metric: values[i] for metric, values in readings.items()}
            steps = POINTS * length
            yield Measured(line, s2, eta, used, samples, curve[:, i], mine, steps, seconds)


def rows_of(m: Measured) -> list[Record]:
    """Result rows, one for each reading."""
    lost = ~np.isfinite(m.readings["gap_at_average"])
    return [
        result_row(
            table="theory", dataset="logistic", setting={"k": K} | m.used | {"s2": m.s2},
            method=m.line.label, protocol="paper" if m.s2 == "independent" else "strict",
            metric=metric, values=values, lost=lost, samples=int(m.samples[-1]),
            iterations=m.iterations, seconds=m.seconds,
        )
        for metric, values in m.readings.items()
    ]  # fmt: skip


TITLES = {  # what each reading is, for people
    "gap_at_average": "|grad F|^2 at the average of the last quarter",
    "squared_bias": "its squared bias: what the seeds' gradients there have in common",
    "mean_gap": "mean of |grad F(w_t)|^2 over the last quarter",
    "tracking_error_all_tasks": "mean of |u_i - v_i(w)|^2 over all tasks",
    "tracking_error": "the same over the tasks of the step",
}


def lines_of(methods: Sequence[str] | None) -> list[Line]:
    """The lines of these labels; all by default."""
    labels = choose("methods", methods, [line.label for line in LINES])
    return [line for line in LINES if line.label in labels]


def run_theory(
    lines: Sequence[Line], plan: Mapping[float, int], *, seeds: int, progress: bool,
    done: Callable[[Measured], None],
) -> list[Measured]:  # fmt: skip
    """Measure lines, with S2 independent of S1 and with S2 = S1; `plan` has v1's steps by eta.

    `done` is called with each as soon as it is measured.
    """
    found = []
    with jax.enable_x64(True):
        p = problem(jax.random.key(0))
        for s2 in ("independent", "shared"):
            for kind, group in groupby(lines, lambda one: (one.method, one.alpha, one.theoretical)):
                # the theorem's eta_0 is part of the program: one for each eta
                plans = [{eta: plan[eta]} for eta in plan] if kind[-1] else [plan]
                same = list(group)
                for part in plans:
                    for measured in measure(same, s2, part, p, seeds, progress):
                        found.append(measured)
                        done(measured)
    return found
