"""Which mixed models to try on a table: random slopes and splines are found by score tests.

All of them are linear in the design [1, x, pieces(x)], see `moml.models.table.pieces_of`.
"""

import numpy as np
from jaxtyping import Float

from moml.algorithms.tabular.mixed import MixedModel, Products, Structure, fit_mixed
from moml.models.table import Knots, pieces_of

SLOPES = 2  # inputs with random slopes, at most
SPLINES = 3  # inputs with a spline, at most
SLOPE_SCORE, SPLINE_SCORE = 1.5, 1.0  # least scores, in standard deviations
WIDE = 32  # inputs with a slope of the task each, at most
BEYOND = 0.5  # of an input's range, that lines go on outside of it
VARIES = 0.3  # share of the groups in which an input must vary to have a slope or a spline


def design_of(at: Knots, x: Float[np.ndarray, "rows features"]) -> Float[np.ndarray, "rows c"]:
    """[1, x, pieces(x)] in double precision; inputs are held at some distance from training's.

    New tasks often lie outside the range of few tasks. Lines go on there, by `BEYOND` of the range
    on both sides; pieces end with the range.

    >>> at = Knots(np.array([0]), np.array([0.0]), np.array([2.0]))
    >>> design_of(at, np.array([[2.5], [9.0]])).tolist()
    [[1.0, 2.5, 0.5], [1.0, 3.0, 0.5]]
    """
    x, ends = np.asarray(x, float), np.tile([[np.inf], [-np.inf]], x.shape[1])
    np.minimum.at(ends[0], at.column, at.low)
    np.maximum.at(ends[1], at.column, at.low + at.width)
    bent = np.isfinite(ends[0])
    reach = BEYOND * np.where(bent, ends[1] - ends[0], 0)
    x = np.where(bent, np.clip(x, ends[0] - reach, ends[1] + reach), x)
    return np.concatenate([np.ones((len(x), 1)), x, np.asarray(pieces_of(at, x))], axis=1)


def structures(products: Products, features: int, at: Knots) -> dict[str, Structure]:
    """Mixed models by name, from the groups' cross products of `design_of` and the target.

    `mean` is the shrunken mean of the task. `ridge` adds independent slopes of the task, all of one
    variance. `intercept` has all inputs, with one prior variance for those that vary within groups
    and one for the others. `lines` adds the slopes of `ridge` to it, `slopes` random slopes of some
    inputs, `spline` a spline of some inputs, `curves` a spline for each task. `within-lines` (with
    several inputs) and `within-spline` do not shrink the intercept of the task.
    """
    within = _varies(products, features)
    lines = range(1, features + 1)
    fixed, prior = (0, *lines), (-1, *(int(within.any() and not within[j - 1]) for j in lines))
    found = {
        "mean": Structure((0,), (-1,), (0,)),
        "intercept": Structure(fixed, prior, (0,)),
    }
    able = [j for j in lines if within[j - 1]]
    if 0 < len(able) <= WIDE:
        found["ridge"] = Structure((0,), (-1,), (0,), tuple(able))
        found["lines"] = Structure(fixed, prior, (0,), tuple(able))
        if len(able) > 1:
            found["within-lines"] = found["lines"]._replace(within=True)
    slopes: tuple[int, ...] = ()
    model = fit_mixed(products, found["intercept"]).model
    for _ in range(min(SLOPES, len(able))):
        scores = {j: _slope_score(products, model, j) for j in able if j not in slopes}
        best = max(scores, key=lambda j: scores[j])
        if scores[best] < SLOPE_SCORE:
            break
        slopes = (*slopes, best)
        found["slopes"] = Structure(fixed, prior, (0, *slopes))
        model = fit_mixed(products, found["slopes"]).model
    places = {j: np.flatnonzero(at.column == j - 1) + features + 1 for j in able}
    bent = {j: _spline_score(products, model, some) for j, some in places.items() if len(some)}
    bent = {j: score for j, score in bent.items() if score > SPLINE_SCORE}
    chosen = sorted(bent, key=lambda j: bent[j], reverse=True)[:SPLINES]
    if chosen:
        pieces = tuple(int(place) for j in sorted(chosen) for place in places[j])
        both = (*fixed, *pieces), (*prior, *[max(prior) + 1] * len(pieces)), (0, *slopes)
        found["spline"] = Structure(*both)
        found["within-spline"] = found["spline"]._replace(within=True)
        own = slopes or (chosen[0],)
        found["curves"] = Structure(*both, tuple(int(p) for j in own for p in places[j]))
    return found


def _varies(products: Products, features: int) -> np.ndarray:
    """Which inputs vary within more than `VARIES` of the groups with several rows."""
    rows = products[:, 0, 0, None]
    at = np.arange(1, features + 1)
    spread = products[:, at, at] - products[:, 0, at] ** 2 / np.maximum(rows, 1e-12)
    several = rows[:, 0] > 1
    found = (spread > 1e-6 * np.maximum(products[:, at, at], 1e-6))[several]
    return found.mean(axis=0) > VARIES if len(found) else np.zeros(features, bool)


def _weighted(products: Products, model: MixedModel, columns: np.ndarray) -> np.ndarray:
    """X' V_i^-1 [X, e] of some columns X and the residual e = y - F b, for every group."""
    z, d, s = model.random, model.covariance, model.noise
    residual = products[:, :, -1] - products[:, :, model.fixed] @ model.beta
    a = products[:, z][:, :, z]
    post = np.linalg.solve(np.eye(len(z)) + d @ a / s, np.broadcast_to(d, a.shape))
    right = np.concatenate([products[:, :, columns], residual[..., None]], axis=2)
    left = products[:, columns][:, :, z]
    return (right[:, columns] - left @ post @ right[:, z] / s) / s


def _slope_score(products: Products, model: MixedModel, column: int) -> float:
    """sum_i ((x' V^-1 e)^2 - x' V^-1 x), over its standard deviation."""
    [own, e] = _weighted(products, model, np.array([column]))[:, 0].T
    return float((e**2 - own).sum() / np.sqrt(2 * (own**2).sum() + 1e-12))


def _spline_score(products: Products, model: MixedModel, columns: np.ndarray) -> float:
    """|X' V^-1 e|^2 - tr(X' V^-1 X), over its standard deviation; the products are over all."""
    found = _weighted(products, model, columns).sum(axis=0)
    own, e = found[:, :-1], found[:, -1]
    return float((e @ e - np.trace(own)) / np.sqrt(2 * (own**2).sum() + 1e-12))
