"""The parts of the table recipe, each against numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moml.algorithms.parts.adapt import named, shrinking_steps
from moml.algorithms.parts.heads import LinearHead, closed_form
from moml.algorithms.tabular.members import Shape, candidates, parts
from moml.algorithms.tabular.summary import summary_of
from moml.models.table import knots
from moml.types import Batch, Hyper

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(6, 3)), RNG.normal(size=6)
HYPER = Hyper(eta=jnp.asarray(0.1), beta=jnp.asarray(1.0), alpha=jnp.asarray(0.05))
MASK = np.array([1.0, 1, 0, 1, 0, 0])
PADDED = Batch(jnp.asarray(X), jnp.asarray(Y), jnp.asarray(MASK))
REAL = Batch(PADDED.x[MASK > 0], PADDED.y[MASK > 0], PADDED.mask[MASK > 0])


def linear(params, batch):
    error = batch.x @ params["head"] + params["rest"] - batch.y
    return jnp.sum(batch.mask * error**2) / jnp.sum(batch.mask)


def test_steps_shrink_with_few_rows():
    params = {"head": jnp.asarray(RNG.normal(size=3)), "rest": jnp.asarray(0.3)}
    adapt = shrinking_steps(linear, 2, leaves=named("head"))
    meta = adapt.init(params, HYPER)
    w, rows = np.asarray(params["head"]), MASK > 0
    for _ in range(2):
        error = X[rows] @ w + 0.3 - Y[rows]
        w = w - 0.05 * 3 / (3 + 3) * 2 * X[rows].T @ error / 3
    given = adapt.apply(meta, PADDED, HYPER)
    np.testing.assert_allclose(given["head"], w, rtol=1e-12)
    assert given["rest"] is None


def test_the_step_sizes_and_tau_are_learned():
    params = {"head": jnp.zeros(3), "rest": jnp.asarray(0.0)}
    adapt = shrinking_steps(linear, 1, leaves=named("head"))
    loss = lambda meta: linear(adapt.merge(meta, adapt.apply(meta, REAL, HYPER)), REAL)
    grad = jax.grad(loss)(adapt.init(params, HYPER))
    assert grad.log_tau != 0 and (grad.log_alpha["head"] != 0).all()


def head_of(params):
    return params["head"]


@pytest.mark.parametrize("rows", [2, 6])  # of 4 columns with the bias: either way to solve
def test_a_head_with_a_prior_of_its_own_for_each_feature(rows):
    features = lambda params, x: x
    head = LinearHead(jnp.asarray(RNG.normal(size=(1, 3))), jnp.asarray([0.2]))
    beside = lambda params, x: jnp.full((len(x), 1), 0.7)
    adapt = closed_form(features, head_of, beside=beside, by_feature=True)
    meta = adapt.init({"head": head}, HYPER)
    prior = RNG.uniform(0.1, 2.0, size=4)
    meta = meta._replace(
        log_prior=LinearHead(jnp.log(prior[:3]), jnp.log(prior[3])), log_noise=jnp.log(0.5)
    )
    batch = jax.tree.map(lambda leaf: leaf[:rows], PADDED)._replace(mask=None)
    f = np.column_stack([X[:rows], np.ones(rows)])
    mean = np.append(np.asarray(head.weight)[0], 0.2)
    residual = Y[:rows] - f @ mean - 0.7
    wanted = mean + np.linalg.solve(f.T @ f / 0.5 + np.diag(1 / prior), f.T @ residual / 0.5)
    given = adapt.apply(meta, batch, HYPER)
    np.testing.assert_allclose(given.weight[0], wanted[:3], rtol=1e-9)
    np.testing.assert_allclose(given.bias[0], wanted[3], rtol=1e-9)


@pytest.mark.parametrize("ordered", [True, False])
def test_a_summary_of_the_real_rows_and_one_without_each(ordered):
    summarise, leave_out = summary_of(lambda x: x, lambda y: y[:, None], ordered)

    def wanted(x, y):
        k = len(y)
        mean, centre = y.sum() / (k + 1), y.sum() / max(k, 1)
        spread = np.sqrt((((y - centre) ** 2).sum() + 1e-6) / (k + 1))
        newest = [y[-1], *x[-1]] if k else [0.0] * 4
        return [mean, spread, k / (k + 3), *(x.sum(axis=0) / (k + 1)), *(newest if ordered else [])]

    rows = np.flatnonzero(MASK)
    np.testing.assert_allclose(summarise(PADDED), wanted(X[rows], Y[rows]), rtol=1e-12)
    each = leave_out(PADDED)
    for i in rows:
        others = rows[rows != i]
        np.testing.assert_allclose(each[i], wanted(X[others], Y[others]), rtol=1e-12)
    one = Batch(PADDED.x[:1], PADDED.y[:1], PADDED.mask[:1])
    np.testing.assert_allclose(leave_out(one)[0], wanted(X[:0], Y[:0]), atol=1e-12)


@pytest.mark.parametrize(("classes", "ordered"), [(None, True), (3, False)])
def test_padding_changes_no_member(classes, ordered):
    shape = Shape(3, classes, ordered)
    y = PADDED.y if classes is None else jnp.asarray([0, 1, 2, 2, 1, 0], jnp.int32)
    for kind in (*candidates(shape), "pooled"):
        made = parts(kind, shape, knots(X))
        meta = made.adapt.init(made.init(jax.random.key(0)), HYPER)
        answers = []
        for rows in (slice(None), np.flatnonzero(MASK)):
            batch = Batch(PADDED.x[rows], y[rows], PADDED.mask[rows])
            mine = made.adapt.merge(meta, made.adapt.apply(meta, batch, HYPER))
            answers.append(made.answer(mine, PADDED.x))
        np.testing.assert_allclose(*answers, rtol=1e-9)
        none = made.adapt.apply(meta, PADDED._replace(y=y, mask=jnp.zeros(6)), HYPER)
        jax.tree.map(np.testing.assert_allclose, none, made.adapt.start(meta))


def test_summaries_of_very_many_rows_cost_no_square_of_them():
    """100,000 rows: a matrix of rows by rows would have 80 GB."""
    n, rng = 100_000, np.random.default_rng(0)
    x, y = rng.normal(size=(n, 2)), rng.normal(size=n)
    _, leave_out = summary_of(lambda x: x, lambda y: y[:, None], True)
    each = leave_out(Batch(jnp.asarray(x), jnp.asarray(y), jnp.ones(n)))
    for i in (0, n - 1):
        others = np.delete(np.arange(n), i)
        np.testing.assert_allclose(each[i, 0], y[others].sum() / n, rtol=1e-9)
        np.testing.assert_allclose(each[i, -2:], x[others[-1]], rtol=1e-12)
