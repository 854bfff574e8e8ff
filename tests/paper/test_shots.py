"""The verdicts on surfaces that are made up, so that the answers are known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import moml
from moml.algorithms.parts.schedule import decay_at
from moml.paper.cells import train
from moml.paper.shots.families import learner, training_tasks
from moml.paper.shots.study import FULL, SHOTS, Place, Plan, Surface
from moml.paper.shots.verdict import excess, floors, print_best, rows_of, surfaces_of, verdicts

PLAN = Plan(steps=(1, 10), seeds=3)
BETAS, ETAS = np.array([1.0, 0.5, 0.25]), np.array([0.001, 0.01])


def surface(errors, **place):
    where = Place("sine", 25, 1, 0.0, 40_000)._replace(**place)
    values = np.stack([errors, errors, errors], axis=-1)
    values[..., -1][np.isinf(errors)] = np.nan
    values[..., :-1][np.isinf(errors)] = 1.0
    return Surface(where, BETAS, ETAS, values, 240_000, 1.0)


def made(**place):
    """Errors 1, 2, 4 for falling beta at the second eta; the first eta is worse, one cell lost."""
    errors = np.ones((3, 2, len(SHOTS), 2)) * np.array([1.0, 2.0, 4.0])[:, None, None, None]
    errors[:, 0] *= 1.5
    errors[2, 0] = np.inf
    return surface(errors, **place)


def test_excess_is_over_the_best_and_interpolated_on_logarithms():
    errors = np.array([1.0, 2.0, 4.0])
    assert excess(BETAS, errors, 1.0, useless=9.0) == pytest.approx(0.0)
    assert excess(BETAS, errors, 0.5, useless=9.0) == pytest.approx(100.0)
    assert excess(BETAS, errors, np.sqrt(0.5), useless=9.0) == pytest.approx(100 * (2**0.5 - 1))
    assert excess(BETAS, np.array([1.0, np.inf, 1e300]), 0.5, useless=9.0) == pytest.approx(1000)
    assert np.isnan(excess(BETAS, errors, 0.5, useless=0.9))


def test_each_beta_is_taken_at_its_best_eta():
    assert made().best[:, 0, 0].tolist() == [1.0, 2.0, 4.0]


def test_verdicts_judge_each_way_by_its_beta():
    found = {(v.name, v.steps): v for v in verdicts([made()], PLAN)}
    assert found["maml", 1].mean == pytest.approx(0.0)
    assert found["beta = 0.1", 1].mean == pytest.approx(300.0)  # below all that were trained
    assert found["maml", 1].cells == len(SHOTS)
    assert 0 < found["the bare rule", 1].mean <= found["match_beta", 10].mean
    assert found["the bare rule", 10].worst == pytest.approx(300.0)


def test_the_floor_is_the_least_beta_near_the_best():
    errors = np.ones((3, 2, len(SHOTS), 2)) * np.array([2.0, 1.0, 1.05])[:, None, None, None]
    errors[2, 1] = 1.2
    assert floors(surface(errors)) == [(0.001, 0.5, 1.0, 0.25), (0.01, 0.5, 1.0, 0.5)]


def test_rows_become_the_same_surfaces_again():
    surfaces = [made(), made(k=2, noise=1.0, n=100)._replace(both_ways=True)]
    rows = [row for found in surfaces for row in rows_of(found, PLAN)]
    again, plan = surfaces_of(rows)
    assert plan.steps == PLAN.steps and plan.seeds == PLAN.seeds
    for one, other in zip(surfaces, again, strict=True):
        assert one.place == other.place and one.both_ways == other.both_ways
        for name in ("betas", "etas", "errors", "values"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert sum(row["lost"] for row in rows) == 2 * len(SHOTS) * 2


@pytest.mark.parametrize("rows", [[], {}, [{"setting": {}}], [1]])
def test_other_rows_are_refused(rows):
    with pytest.raises(moml.errors.DataError):
        surfaces_of(rows)


def test_the_full_plan_has_the_36_cells_and_families_that_were_not_fitted():
    places = FULL.places()
    waves = [place for place in places if (place.family, place.n) == ("sine", 25)]
    assert len(waves) * len(SHOTS) == 36
    assert {place.family for place in places} == {"sine", "bump", "ramp"}
    assert Place("sine", 400, 1, 0.0, 10_000) in places


def weights(samples):
    """Of each linear task's s in the best w for so many samples, see `families._lines`."""
    s = np.linspace(0.2, 1.0, 50)
    of = s**2 * ((1 - s**2) ** 2 + 2 * s**4 / samples)
    return s, of / of.sum()


@pytest.mark.parametrize("both_ways", [False, True])
def test_on_linear_tasks_memory_prepares_for_k_over_beta_samples(both_ways):
    """v1 with S2 = S1 ends where the best w for K / beta samples is, one way and both ways."""
    linear = learner("linear")
    done = train(
        "moml-v1", linear.loss, linear.init, training_tasks("linear", 50, 0.0), seeds=2, k=1,
        grid={"beta": [1.0, 0.1], "eta": [0.002], "alpha": [linear.alpha]}, iterations=12_000,
        schedule=decay_at(6_000), optimizer="adam", both_ways=both_ways,
    )  # fmt: skip
    ends = np.asarray(done.run.meta).reshape(2, 2).mean(axis=1)
    want = [np.sum(np.prod(weights(samples), axis=0)) for samples in (1, 10)]
    np.testing.assert_allclose(ends, want, rtol=0.02)
    assert abs(want[0] - want[1]) > 0.05


def test_linear_tasks_and_what_is_said_of_them(capsys):
    drawn = training_tasks("linear", 50, 0.0).draw(jax.random.key(0), jnp.array([0, 49]), 4000)
    np.testing.assert_allclose(drawn.x.std(axis=(1, 2)), [0.2, 1.0], rtol=0.05)
    np.testing.assert_allclose(drawn.y[0], 0.2 * drawn.x[0], rtol=1e-5)
    print_best([made(family="linear", n=50)])
    assert "K = 1, 10 shots: best beta 1 (error 1.00000); K / shots 0.1" in capsys.readouterr().out


def test_other_families_may_be_chosen():
    plan = Plan(ks=(1,), families=("sine", "linear"))
    assert [place[:2] for place in plan.places()] == [("sine", 25), ("linear", 50)]
