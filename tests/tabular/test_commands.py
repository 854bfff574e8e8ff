import json
import shutil
import signal
import sys

import jax
import numpy as np
import pyarrow.parquet as pq
import pytest

from moml.cli import main
from moml.data import read_table
from moml.errors import ConfigError
from moml.tabular.fitting import fit as table_fit
from moml.tabular.run import load_table_run
from moml.tabular.store import building
from moml.tabular.train import train_table
from tests.support.processes import begun
from tests.support.services import mlflow_runs, services, tensorboard_rows, wandb_runs  # noqa: F401
from tests.support.small_table import some, users, written

MODELS = ["personal", "pooled", "per-task", "shrunken-mean", "lightgbm"]
SMALL = ["--iterations", "60", "--members", "1", "--no-refit"]


def moml(*words):
    """The program, in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["moml", *map(str, words)])
        main()


def refused(capsys, *words):
    """The one line with which the program refuses."""
    with pytest.raises(SystemExit) as stopped:
        moml(*words)
    assert stopped.value.code == 2
    said = capsys.readouterr().err.strip()
    assert said.startswith("moml: ") and "\n" not in said
    return said


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tables")


@pytest.fixture(scope="module")
def table(folder):
    return written(folder, "users.csv", users(110, seed=0))


@pytest.fixture(autouse=True, scope="module")
def quick():
    """One kind of members instead of two, compiled without much ado: that is where time goes.

    A part is held out, as of tables with many tasks.
    """
    name = "jax_disable_most_optimizations"
    before = jax.config.read(name)
    jax.config.update(name, True)
    one = lambda shape: "custom" if shape.build else "steps" if shape.classes else "head"
    kinds = lambda shape: (one(shape),)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_fit, "candidates", kinds)
        patch.setattr("moml.tabular.train.FEW", 100)
        yield
    jax.config.update(name, before)


@pytest.fixture(scope="module")
def run(folder, table, quick):
    """A run, begun as people begin it."""
    words = ["--data", table, "--task", "user", "--target", "y", "--order", "day"]
    moml("train", *words, "--shots", "4", *SMALL, "--out", folder / "run")
    return folder / "run"


def test_the_kept_model_has_learned_from_all_tasks(run, table, tmp_path, capsys):
    words = ["--data", table, "--task", "user", "--target", "y", "--order", "day", "--shots", "4"]
    moml("train", *words, *SMALL[:-1], "--out", tmp_path / "whole")
    assert "training again, on all 110 tasks" in capsys.readouterr().out
    whole, part = load_table_run(tmp_path / "whole"), load_table_run(run)
    assert whole.evaluation == part.evaluation  # of the model that had not seen those tasks
    assert set(whole.about["trained"]) == set(part.about["trained"]) | set(part.about["held_out"])
    assert set(part.about["trained"]).isdisjoint(part.about["held_out"])
    leaves = lambda found: jax.tree.leaves(found.model.metas)
    assert any(not np.array_equal(a, b) for a, b in zip(leaves(whole), leaves(part), strict=False))
    assert "that training has not seen" in refused(
        capsys, "evaluate", tmp_path / "whole", "--data", table
    )


def test_services_get_losses_and_scores(services, run, table, tmp_path, capsys):  # noqa: F811
    words = ["--data", table, "--task", "user", "--target", "y", "--order", "day", "--shots", "4"]
    words += ["--log", "wandb", "mlflow", "tensorboard"]
    moml("train", *words, *SMALL[:-1], "--out", tmp_path / "mine")
    (mine,), (theirs,) = wandb_runs(services), mlflow_runs(services)
    assert mine["name"] == theirs["name"] == "mine" and theirs["status"] == "FINISHED"
    assert mine["config"]["target"] == theirs["params"]["target"] == "y"
    rows = mine["rows"]
    assert [*rows] == [*range(3, 121, 3)]  # twenty looks at each of two trainings
    first = {step for step, row in rows.items() if "held_out/head" in row}
    assert first == {*range(3, 61, 3)}
    assert {step for step, row in rows.items() if "refit/head" in row} == {*range(63, 121, 3)}
    scores = {f"scores/{row['metric']}/{row['model']}/{row['shots']}": row["mean"]
              for row in load_table_run(tmp_path / "mine").evaluation}  # fmt: skip
    assert scores.items() <= rows[60].items() and set(rows[60]) - set(scores) == {
        "held_out/head", "held_out/pooled",
    }  # fmt: skip
    for found in (theirs["rows"], tensorboard_rows(tmp_path / "mine-logs" / "tensorboard")):
        assert found.keys() == rows.keys()
        for step, row in rows.items():
            assert found[step] == pytest.approx(row, rel=1e-6)
    capsys.readouterr()
    shutil.rmtree(tmp_path / "mine")
    assert "mine-logs exists already" in refused(
        capsys, "train", *words, "--out", tmp_path / "mine"
    )
    more = ["--from", run, "--data", table, "--iterations", "20", "--log", "tensorboard"]
    moml("train", *more, "--out", tmp_path / "later")
    rows = tensorboard_rows(tmp_path / "later-logs" / "tensorboard")
    assert {"held_out/head"} <= {name for row in rows.values() for name in row}
    with pytest.raises(ConfigError, match="log needs out"):
        train_table(table, task="user", target="y", log=["wandb"])


def test_services_that_cannot_be_used(services, table, tmp_path, capsys, monkeypatch):  # noqa: F811
    words = ["train", "--data", table, "--task", "user", "--target", "y", *SMALL]
    words += ["--out", tmp_path / "mine", "--log"]
    told = refused(capsys, *words, "neptune")
    assert told.endswith("log must be of tensorboard, wandb, mlflow; got 'neptune'")
    assert "each service once" in refused(capsys, *words, "tensorboard", "tensorboard")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nowhere://")
    with pytest.raises(SystemExit) as stopped:
        moml(*words, "tensorboard", "mlflow")
    told = capsys.readouterr().err.splitlines()[-1]
    assert stopped.value.code == 2 and told.startswith("moml: mlflow cannot be started: ")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "wandb", None)
        assert "pip install 'moml[wandb]'" in refused(capsys, *words, "wandb")
    assert not [path for path in tmp_path.iterdir() if "mine" in path.name]  # all can be repeated


def column(path, name):
    return read_table(path).columns[name].values


def test_scores_of_every_model_for_every_number_of_rows(run, table, tmp_path, capsys):
    moml("evaluate", run, "--json", tmp_path / "own.json")
    told = capsys.readouterr().out
    rows = json.loads((tmp_path / "own.json").read_text())
    assert [(row["shots"], row["model"]) for row in rows] == [
        (k, model) for k in (0, 1, 2, 3, 4) for model in MODELS
    ]
    for row in rows:
        assert list(row) == [
            "model",
            "shots",
            "metric",
            "above",
            "mean",
            "std",
            "quantiles",
            "tasks",
            "rows",
        ]
        assert row["quantiles"] == sorted(row["quantiles"]) and len(row["quantiles"]) == 5
        assert row["metric"] == "rmse" and row["mean"] > 0 and row["std"] > 0
        assert (row["tasks"], row["rows"]) == (rows[0]["tasks"], rows[0]["rows"])
    mean = {(row["model"], row["shots"]): row["mean"] for row in rows}
    assert len({mean["pooled", k] for k in range(5)}) == 1
    if load_table_run(run).about["cold"] == "pooled":
        assert mean["personal", 0] == mean["pooled", 0]
    assert mean["personal", 4] < 0.8 * mean["personal", 0]
    assert mean["personal", 4] < min(mean[model, 4] for model in MODELS[1:])
    assert mean["per-task", 0] == mean["shrunken-mean", 0]
    assert "personalisation pays" in told
    moml("evaluate", run, "--data", table, "--json", tmp_path / "anew.json")
    anew = json.loads((tmp_path / "anew.json").read_text())
    rows = [row for row in rows if row["model"] != "lightgbm"]  # a run does not keep it
    assert [row["model"] for row in anew] == [row["model"] for row in rows]
    assert [row["tasks"] for row in anew] == [row["tasks"] for row in rows]
    np.testing.assert_allclose([r["mean"] for r in anew], [r["mean"] for r in rows], rtol=1e-6)


def test_held_out_tasks_are_scored_by_hand(run, table):
    """The shrunken mean and its rows, computed the long way round."""
    found = load_table_run(run)
    given = found.rows(table)
    y = found.columns.target.unscale(given.y)
    mean, worth = found.rivals.mean[0], found.rivals.rows
    errors, own = [], []
    for id_ in found.about["held_out"]:
        rows = given.groups.rows(given.groups.ids.index(id_))
        k = min(4, len(rows) // 2)
        known = np.array((given.y[rows[:k]].sum() + worth * mean) / (k + worth))
        off = y[rows[k:]] - found.columns.target.unscale(known[None])
        errors.append(off**2)
        own.append(np.sqrt((off**2).mean()))
    row = next(r for r in found.evaluation if (r["model"], r["shots"]) == ("shrunken-mean", 4))
    assert row["rows"] == len(np.concatenate(errors))
    np.testing.assert_allclose(row["mean"], np.sqrt(np.concatenate(errors).mean()), rtol=1e-5)
    np.testing.assert_allclose(row["std"], np.std(own), rtol=1e-5)


def test_a_run_keeps_no_rows_and_is_plain_arrays(run, table):
    from safetensors.numpy import load_file

    tensors = load_file(run / "personal.safetensors")
    tasks = json.loads((run / "tasks.json").read_text())
    assert len(tasks["ids"]) == 110 and sum(tasks["rows"]) == read_table(table).rows
    assert all(len(tensor) == 110 for tensor in tensors.values())
    assert not [name for name in run.iterdir() if name.suffix not in (".json", ".safetensors")]
    model = load_file(run / "model.safetensors")
    loaded = load_table_run(run).model
    for kind, meta in loaded.metas.items():
        kept = [model[name] for name in model if name.startswith(f"personal/members/{kind}/")]
        assert sum(leaf.size for leaf in kept) == sum(x.size for x in jax.tree.leaves(meta))


def test_predictions_stand_beside_all_rows_and_columns(run, table, tmp_path, capsys):
    asked = users(110, seed=0)
    wild = {"user": ["new", "u3"], "day": [1, 99], "x": [1e9, 2.0], "kind": ["never", "a"]}
    wild["y"] = [np.nan, np.nan]
    both = {name: np.concatenate([asked[name][:40], wild[name]]) for name in asked}
    rows = written(tmp_path, "asked.csv", both)
    moml("predict", run, "--data", rows, "--out", tmp_path / "p.parquet", "--interval", "0.8")
    told = capsys.readouterr().out
    assert "no known rows of 1 of " in told and "(1 of 42 rows)" in told
    assert "column kind: a category that training had not in 1 of 42 rows" in told
    out = pq.read_table(tmp_path / "p.parquet")
    assert out.column_names == [*asked, "prediction", "lower", "upper"]
    assert out["user"].to_pylist() == both["user"].tolist()
    np.testing.assert_array_equal(out["x"].to_numpy(), both["x"])
    given = {name: out[name].to_numpy() for name in ("lower", "prediction", "upper")}
    assert all(np.isfinite(values).all() for values in given.values())
    assert (given["lower"] < given["prediction"]).all()
    assert (given["prediction"] < given["upper"]).all()
    off = given["prediction"][:40] - asked["y"][:40]
    assert np.sqrt((off**2).mean()) < 0.7 * asked["y"].std()
    moml("predict", run, "--data", rows, "--out", tmp_path / "p.csv")
    np.testing.assert_array_equal(column(tmp_path / "p.csv", "prediction"), given["prediction"])
    lines = (tmp_path / "p.csv").read_text().splitlines()
    assert [line.rsplit(",", 1)[0] for line in lines[1:]] == rows.read_text().splitlines()[1:]


def test_new_tasks_adapt_and_personal_models_stand_alone(run, folder, tmp_path, capsys):
    new = users(30, seed=5, first=1000)
    first = new["day"] < 4
    known, asked = some(new, first), some(new, ~first)
    shots = written(tmp_path, "known.parquet", known)
    rows = written(tmp_path, "asked.parquet", asked)
    root = lambda file: np.sqrt(((column(file, "prediction") - asked["y"]) ** 2).mean())
    moml("predict", run, "--data", rows, "--out", tmp_path / "before.parquet")
    both = ["--data", rows, "--out", tmp_path / "after.parquet", "--adapt-on", shots]
    moml("predict", run, *both)
    assert root(tmp_path / "after.parquet") < 0.8 * root(tmp_path / "before.parquet")
    moml("adapt", run, "--data", shots, "--out", tmp_path / "models")
    index = json.loads((tmp_path / "models" / "index.json").read_text())
    assert len(index) == 30
    assert index["u1000"]["rows"] == int((known["user"] == "u1000").sum())
    assert (tmp_path / "models" / index["u1000"]["file"]).is_file()
    alone = shutil.copytree(tmp_path / "models", tmp_path / "elsewhere")
    moml("predict", alone, "--data", rows, "--out", tmp_path / "alone.parquet")
    np.testing.assert_allclose(
        column(tmp_path / "alone.parquet", "prediction"),
        column(tmp_path / "after.parquet", "prediction"),
        rtol=1e-6,
    )
    assert "30 personal models" in capsys.readouterr().out


def test_intervals_hold_their_share_of_new_tasks(run, tmp_path):
    new = users(150, seed=6, first=2000)
    first = new["day"] < 3
    shots, rows = (
        written(tmp_path, f"{i}.parquet", some(new, w)) for i, w in ((0, first), (1, ~first))
    )
    words = ["--data", rows, "--adapt-on", shots, "--interval", "0.8"]
    moml("predict", run, *words, "--out", tmp_path / "out.parquet")
    low, y, high = (column(tmp_path / "out.parquet", name) for name in ("lower", "y", "upper"))
    assert 0.7 < ((low <= y) & (y <= high)).mean() < 0.9


def test_later_rows_go_on_where_the_kept_ones_ended(run, table):
    found = load_table_run(run)
    given, model = found.rows(table), found.model
    groups = [rows for rows in given.groups.lists() if len(rows) >= 8][:16]
    n = len(groups)
    personal = lambda rows: model.personal(given.x, given.y, rows)
    on = lambda own, known, rows: model.extend(own, np.full(n, known), given.x, given.y, rows)
    nothing, half, all_ = (personal([rows[:k] for rows in groups]) for k in (0, 2, 4))
    close = lambda a, b: jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-9), a, b
    )
    close(on(nothing, 0, [rows[:4] for rows in groups]), all_)
    close(on(half, 2, [rows[:0] for rows in groups]), half)
    later = on(half, 2, [rows[2:4] for rows in groups])
    close(later.summary, all_.summary)
    asked = np.concatenate([rows[4:] for rows in groups])
    which = np.repeat(np.arange(n), [len(rows) - 4 for rows in groups])
    answers = [model.answers(own, which, given.x[asked]) for own in (half, later, all_)]
    apart = lambda a, b: np.sqrt(((a - b) ** 2).mean())
    assert apart(answers[1], answers[2]) < 0.6 * apart(answers[0], answers[2])
    root = [apart(answer, given.y[asked]) for answer in answers]
    assert root[1] < 1.1 * root[2]


def test_a_known_task_with_more_rows_is_not_the_one_without(run, table, tmp_path):
    asked = users(110, seed=0)
    mine = written(tmp_path, "asked.parquet", some(asked, asked["user"] == "u3"))
    more = {"user": ["u3"] * 3, "day": [50, 51, 52], "x": [0.0] * 3, "kind": ["b"] * 3}
    extra = written(tmp_path, "more.parquet", more | {"y": [90.0] * 3})
    for name, words in {"kept": [], "later": ["--adapt-on", extra]}.items():
        moml("predict", run, "--data", mine, "--out", tmp_path / f"{name}.csv", *words)
    kept, later = (column(tmp_path / f"{name}.csv", "prediction") for name in ("kept", "later"))
    assert (later > kept + 1).all()


@pytest.mark.parametrize("name", ["model.safetensors", "personal.safetensors", "table.json"])
def test_damage_is_refused_by_name(run, table, tmp_path, capsys, name):
    shutil.copytree(run, tmp_path / "run")
    data = bytearray((tmp_path / "run" / name).read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "run" / name).write_bytes(data)
    words = ["--data", table, "--out", tmp_path / "out.csv"]
    assert f"{name} is damaged" in refused(capsys, "predict", tmp_path / "run", *words)
    assert not (tmp_path / "out.csv").exists()


def test_other_formats_are_refused_by_number(run, tmp_path, capsys):
    from moml.storage.manifest import seal

    shutil.copytree(run, tmp_path / "run")
    file = tmp_path / "run" / "table.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"format": 7}))
    seal(tmp_path / "run")
    assert "in format 7; this version reads format 5" in refused(
        capsys, "evaluate", tmp_path / "run"
    )
    (tmp_path / "other").mkdir()
    assert "has no table.json" in refused(capsys, "evaluate", tmp_path / "other")


def bad(name):
    """A table with one thing wrong, the words to train on it, and what is said."""
    columns = users(12, seed=1)
    if name == "missing column":
        return columns, ["--exclude", "colour"], "has no column colour"
    if name == "no target":
        return columns | {"y": np.full(len(columns["y"]), np.nan)}, [], "column y"
    if name == "one row a task":
        return (
            columns | {"user": np.arange(len(columns["y"]))},
            [],
            "must have 2 rows",
        )
    if name == "one class":
        return columns | {"y": np.full(len(columns["y"]), "same")}, [], "one class, 'same'"
    if name == "a text among numbers":
        texts = columns["x"].astype(str)
        texts[7] = "abc"
        return columns | {"x": texts}, [], "column x, row 8: 'abc' is not a number"
    if name == "missing refused":
        x = columns["x"].copy()
        x[4] = np.nan
        return columns | {"x": x}, ["--missing", "refuse"], "column x, row 5 has no value"
    if name == "two uses":
        return columns, ["--weight", "y"], "must be different columns"
    if name == "no shots":
        return columns, ["--shots", "0"], "shots must be a whole number from 1"
    if name == "too large a share":
        return columns, ["--hold-out", "1.5"], "between 0 and 1"
    raise AssertionError(name)


BAD = ["missing column", "no target", "one row a task", "one class", "a text among numbers",
       "missing refused", "two uses", "no shots", "too large a share"]  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_tables_are_refused_in_a_line(tmp_path, capsys, name):
    columns, words, said = bad(name)
    file = written(tmp_path, "bad.csv", columns)
    words = ["--data", file, "--task", "user", "--target", "y", *words]
    assert said in refused(capsys, "train", *words, "--out", tmp_path / "run")
    assert [path.name for path in tmp_path.iterdir()] == ["bad.csv"]


@pytest.mark.parametrize("name, content", [("a.csv", b""), ("a.parquet", b"PAR1 no footer here")])
def test_broken_files_are_refused_in_a_line(tmp_path, capsys, name, content):
    (tmp_path / name).write_bytes(content)
    words = ["--data", tmp_path / name, "--task", "user", "--target", "y"]
    assert name in refused(capsys, "train", *words, "--out", tmp_path / "run")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_places_that_are_taken_are_refused(run, table, tmp_path, capsys):
    words = ["--data", table, "--task", "user", "--target", "y"]
    assert "exists already" in refused(capsys, "train", *words, "--out", run)
    assert "exists already" in refused(capsys, "adapt", run, "--data", table, "--out", run)
    columns = users(3, seed=0)
    asked = written(tmp_path, "p.csv", columns | {"prediction": columns["y"]})
    said = refused(capsys, "predict", run, "--data", asked, "--out", tmp_path / "out.csv")
    assert "has a column prediction already" in said
    assert "the table itself" in refused(capsys, "predict", run, "--data", table, "--out", table)
    said = refused(capsys, "predict", run, "--data", table, "--out", tmp_path / "out.txt")
    assert "must end in" in said
    lacking = columns | {"y": np.where(np.arange(len(columns["y"])) == 2, np.nan, columns["y"])}
    shots = written(tmp_path, "shots.csv", lacking)
    words = ["--data", table, "--out", tmp_path / "out.csv"]
    said = refused(capsys, "predict", run, *words, "--adapt-on", shots)
    assert "column y, row 3 has no value" in said
    assert "between 0 and 1" in refused(capsys, "predict", run, *words, "--interval", "2")
    assert not (tmp_path / "out.csv").exists()
    moml("predict", run, *words, "--interval", "0.99999")
    assert "needs 99,999 tasks to score on" in capsys.readouterr().out
    written_rows = (tmp_path / "out.csv").read_text().splitlines()[1:]
    assert written_rows and all(row.endswith(",-inf,inf") for row in written_rows)


def test_what_is_interrupted_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt), building(tmp_path / "run") as folder:
        (folder / "half").touch()
        assert [path.name for path in tmp_path.iterdir()] != ["run"]
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())


def test_a_killed_training_leaves_no_run(table, tmp_path):
    words = ["--data", table, "--task", "user", "--target", "y", "--iterations", "1000000"]
    process = begun("train", *words, "--out", tmp_path / "run")
    for line in process.stdout:
        if "a new task brings" in line:
            break
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not list(tmp_path.iterdir())


def test_classes_have_labels_and_probabilities(tmp_path, capsys):
    columns = users(60, seed=2)
    bands = np.array(["low", "mid", "high"])[np.digitize(columns.pop("y"), [17, 23])]
    file = written(tmp_path, "bands.parquet", columns | {"band": bands})
    words = ["--data", file, "--task", "user", "--target", "band", "--shots", "1", *SMALL[:-1]]
    moml("train", *words, "--out", tmp_path / "run", "--json", tmp_path / "rows.json")
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert {row["metric"] for row in rows} == {"accuracy", "log_loss"}
    assert len(rows) == 2 * 2 * len(MODELS)
    mean = {(row["model"], row["shots"], row["metric"]): row["mean"] for row in rows}
    assert all(0 <= value <= 100 for value in mean.values())
    for k in (0, 1):
        assert mean["personal", k, "log_loss"] < np.log(3)
        assert mean["personal", k, "accuracy"] > 100 / 3
    capsys.readouterr()
    out = tmp_path / "out.parquet"
    moml("predict", tmp_path / "run", "--data", file, "--out", out)
    given = pq.read_table(out)
    classes = ["high", "low", "mid"]
    shares = np.stack([given[f"probability_{name}"].to_numpy() for name in classes], axis=1)
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-6)
    labels = given["prediction"].to_pylist()
    assert labels == [classes[i] for i in shares.argmax(axis=1)]
    assert (np.array(labels) == bands).mean() > 0.5
    _steps_go_on(tmp_path / "run", file)
    words = ["--data", file, "--out", tmp_path / "other.csv", "--interval", "0.9"]
    capsys.readouterr()
    assert "target of this run is a class" in refused(capsys, "predict", tmp_path / "run", *words)
    assert not (tmp_path / "other.csv").exists()


def test_a_network_of_ones_own_is_named_again(table, tmp_path, capsys):
    words = ["--data", table, "--task", "user", "--target", "y", "--shots", "2", *SMALL]
    named = ["--model", "tests.support.small_table:build"]
    moml("train", *words, *named, "--out", tmp_path / "run")
    capsys.readouterr()
    asked = ["--data", table, "--out", tmp_path / "out.csv"]
    said = refused(capsys, "predict", tmp_path / "run", *asked)
    assert "has the network tests.support.small_table:build" in said
    moml("predict", tmp_path / "run", *asked, *named)
    off = column(tmp_path / "out.csv", "prediction") - column(table, "y")
    assert np.sqrt((off**2).mean()) < column(table, "y").std()
    moml("adapt", tmp_path / "run", "--data", table, "--out", tmp_path / "models", *named)
    moml("predict", tmp_path / "models", *asked[:2], "--out", tmp_path / "later.csv", *named)
    later = column(tmp_path / "later.csv", "prediction")
    assert np.isfinite(later).all()
    assert np.abs(later - column(tmp_path / "out.csv", "prediction")).max() > 1e-3


def _steps_go_on(run, file):
    """Steps from nothing on are those of a new task; further rows change what is kept."""
    found = load_table_run(run)
    given, model = found.rows(file), found.model
    first = [rows[:1] for rows in given.groups.lists()][:8]
    nothing = model.personal(given.x, given.y, [rows[:0] for rows in first])
    one = model.personal(given.x, given.y, first)
    on = lambda own, known: model.extend(own, np.full(8, known), given.x, given.y, first)
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-9)
    jax.tree.map(close, on(nothing, 0), one)
    size = lambda a, b: np.abs(a.heads["steps"].head.weight - b.heads["steps"].head.weight).mean()
    assert 0 < size(on(one, 1), one) < size(one, nothing)
    assert size(on(one, 100), one) < 0.2 * size(on(one, 1), one)
