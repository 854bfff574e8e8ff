"""The verdicts on surfaces that are made up, so that the answers are known."""

import numpy as np
import pytest

import moml
from moml.paper.shots.study import FULL, SHOTS, Place, Plan, Surface
from moml.paper.shots.verdict import excess, floors, rows_of, surfaces_of, verdicts

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
    with pytest.raises(moml.DataError):
        surfaces_of(rows)


def test_the_full_plan_has_the_36_cells_and_families_that_were_not_fitted():
    places = FULL.places()
    waves = [place for place in places if (place.family, place.n) == ("sine", 25)]
    assert len(waves) * len(SHOTS) == 36
    assert {place.family for place in places} == {"sine", "bump", "ramp"}
    assert Place("sine", 400, 1, 0.0, 10_000) in places
