"""Logistic models with a random intercept for grouped rows of classes, in numpy.

    P(y_ij = 1 | u_i) = s(F_ij b + u_i),    u_i ~ N(0, v^2),    b_j ~ N(0, t_c(j)),

with s(a) = 1 / (1 + exp(-a)).

One model for two classes; of more, one of each class against the others, normalised. The intercept
of a task is known by its posterior on a grid, so that rows update it exactly, in parts or at once.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from moml.algorithms.tabular.mixed import Structure

NODES = 81  # of the grid for an intercept
GRID = np.linspace(-5, 5, NODES)  # in standard deviations v
LOG_PRIOR = -(GRID**2) / 2 - np.log(np.exp(-(GRID**2) / 2).sum())
FLAT = 25.0  # prior variance of columns without a class
WIDE = 3.0  # of v: its prior density is proportional to v exp(-v^2 / (2 WIDE^2))
MOST, STEPS, ROUNDS = 25.0, 25, 30  # largest t, Newton steps, updates of t
STEEP = 30.0  # of log-odds


class LogisticModel(NamedTuple):
    """Fitted models, one for each output: the second of two classes, or each class."""

    fixed: Int[np.ndarray, " p"]  # columns of the design
    beta: Float[np.ndarray, "out p"]
    spread: Float[np.ndarray, " out"]  # v


class Levels(NamedTuple):
    """What is known of the intercepts of tasks: log-probabilities of v * `GRID`."""

    logs: Float[np.ndarray, "*tasks out nodes"]


class LogisticFit(NamedTuple):
    """A fitted model, and the prior variances t: a start for similar fits."""

    model: LogisticModel
    priors: Float[np.ndarray, "out classes"]


def outputs(classes: int) -> int:
    """How many models there are for so many classes."""
    return 1 if classes == 2 else classes


def no_levels(model: LogisticModel) -> Levels:
    """The intercept of one task without rows."""
    return Levels(np.tile(LOG_PRIOR, (1, len(model.spread), 1)))


def update_levels(
    model: LogisticModel,
    old: Levels,
    design: Float[np.ndarray, "tasks rows columns"],
    y: Int[np.ndarray, "tasks rows"],
    mask: Float[np.ndarray, "tasks rows"],
) -> Levels:
    """The intercepts of tasks after further rows, exactly as if all rows came at once."""
    odds, logs = design[..., model.fixed] @ model.beta.T, []
    for c, spread in enumerate(model.spread):
        sign = np.where(y == (c if len(model.spread) > 1 else 1), 1.0, -1.0)
        chance = _chance(sign * odds[..., c], sign[..., None] * spread * GRID)
        logs.append(old.logs[:, c] + np.sum(mask[..., None] * np.log(chance), axis=1))
    return Levels(_normal(np.stack(logs, axis=1)))


def logistic_answer(
    model: LogisticModel,
    logs: Float[np.ndarray, "rows out nodes"],
    design: Float[np.ndarray, "rows columns"],
) -> Float[np.ndarray, "rows classes"]:
    """The probabilities of the classes: the mean over what is known of each row's intercept."""
    odds = design[:, model.fixed] @ model.beta.T
    given = np.stack(
        [
            np.sum(np.exp(logs[:, c]) * _chance(odds[:, c], spread * GRID), axis=1)
            for c, spread in enumerate(model.spread)
        ],
        axis=1,
    )
    return np.hstack([1 - given, given]) if given.shape[1] == 1 else given / given.sum(1)[:, None]


def fit_logistic(
    design: Float[np.ndarray, "rows columns"],
    y: Int[np.ndarray, " rows"],
    groups: Sequence[np.ndarray],
    structure: Structure,
    classes: int,
    weights: Float[np.ndarray, " rows"] | None = None,
    start: LogisticFit | None = None,
    spread: float | None = None,
) -> LogisticFit:
    """Fit the models to rows in groups; v stays at `spread` if that is given.

    b and v have the largest posterior density for given t, by Newton steps, with the likelihood
    over u summed on the grid; t is the fixed point of t_c = |b_c|^2 / (n_c - tr((H^-1)_cc) / t_c),
    where H is minus the second derivative of the log-density.
    """
    rows = np.concatenate(groups)
    begin = np.cumsum([0, *(len(some) for some in groups)])[:-1][[len(g) > 0 for g in groups]]
    f, kind = design[rows][:, list(structure.fixed)], np.array(structure.prior)
    weigh = np.ones(len(rows)) if weights is None else np.asarray(weights, float)[rows]
    found = []
    for c in range(outputs(classes)):
        hit = y[rows] == (c if classes > 2 else 1)
        w = np.zeros(f.shape[1]) if start is None else start.model.beta[c]
        v = spread if spread is not None else 1.0 if start is None else start.model.spread[c]
        t = np.ones(kind.max(initial=-1) + 1) if start is None else start.priors[c]
        w = np.append(w, v)
        for _ in range(ROUNDS):
            prior = np.where(kind < 0, FLAT, np.append(t, 0.0)[kind])
            w, inverse = _mode(f, hit, begin, weigh, prior, w, spread is None)
            new = np.array([_prior(w[:-1][kind == j], np.diag(inverse)[:-1][kind == j], t[j])
                            for j in range(len(t))])  # fmt: skip
            if np.all(np.abs(np.log(new / t)) < 0.01):
                break
            t = new
        found.append((w[:-1], w[-1], t))
    beta, v, t = (np.stack(part) for part in zip(*found, strict=True))
    return LogisticFit(LogisticModel(np.array(structure.fixed), beta, v), t)


def _chance(odds: np.ndarray, moves: np.ndarray) -> np.ndarray:
    """s(odds + moves) with a last axis of nodes."""
    return 1 / (1 + np.exp(-np.clip(odds, -STEEP, STEEP))[..., None] * np.exp(-moves))


def _normal(logs: np.ndarray) -> np.ndarray:
    """Log-probabilities whose probabilities sum to one over the last axis."""
    top = logs.max(axis=-1, keepdims=True)
    return logs - top - np.log(np.exp(logs - top).sum(axis=-1, keepdims=True))


def _prior(b: np.ndarray, variance: np.ndarray, t: float) -> float:
    """The next prior variance of coefficients b with these posterior variances."""
    determined = max(len(b) - float(variance.sum()) / t, 1e-3 * len(b))
    return float(np.clip(b @ b / determined, 1e-4, MOST))


def _mode(
    f: np.ndarray, hit: np.ndarray, begin: np.ndarray, weigh: np.ndarray, prior: np.ndarray,
    w: np.ndarray, free: bool,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """[b, v] with the largest density, and the inverse of H; v moves only if `free`."""
    size = len(w) if free else len(w) - 1
    value, slope, curve = _density(f, hit, begin, weigh, prior, w)
    for _ in range(STEPS):
        values, vectors = np.linalg.eigh(curve[:size, :size])
        step = vectors @ ((vectors.T @ slope[:size]) / np.maximum(np.abs(values), 1e-6))
        gain = step @ slope[:size]
        scale = 1.0
        while scale > 1e-4:
            ahead = w.copy()
            ahead[:size] += scale * step
            if not free or ahead[-1] > 0:
                new = _density(f, hit, begin, weigh, prior, ahead)
                if new[0] >= value:
                    w, (value, slope, curve) = ahead, new
                    break
            scale /= 2
        if gain < 1e-7 or scale <= 1e-4:
            break
    inverse = np.zeros_like(curve)
    inverse[:size, :size] = np.linalg.pinv(curve[:size, :size], hermitian=True)
    return w, inverse


def _density(
    f: np.ndarray, hit: np.ndarray, begin: np.ndarray, weigh: np.ndarray, prior: np.ndarray,
    w: np.ndarray,
) -> tuple[float, np.ndarray, np.ndarray]:  # fmt: skip
    """The log-density of [b, v], its gradient, and minus its second derivative.

    log p = sum_i log sum_q pi_q exp(sum_j log p(y_ij | F_ij b + v z_q)) + log p(b) + log p(v):
    z is an input with the coefficient v.
    """
    b, v = w[:-1], float(w[-1])
    chance = _chance(f @ b, v * GRID)
    log = weigh[:, None] * np.log(np.where(hit[:, None], chance, 1 - chance) + 1e-300)
    joint = LOG_PRIOR + np.add.reduceat(log, begin, axis=0)
    top = joint.max(axis=1, keepdims=True)
    total = top[:, 0] + np.log(np.exp(joint - top).sum(axis=1))
    share = np.exp(joint - total[:, None])  # of the nodes, for each group
    error = weigh[:, None] * (hit[:, None] - chance)
    sizes = np.diff(np.append(begin, len(f)))
    each = np.repeat(share, sizes, axis=0)
    bend = each * weigh[:, None] * chance * (1 - chance)
    p = len(b)
    curve = np.zeros((p + 1, p + 1))
    curve[:p, :p] = (f * bend.sum(axis=1)[:, None]).T @ f
    curve[:p, p] = curve[p, :p] = f.T @ (bend @ GRID)
    curve[p, p] = np.sum(bend @ GRID**2)
    slope = np.zeros(p + 1)
    for i, (start, size) in enumerate(zip(begin, sizes, strict=True)):
        some = slice(start, start + size)
        by_node = np.vstack([f[some].T @ error[some], GRID * error[some].sum(axis=0)])
        mean = by_node @ share[i]
        slope += mean
        curve -= (by_node * share[i]) @ by_node.T - np.outer(mean, mean)
    value = float(total.sum()) - 0.5 * float(np.sum(b**2 / prior))
    slope[:p] -= b / prior
    curve[:p, :p] += np.diag(1 / prior)
    if v > 0:
        value += float(np.log(v)) - v**2 / (2 * WIDE**2)
        slope[p] += 1 / v - v / WIDE**2
        curve[p, p] += 1 / v**2 + 1 / WIDE**2
    return value, slope, curve
