"""Linear mixed models of grouped rows, fitted by restricted maximum likelihood (REML), in numpy.

    h(y_i) = F_i b + Z_i u_i + e_i,    u_i ~ N(0, D),    e_i ~ N(0, s I),    b_j ~ N(0, t_c(j))

h is the identity or a logarithm (`links`). F are some columns of a design, Z some of them. Columns
of b that belong to a class c share a prior variance, which is estimated as D and s are; the others
have a flat prior. So inputs that few groups determine are shrunk, and pieces of a range are a
penalised spline.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from moml.algorithms.tabular.links import OWN, Link, mean_target

Products = Float[np.ndarray, "groups c c"]  # [F, y]' [F, y] of each group
BOUND = 12.0  # of logarithms of variance ratios
STARTS = ((-0.5, -1.0), (0.0, 0.5))  # log ratios: of correlated effects, and of shared variances
FREE = 1e6  # variance of an effect that is not shrunk, over that of the noise
FAR = 10.0  # standard deviations that a prediction is bounded to, unless `bounds` are narrower


class Structure(NamedTuple):
    """Which columns of a design have effects, and which variances they share."""

    fixed: tuple[int, ...]
    prior: tuple[int, ...]  # class of each fixed column; -1: a flat prior
    correlated: tuple[int, ...]  # columns whose random effects have a full covariance
    alike: tuple[int, ...] = ()  # columns with independent random effects of one variance
    within: bool = False  # the first random effect has variance `FREE` s: it is not shrunk


class MixedModel(NamedTuple):
    """A fitted model; h(y) has the mean design[:, fixed] @ beta + design[:, random] @ effects."""

    fixed: Int[np.ndarray, " p"]
    beta: Float[np.ndarray, " p"]
    random: Int[np.ndarray, " q"]
    covariance: Float[np.ndarray, "q q"]  # D
    noise: Float[np.ndarray, ""]  # s
    bounds: Float[np.ndarray, " 2"]  # predictions stay between them: lines go on for ever
    link: Link = OWN  # h


class Effects(NamedTuple):
    """The random effects of tasks given their rows: mean and covariance of a Gaussian."""

    mean: Float[np.ndarray, "*tasks q"]
    covariance: Float[np.ndarray, "*tasks q q"]


class Fit(NamedTuple):
    """A fitted model, and the logarithms of its variance ratios: a start for similar fits."""

    model: MixedModel
    theta: Float[np.ndarray, " parameters"]


def cross_products(
    design: Float[np.ndarray, "rows columns"],
    y: np.ndarray,
    groups: Sequence[np.ndarray],
    weights: np.ndarray | None = None,
) -> Products:
    """All that a fit needs of the rows of each group; a row of weight 2 counts as two."""
    both = np.column_stack([design, y]).astype(float)
    weigh = np.ones(len(both)) if weights is None else np.asarray(weights, float)
    return np.stack([both[rows].T @ (weigh[rows, None] * both[rows]) for rows in groups])


def fit_mixed(products: Products, structure: Structure, start: np.ndarray | None = None) -> Fit:
    """Fit a model by the groups' cross products; the first column of the design is 1.

    With D = s L L', T the prior precisions times s, M_i = I + L' Z_i' Z_i L and
    W = sum_i [F, y]' (I + Z_i L L' Z_i')^-1 [F, y], the REML deviance of n rows is

        (n - flat) log(r) + sum_i log|M_i| + log|W_FF + T| - log|T|,
        b = (W_FF + T)^-1 W_Fy,    r = W_yy - W_yF b,    s = r / (n - flat),

    where `flat` is the number of columns with a flat prior. A structure with `within` is what panel
    data call the fixed-effects or within estimator: the level of a group is its own.
    """
    from scipy.optimize import minimize

    fixed, random = [*structure.fixed], [*structure.correlated, *structure.alike]
    used, classes = [*fixed, -1], np.array(structure.prior)
    total = products.sum(axis=0)[np.ix_(used, used)]
    a, c = products[:, random][:, :, random], products[:, random][:, :, used]
    count, k, q = int(classes.max(initial=-1)) + 1, len(structure.correlated), len(random)
    lower, own = np.tril_indices(k), np.arange(k, q)
    diagonal, cut = lower[0] == lower[1], len(lower[0])
    free = float(products[:, 0, 0].sum()) - int((classes < 0).sum())

    def ratios(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """L [q, q], and the diagonal of T."""
        root = np.zeros((q, q))
        root[lower] = np.where(diagonal, np.exp(theta[:cut]), theta[:cut])
        root[own, own] = np.exp(theta[cut : cut + 1])
        logs = np.append(theta[len(theta) - count :], 0.0)
        return root, np.where(classes < 0, 0, np.exp(-2 * logs[classes]))

    def solved(theta: np.ndarray) -> tuple[float, np.ndarray, np.ndarray, float]:
        """The deviance, its gradient, b and r."""
        root, precision = ratios(theta)
        m = root.T @ a @ root + np.eye(q)
        inner = np.linalg.solve(np.linalg.cholesky(m), root.T)  # its square: G = L M^-1 L'
        half = (inner @ c).reshape(-1, len(used))  # the groups under each other
        w = total - half.T @ half
        damp = precision + 1e-9 * np.diag(total)[:-1]  # for columns that follow from others
        f = w[:-1, :-1] + np.diag(damp)
        inverse = np.linalg.inv(f)
        b = np.linalg.solve(f, w[:-1, -1])
        r = max(float(w[-1, -1] - w[-1, :-1] @ b), 1e-12 * float(total[-1, -1]) + 1e-30)
        logdet = lambda matrix: float(np.linalg.slogdet(matrix)[1].sum())
        prior = float(np.log(np.where(precision > 0, precision, 1)).sum())
        deviance = free * np.log(r) + logdet(m) + logdet(f) - prior

        # dW = -sum_i C_i' R_i dD R_i' C_i and d log|M_i| = tr(A_i R_i dD), with R_i = I - G_i A_i
        v = np.append(-b, 1.0)
        s = np.pad(inverse, (0, 1)) + free / r * np.outer(v, v)
        up = a @ np.swapaxes(inner, 1, 2)
        rest = c - up @ half.reshape(len(c), q, -1)  # R_i' C_i
        by_d = (a - up @ np.swapaxes(up, 1, 2)).sum(axis=0) - np.einsum(
            "iqu,uv,ipv->qp", rest, s, rest, optimize=True
        )
        by_root = 2 * by_d @ root
        by_prior = (free / r * b**2 + np.diag(inverse)) * precision - (classes >= 0)
        shared = np.bincount(classes[classes >= 0], -2 * by_prior[classes >= 0], count)
        gradient = np.concatenate(
            [
                by_root[lower] * np.where(diagonal, root[lower], 1.0),
                [(by_root * root)[own, own].sum()] * (q > k),
                shared,
            ]
        )
        return deviance, gradient, b, r

    starts = [start] if start is not None else [
        np.concatenate([np.where(diagonal, effects, 0.0), [shared] * (count + (q > k))])
        for effects, shared in STARTS
    ]  # fmt: skip
    bounds = [(-BOUND, BOUND)] * len(starts[0])
    if structure.within:
        bounds[0] = (np.log(FREE) / 2,) * 2
    value = lambda theta: solved(theta)[:2]
    found = [minimize(value, at, jac=True, method="L-BFGS-B", bounds=bounds) for at in starts]
    best = min(found, key=lambda result: result.fun).x
    root, (_, _, b, r) = ratios(best)[0], solved(best)
    noise = r / max(free, 1)
    return Fit(
        MixedModel(
            np.array(fixed), b, np.array(random), noise * root @ root.T, np.asarray(noise),
            np.array([-FAR, FAR]),
        ),
        best,
    )  # fmt: skip


def no_rows(model: MixedModel) -> Effects:
    """The effects of one task without rows."""
    return Effects(np.zeros((1, len(model.random))), model.covariance[None])


def update_effects(
    model: MixedModel,
    old: Effects,
    design: Float[np.ndarray, "tasks rows columns"],
    y: Float[np.ndarray, "tasks rows"],
    mask: Float[np.ndarray, "tasks rows"],
) -> Effects:
    """The effects of tasks after further rows with h(y) = `y`, exactly as if all came at once.

    C' = (I + C Z'Z / s)^-1 C,    m' = m + C' Z' (y - F b - Z m) / s
    """
    z = design[..., model.random] * mask[..., None]
    up = np.swapaxes(z, 1, 2)
    residual = mask * (y - design[..., model.fixed] @ model.beta)
    residual = residual - (z @ old.mean[..., None])[..., 0]
    gain = np.eye(z.shape[2]) + old.covariance @ (up @ z) / model.noise
    after = np.linalg.solve(gain, old.covariance)
    after = (after + np.swapaxes(after, 1, 2)) / 2
    move = after @ (up @ residual[..., None]) / model.noise
    return Effects(old.mean + move[..., 0], after)


def mixed_answer(
    model: MixedModel,
    effects: Effects,
    design: Float[np.ndarray, "rows columns"],
) -> Float[np.ndarray, " rows"]:
    """Predictions of rows, each with the effects of its task: the mean of y.

    h(y) ~ N(F b + Z m, s + Z C Z')
    """
    z, variance = design[:, model.random], np.zeros(len(design))
    given = design[:, model.fixed] @ model.beta + np.sum(z * effects.mean, axis=1)
    if model.link.size:
        variance = model.noise + np.einsum("rp,rpq,rq->r", z, effects.covariance, z)
    return mean_target(model.link, given, variance, model.bounds)
