"""The theorem's measurement: its averages, its rows, its picture."""

import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moml.algorithms.parts.adapt import gradient_steps
from moml.algorithms.single.diagnostics import diagnose, samples_of
from moml.errors import ConfigError
from moml.methods import method
from moml.paper.theory import rates
from moml.paper.theory import study as theory
from moml.paper.theory.figure import LOOKS, theory_figure
from moml.paper.theory.logistic import LOSS, logistic, problem, watched
from moml.paper.theory.study import LINES, lines_of, run_theory, squared_bias
from moml.tasks.sampler import draw, fetch
from moml.training.compose import run_key
from moml.types import Hyper
from tests.algorithms.common import quick_jit
from tests.support.program import refused

ROW = (
    "table dataset setting method protocol metric mean std values seeds lost paper_mean paper_std "
    "samples iterations seconds"
)


def test_two_sums_give_the_average_of_the_iterates():
    tasks = logistic(jax.random.key(3))
    plain = method("moml-v1", LOSS, n=20, k=1).algorithm
    summing, hyper = watched(plain), Hyper(eta=0.1, beta=0.3, alpha=1.0)
    a, b = plain.init(jnp.zeros(10), hyper), summing.init(jnp.zeros(10), hyper)
    one, other = quick_jit(plain.step), quick_jit(summing.step)
    sample = quick_jit(lambda key: fetch(draw(key, plain.needs, tasks), tasks))
    path, sums = [], []
    for t in range(12):
        visit = sample(jax.random.key(t))
        before = a.meta
        (a, _), (b, _) = one(a, visit, hyper), other(b, visit, hyper)
        path.append(a.meta)
        sums.append(b.total)
        np.testing.assert_array_equal(b.ids, visit.ids)
        np.testing.assert_allclose(b.before, before, rtol=1e-12)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-12), a, b.inner)
    np.testing.assert_allclose((sums[11] - sums[8]) / 3, np.mean(path[9:], axis=0), rtol=1e-12)


@pytest.mark.parametrize("s2", ["independent", "shared"])
def test_every_line_composes(s2):
    made = problem(jax.random.key(0))
    options = {line.label: theory.compose(line, s2, made, theory.ETA).options for line in LINES}
    assert {name for name, of in options.items() if of.get("tasks_per_step") != 3} == {
        "scgd", "nasa",
    }  # fmt: skip


def test_squared_bias_is_that_of_all_pairs_of_seeds():
    grads = np.random.default_rng(0).normal(size=(2, 4, 3))
    pairs = [grads[0, i] @ grads[0, j] for i in range(4) for j in range(4) if i != j]
    np.testing.assert_allclose(squared_bias(grads)[0].mean(), np.mean(pairs), rtol=1e-12)
    lost = np.concatenate([grads, np.full((2, 1, 3), np.nan)], axis=1)  # takes no part
    np.testing.assert_allclose(squared_bias(lost)[:, :4], squared_bias(grads), rtol=1e-12)
    assert np.isnan(squared_bias(lost[:, 3:])).all()


@pytest.fixture(scope="module")
def small():
    seen = []
    chosen = ["moml-v1", "moml-v1-scheduled", "moml-v2-theorem"]
    plan = {0.002: 320, 0.0005: 320}
    found = run_theory(lines_of(chosen), plan, seeds=2, progress=False, done=seen.append)
    assert seen == found
    return found


@pytest.fixture(scope="module")
def rows(small):
    return [row for measured in small for row in theory.rows_of(measured)]


def test_rows_have_the_form_of_all_tables(rows):
    for row in rows:
        assert list(row) == ROW.split()
        assert (row["table"], row["dataset"], row["seeds"], row["lost"]) == (
            "theory",
            "logistic",
            2,
            0,
        )
        assert {"k", "eta", "beta", "s2"} == set(row["setting"])
        assert row["protocol"] == {"independent": "paper", "shared": "strict"}[row["setting"]["s2"]]
        assert row["mean"] > 0 or row["metric"] == "squared_bias"
    json.dumps(rows, allow_nan=False)
    of = lambda **want: [r for r in rows if all(r[name] == want[name] for name in want)]
    assert len(of(metric="gap_at_average")) == 3 * 2 * 2  # methods, etas, S2
    drawn = {r["method"]: r["samples"] for r in of(protocol="paper", metric="gap_at_average")}
    assert drawn["moml-v1"] == drawn["moml-v1-scheduled"]
    extra = drawn.pop("moml-v2-theorem") * 9 / (9 + 3 * 20)  # without those for its step sizes
    assert extra == pytest.approx(drawn["moml-v1"], rel=0.15)  # alike, but for rounding


def test_the_floor_is_that_of_the_average_of_the_last_quarter(small):
    """Against the same run step by step."""
    tasks, hyper = logistic(jax.random.key(0)), Hyper(eta=0.002, beta=0.02, alpha=1.0)
    algorithm = method("moml-v1", LOSS, n=20, k=1, independent_hessian=True).algorithm
    visit = lambda key: fetch(draw(key, algorithm.needs, tasks), tasks)
    step = quick_jit(lambda state, key: algorithm.step(state, visit(key), hyper)[0])
    state, path = algorithm.init(jnp.zeros(10), hyper), []
    for t in range(320):
        state = step(state, jax.random.fold_in(run_key(1), t))
        path.append(np.asarray(state.meta))
    exact = quick_jit(diagnose(LOSS, gradient_steps(LOSS), 20, samples_of(tasks)))
    gaps = [
        float(exact(jnp.asarray(w), hyper).gap)
        for w in (*path[249::10], np.mean(path[240:], axis=0))
    ]
    m = small[0]
    got = [m.readings[name][1] for name in ("gap_at_average", "mean_gap")]
    np.testing.assert_allclose(got, [gaps[-1], np.mean(gaps[:-1])], rtol=1e-9)
    assert m.curve[-1, 1] == m.readings["gap_at_average"][1]
    assert (m.line.label, m.iterations, m.samples[-1]) == ("moml-v1", 320, 320 * 9)


def test_the_schedule_of_beta(rows):
    mine = [r for r in rows if r["method"] == "moml-v1-scheduled"]
    betas = {r["setting"]["eta"]: r["setting"]["beta"] for r in mine}
    np.testing.assert_allclose([betas[0.002], betas[0.0005]], [0.02, 0.02 * 4 ** (-2 / 3)])


def test_both_pictures_are_written(small, tmp_path):
    assert set(LOOKS) == {line.label for line in LINES}
    picture = theory_figure(small, tmp_path / "theory")
    assert picture == tmp_path / "theory.png"
    assert all((tmp_path / f"theory{end}").stat().st_size > 10_000 for end in (".png", ".svg"))


def test_a_lost_seed_is_counted_and_left_out(small):
    m = small[0]
    lost = {name: np.array([np.nan, 3.0]) for name in m.readings}
    row = theory.rows_of(m._replace(readings=lost))[0]
    assert (row["lost"], row["mean"], row["std"]) == (1, 3.0, 0.0)


def test_an_unknown_method_is_named():
    with pytest.raises(ConfigError, match=r"methods must be one of maml, moml-v1.*; got 'mamml'"):
        lines_of(["mamml"])


def test_constants_of_the_tasks():
    """Against differences of gradients over the samples, task by task."""
    made = problem(jax.random.key(0))
    data = made.tasks.full(jnp.arange(20))
    one = lambda x, y: 2 * (0.5 - y) * 0.25 * x  # the gradient of (sigmoid(w.x) - y)^2 at w = 0
    grads = np.asarray(jax.vmap(jax.vmap(one))(data.x, data.y))
    means = grads.mean(axis=1)
    spread = ((grads - means[:, None]) ** 2).sum(axis=-1).mean(axis=1)
    np.testing.assert_allclose(made.constants.gradient_noise, np.sqrt(spread.max()), rtol=1e-6)
    apart = ((means - means.mean(axis=0)) ** 2).sum(axis=-1).mean()
    np.testing.assert_allclose(made.constants.dissimilarity, np.sqrt(apart), rtol=1e-6)


def test_rates_follow_the_powers_of_the_papers_tables():
    """Halving eps takes 2^p times the samples of a step and its extras, for every line with p."""
    for rate in rates.RATES:
        if rate.power is None or rate.label == "moml-v1, theorem 1":
            continue
        one, half = (rate.at(eps, 20) for eps in (0.02, 0.01))
        per_step = half.options.get("k", 1) / one.options.get("k", 1)
        grown = half.iterations / one.iterations * per_step
        assert grown == pytest.approx(2**rate.power, rel=0.02), rate.label
    own = rates.theorem_1(0.1, 20)
    assert own.eta == pytest.approx(20**-0.4 * own.iterations**-0.6)
    assert own.beta == pytest.approx(20**0.4 * own.iterations**-0.4)


def test_slopes_are_those_of_each_seed(tmp_path):
    samples = np.array([1e3, 4e3, 16e3])
    gaps = np.stack([3 * samples**-0.4, 5 * samples**-0.5], axis=1)
    both = dict.fromkeys(rates.METRICS, gaps)
    setting = rates.v1(1.0, 20)
    curve = rates.Curve(rates.RATES[3], 20, [setting] * 3, samples, both, 1.0)
    np.testing.assert_allclose(curve.slopes("mean_gap_at_end"), [-0.4, -0.5], rtol=1e-9)
    rows = rates.rows_of(curve)
    assert len(rows) == 6 and all(list(row) == ROW.split() for row in rows)
    assert rates.rates_figure([curve], tmp_path / "rates").stat().st_size > 10_000


def test_rates_are_measured_along_the_run(capsys):
    (curve,) = rates.run_rates(rates.rates_of(["localmoml, carried"]), horizons=2, seeds=1,
                               progress=False)  # fmt: skip
    assert curve.samples[1] > 3 * curve.samples[0]
    assert np.isfinite(curve.gaps["mean_gap_of_run"]).all()
    rates.print_rates([curve])
    assert "localmoml, carried" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--horizons", "1"], "horizons must be"),
        (["--methods", "moml"], "methods must be one of maml, K = 1, maml (bsgd)"),
    ],
)
def test_mistakes_in_rates_are_one_line(tmp_path, capsys, words, said):
    command = ("reproduce", "theory", "--rates", "--out", tmp_path)
    assert said in refused(capsys, *command, *words)
