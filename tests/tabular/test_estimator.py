import pickle
import sys

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from moml.cli import main
from moml.estimator import KnownRows
from moml.tabular.estimator import UNMET, MomlClassifier, MomlRegressor
from moml.tabular.run import load_table_run
from tests.support.often import often
from tests.support.small_table import some, users, written

QUICK = {"iterations": 60, "members": 1}
SETTINGS = QUICK | {"shots": 4, "order": "day", "kinds": ["head"]}
INPUTS = ["day", "x", "kind"]


def moml(*words):
    """The program, in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["moml", *map(str, words)])
        main()


def parts(table):
    """X, y and groups of a table of users."""
    frame = pd.DataFrame(table)
    return frame[INPUTS], table["y"], table["user"]


@pytest.fixture(scope="module")
def table():
    return users(60, seed=0)


@pytest.fixture(scope="module")
def new():
    """A user that training has not seen."""
    table = users(1, seed=5, first=900)
    return some(table, np.argsort(table["day"]))


@pytest.fixture(scope="module")
def fitted(table):
    X, y, groups = parts(table)
    return MomlRegressor(**SETTINGS).fit(X, y, groups=groups)


@pytest.mark.filterwarnings("ignore:fit without groups")
@pytest.mark.parametrize("kind", often([MomlRegressor, MomlClassifier], [MomlRegressor]))
def test_scikit_learns_own_checks(kind):
    quick = kind(**QUICK, kinds=["head"])  # it is fitted more than 80 times
    found = check_estimator(quick, expected_failed_checks=UNMET, on_skip=None)
    by_status = {}
    for row in found:
        by_status.setdefault(row["status"], set()).add(row["check_name"])
    assert by_status.keys() == {"passed", "xfail", "skipped"} and len(by_status["passed"]) > 40
    assert by_status["xfail"] == UNMET.keys()
    assert by_status["skipped"] == {"check_array_api_input"}  # arrays of other libraries


def test_it_is_what_the_command_does(table, fitted, tmp_path):
    rows = written(tmp_path, "users.parquet", table)
    words = ["--task", "user", "--target", "y", "--order", "day", "--shots", "4"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("moml.tabular.fitting.fit.candidates", lambda shape: ("head",))
        patch.setattr("moml.tabular.train.FEW", 0)  # networks alone, as with `kinds`
        few = ["--iterations", "60", "--members", "1"]
        moml("train", "--data", rows, *words, *few, "--out", tmp_path / "run")
    moml("predict", tmp_path / "run", "--data", rows, "--out", tmp_path / "out.parquet")
    told = pq.read_table(tmp_path / "out.parquet")["prediction"].to_numpy()
    X, y, groups = parts(table)
    np.testing.assert_allclose(fitted.predict(X, groups=groups), told, rtol=1e-9)
    run = load_table_run(tmp_path / "run")
    assert set(fitted.run_.about["trained"]) == set(groups.tolist())  # the second training too
    for ours, its in zip(fitted.run_.evaluation, run.evaluation, strict=True):
        assert ours == its | {"mean": pytest.approx(its["mean"]), "std": pytest.approx(its["std"])}
    assert fitted.score(X, y, groups=groups) > fitted.score(X, y) + 0.1


def test_a_fitted_one_is_a_run_for_the_commands(table, fitted, tmp_path):
    X, _, groups = parts(table)
    fitted.run_.save(tmp_path / "run")
    made = load_table_run(tmp_path / "run").predict(X.assign(group=groups))
    np.testing.assert_array_equal(made["prediction"], fitted.predict(X, groups=groups))


def test_adapting_gives_another_one(table, fitted, new):
    X, y, user = parts(new)
    before = fitted.predict(X)
    mine = fitted.adapt(X[:4], y[:4])
    assert type(mine) is MomlRegressor and mine.get_params() == fitted.get_params()
    np.testing.assert_array_equal(fitted.predict(X), before)
    run, rows = fitted.run_, X.assign(group=user)
    told = run.predict(rows, adapt_on=rows[:4].assign(target=y[:4]))["prediction"]
    np.testing.assert_allclose(mine.predict(X), told, rtol=1e-9)
    assert np.abs(told - before).max() > 0.1
    named = fitted.adapt(X[:4], y[:4], groups=user[:4])
    np.testing.assert_allclose(named.predict(X, groups=user), told, rtol=1e-9)
    np.testing.assert_array_equal(named.predict(X), before)
    X, y, groups = parts(table)
    np.testing.assert_array_equal(named.predict(X, groups), fitted.predict(X, groups))


def test_later_rows_of_the_same_task(fitted, new):
    X, y, user = parts(new)
    twice = fitted.adapt(X[:3], y[:3]).adapt(X[3:5], y[3:5])
    again = fitted.adapt(X[:3], y[:3], user[:3]).adapt(X[3:5], y[3:5], user[3:5])
    np.testing.assert_allclose(twice.predict(X), again.predict(X, user), rtol=1e-9)
    assert twice.run_.tasks.rows[-1] == 5


def test_intervals(table, fitted):
    X, y, groups = parts(table)
    bounds, wide = fitted.predict_interval(X, groups), fitted.predict_interval(X, interval=0.95)
    assert bounds.shape == (len(y), 2) and np.mean((bounds[:, 0] < y) & (y < bounds[:, 1])) > 0.6
    assert (np.diff(wide) > np.diff(fitted.predict_interval(X, interval=0.5))).all()


def test_pickles_and_clones(table, fitted, new):
    X, y, groups = parts(table)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict(X, groups), fitted.predict(X, groups))
    X, y, _ = parts(new)
    mine, same = fitted.adapt(X[:4], y[:4]), again.adapt(X[:4], y[:4])
    np.testing.assert_array_equal(same.predict(X), mine.predict(X))
    assert clone(fitted).get_params() == fitted.get_params() and not hasattr(clone(fitted), "run_")


def test_frames(fitted, new):
    X, y, _ = parts(new)
    assert fitted.feature_names_in_.tolist() == INPUTS and fitted.n_features_in_ == 3
    odd = X.assign(kind=["z", None, *X["kind"][2:]], x=[np.nan, *X["x"][1:]])
    assert np.isfinite(fitted.predict(odd.set_index("day", drop=False))).all()
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(X.rename(columns={"x": "z"}))
    with pytest.raises(ValueError, match="row 1: 'a' is not a number"):
        fitted.predict(X.assign(x="a"))
    with pytest.raises(ValueError, match="unique column names"):
        fitted.adapt(X.set_axis(["x", "x", "x"], axis=1), y)


def test_classes_by_their_names(table):
    X, y, groups = parts(table)
    high = np.where(y > 20, "high", "low")
    made = MomlClassifier(**SETTINGS | {"kinds": ["steps"], "refit": False})
    made = made.fit(X.assign(group=X["day"]), high, groups)  # a name that we use ourselves
    X = X.assign(group=X["day"])
    shares = made.predict_proba(X, groups)
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert made.classes_.tolist() == ["high", "low"]
    assert (made.predict(X, groups) == made.classes_[shares.argmax(axis=1)]).all()
    assert made.score(X, high, groups) > made.score(X, high) > 0.5
    with pytest.raises(ValueError, match="class other, which fit has not seen"):
        made.adapt(X[:2], ["high", "other"])
    mine = made.adapt(X[:2], ["low", "low"])
    assert mine.predict_proba(X)[:, 1].mean() > made.predict_proba(X)[:, 1].mean() + 0.05


def test_weights_and_no_groups():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3))
    y, wrong = x[:, 0], rng.random(200) < 0.3
    with pytest.warns(UserWarning, match="one pooled model"):
        made = MomlRegressor(**QUICK).fit(x, np.where(wrong, 50, y), sample_weight=1.0 * ~wrong)
    assert np.abs(made.predict(x) - y)[~wrong].max() < 20
    np.testing.assert_array_equal(made.predict(x, groups=np.arange(200)), made.predict(x))
    for call in (lambda: made.adapt(x, y), lambda: made.predict_interval(x)):
        with pytest.raises(ValueError, match="groups"):
            call()


def test_what_is_refused(table):
    X, y, groups = parts(table)
    refused = {
        "inconsistent": lambda: MomlRegressor().fit(X, y, groups[:-1]),
        "one task": lambda: MomlRegressor().fit(X, y, np.zeros(len(y), int)),
        "row 3 has no value, but it is the task": lambda: MomlRegressor().fit(
            X, y, [None if i == 2 else id_ for i, id_ in enumerate(groups)]
        ),
        "missing must be one of": lambda: MomlRegressor(missing="drop").fit(X, y, groups),
        r"kinds must be some of summary, head, steps; got \['tree'\]": lambda: MomlRegressor(
            kinds=["tree"]
        ).fit(X, y, groups),
        "kinds must be a list of names; got 'head'": lambda: MomlRegressor(kinds="head").fit(
            X, y, groups
        ),
        "column days": lambda: MomlRegressor(order="days").fit(X, y, groups),
        "one of the 3 columns of X; got 7": lambda: MomlRegressor(order=np.int64(7)).fit(
            X, y, groups
        ),
        "numbers, or use MomlClassifier; got <U": lambda: MomlRegressor().fit(
            X, y.astype(str), groups
        ),
    }
    for words, call in refused.items():
        with pytest.raises(ValueError, match=words):
            call()


def test_truth_values_are_numbers_for_a_regressor(table):
    X, y, groups = parts(table)
    settings = QUICK | {"iterations": 2, "kinds": ["head"], "refit": False}
    with pytest.warns(UserWarning, match="one pooled model"):
        made = MomlRegressor(**settings).fit(X, y > 20)
    assert made.predict(X).dtype.kind == "f"
    made = MomlRegressor(**settings | {"order": np.int64(0)}).fit(X, y > 20, groups)
    assert made.predict(X, groups).dtype.kind == "f" and made.run_.about["order"] == "day"
    with pytest.raises(ValueError, match=r"groups must have an id for each of .* rows; got 3"):
        made.predict(X, groups[:3])
    assert repr(made.run_) == "TableRun(folder=None)"


def test_cross_validation_by_groups():
    who = np.repeat(np.arange(24), 6)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(len(who), 2))
    y = 3 + x[:, 0] + rng.normal(size=24)[who]
    made = MomlRegressor(**QUICK, kinds=["head"], refit=False, shots=3)
    with config_context(enable_metadata_routing=True):
        asks = made.set_fit_request(groups=True).set_score_request(groups=True)
        told = cross_validate(
            asks,
            x,
            y,
            params={"groups": who},
            cv=GroupKFold(2),
            return_estimator=True,
            return_indices=True,
        )
        for each in told["estimator"]:
            assert len(each.run_.tasks.places) == 12  # the groups of a fold
        line = make_pipeline(StandardScaler(), asks)
        grid = {"standardscaler__with_std": [True, False]}
        search = GridSearchCV(line, grid, cv=GroupKFold(2), refit=False).fit(x, y, groups=who)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    alone = make_pipeline(StandardScaler(), told["estimator"][0])  # its programs are there already
    fold = told["indices"]["train"][0]
    alone.fit(x[fold], y[fold], momlregressor__groups=who[fold])
    assert alone.predict(x, groups=who).shape == y.shape


def by_hand(model, X, y, groups, k, after):
    """R² of the rows from `after` on, group by group in plain Python."""
    truth, said = [], []
    for one in np.unique(groups):
        rows = np.flatnonzero(groups == one)
        rows = rows[np.argsort(X["day"].to_numpy()[rows], kind="stable")]
        known, asked = rows[:k], rows[after:]
        mine = model.adapt(X.iloc[known], y[known], groups[known]) if k else model
        truth.extend(y[asked])
        said.extend(mine.predict(X.iloc[asked], groups[asked]))
    truth, said = np.array(truth), np.array(said)
    return 1 - np.sum((truth - said) ** 2) / np.sum((truth - truth.mean()) ** 2)


def test_known_rows_score_personalisation_as_by_hand(table):
    X, y, groups = parts(table)
    folds = GroupKFold(2)
    several = {str(k): KnownRows(k, after=3, cv=folds) for k in (0, 3)}
    several["rmse"] = KnownRows(3, scoring="neg_root_mean_squared_error", cv=folds)
    with config_context(enable_metadata_routing=True):
        model = MomlRegressor(**SETTINGS).set_fit_request(groups=True)
        made = cross_validate(
            model, X, y, params={"groups": groups}, cv=several["3"], scoring=several,
            return_estimator=True,
        )  # fmt: skip
    for i, (train, test) in enumerate(folds.split(X, y, groups)):
        assert not set(groups[train]) & set(groups[test])
        part = X.iloc[test], y[test], groups[test]
        for k in (0, 3):
            wanted = by_hand(made["estimator"][i], *part, k, 3)
            np.testing.assert_allclose(made[f"test_{k}"][i], wanted, rtol=1e-5)
        assert made["test_3"][i] > made["test_0"][i] and made["test_rmse"][i] < 0


class Means:
    """Predicts the mean of a group's known rows, 0 of unknown ones."""

    order = None

    def __init__(self, means=()):
        self.means = dict(means)

    def fit(self, X, y, groups=None):
        return self

    def adapt(self, X, y, groups):
        return Means({one: y[groups == one].mean() for one in np.unique(groups)})

    def predict(self, X, groups=None):
        return np.array([self.means.get(one, 0.0) for one in groups])

    def score(self, X, y):
        return -np.abs(self.predict(X) - y).mean()


def test_known_rows_are_the_first_as_given():
    groups = np.array(["b", "a", "b", "a", "b", "c"])
    y, X = np.array([1.0, 2.0, 3.0, 4.0, 8.0, 9.0]), np.zeros((6, 1))
    assert KnownRows(1)(Means(), X, y, groups) == -np.mean([2, 2, 7])  # of c no row is left
    assert KnownRows(2)(Means(), X, y, groups) == -6
    assert KnownRows(0, after=2)(Means(), X, y, groups) == -8


def test_known_rows_of_a_pipeline_are_those_of_its_last_step():
    groups, y = np.repeat([0, 1], 3), np.array([1.0, 2.0, 3.0, 4.0, 8.0, 9.0])
    X = np.arange(6.0)[:, None]
    line = make_pipeline(StandardScaler(), MomlRegressor(**QUICK, kinds=["head"], refit=False))
    line.fit(np.tile(X, (4, 1)), np.tile(y, 4), momlregressor__groups=np.repeat(np.arange(8), 3))
    alone = KnownRows(1)(line[-1], line[:-1].transform(X), y, groups + 8)
    assert KnownRows(1)(line, X, y, groups + 8) == alone


def test_known_rows_are_checked():
    X, y, groups = np.zeros((4, 1)), np.arange(4.0), np.array([0, 0, 1, 1])
    with pytest.raises(ValueError, match="must have more than 2 rows; the largest has 2"):
        KnownRows(2)(Means(), X, y, groups)
    with pytest.raises(ValueError, match="needs groups"):
        KnownRows(1)(Means(), X, y)
    with pytest.raises(ValueError, match="k must be"):
        KnownRows(-1).split(X, y, groups)
    with pytest.raises(ValueError, match="after must be"):
        KnownRows(2, after=1)(Means(), X, y, groups)
    assert KnownRows(1).get_n_splits() == 5
