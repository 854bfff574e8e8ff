"""Tables as people have them, by the command line."""

import csv

import numpy as np
import pyarrow.parquet as pq
import pytest

from moml.data import as_table, learn_columns
from moml.data.table.groups import group
from moml.serving import moml_serve
from moml.tabular.run import load_table_run
from moml.tabular.summary import describe
from tests.tabular.test_commands import SMALL, moml, quick, refused  # noqa: F401

TASK = ["--task", "user", "--target", "y"]


def columns(tasks=30, rows=6, seed=0):
    """A small table: user, x, y."""
    rng = np.random.default_rng(seed)
    who, x = np.repeat(np.arange(tasks), rows), rng.normal(size=tasks * rows).round(3)
    return {"user": who, "x": x, "y": (5 + rng.normal(size=tasks)[who] + x).round(3)}


def csv_file(path, data):
    with open(path, "w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file)
        lines.writerow(data)
        lines.writerows(zip(*data.values(), strict=True))
    return path


def european(values):
    return [f"{value:,.2f}".translate(str.maketrans(".,", ",.")) for value in values]


def test_numbers_in_european_form_are_read_alike_in_training_and_predicting(tmp_path, capsys):
    plain = columns() | {"y": (1000 * columns()["y"]).round(2)}
    texts = plain | {"x": european(plain["x"]), "y": european(plain["y"])}
    written = csv_file(tmp_path / "written.csv", texts)
    said = refused(capsys, "train", "--data", written, *TASK, "--out", tmp_path / "no")
    assert "--decimal ',' --thousands '.' reads 180 of 180 values as numbers" in said
    form = ["--decimal", ",", "--thousands", "."]
    run = tmp_path / "run"
    moml("train", "--data", written, *TASK, *form, *SMALL[:-1], "--out", run)
    assert "target y: a number, mean" in capsys.readouterr().out
    moml("predict", run, "--data", written, "--out", tmp_path / "a.parquet")
    same = csv_file(tmp_path / "plain.csv", plain | {"x": [f"{v:.2f}" for v in plain["x"]]})
    moml("predict", run, "--data", same, "--decimal", ".", "--thousands", ",", "--out",
         tmp_path / "b.parquet")  # fmt: skip
    made = [pq.read_table(tmp_path / f"{name}.parquet") for name in "ab"]
    assert made[0]["prediction"] == made[1]["prediction"]
    assert made[0]["x"].to_pylist() == texts["x"]  # cells are copied as they are


def test_texts_that_are_numbers_are_told_unless_they_are_categories():
    data = columns() | {"code": [str(i % 40) for i in range(180)]}
    table = as_table(data)
    known, tasks = learn_columns(table, "y", exclude=["user"]), group(table, "user")
    said = "column code has texts: --decimal '.' reads 180 of 180 values as numbers"
    assert said in describe(known, table, tasks)
    assert said not in describe(known, table, tasks, ["code"])


def test_codes_are_categories_if_asked_for(tmp_path, capsys):
    codes = np.random.default_rng(1).integers(0, 5, 180)
    data = columns() | {"code": [f"0{code}" for code in codes]}
    path, run = csv_file(tmp_path / "codes.csv", data), tmp_path / "run"
    words = ["--data", path, *TASK, "--categorical", "code", "--na", "-999", "-"]
    moml("train", *words, *SMALL[:-1], "--out", run)
    assert "1 category as input: code (5)" in capsys.readouterr().out
    (given,) = [one for one in load_table_run(run).columns.inputs if one.name == "code"]
    assert sorted(given.words) == ["00", "01", "02", "03", "04"]
    moml("predict", run, "--data", path, "--out", tmp_path / "p.csv")
    assert "category that training had not" not in capsys.readouterr().out
    said = refused(capsys, "train", "--data", path, *TASK, "--categorical", "cod", "--out", "no")
    assert "has no column cod" in said


def test_help_of_training_on_a_table(capsys):
    for words in (["--data", "--help"], ["--data", "visits.csv", "-h"]):
        with pytest.raises(SystemExit) as stopped:
            moml("train", *words)
        assert stopped.value.code == 0
        said = capsys.readouterr().out
        assert "--thousands" in said and "--categorical" in said
        assert said.index("--target") < said.index("--devices") < said.index("--cluster")


def test_commands_of_other_runs_name_those_of_tables(tmp_path, capsys):
    path, run = csv_file(tmp_path / "Visits.CSV", columns()), tmp_path / "run"
    said = refused(capsys, "train", path, *TASK)
    assert said.endswith("Visits.CSV is a table: give it as --data, with --task and --target")
    run.mkdir()
    (run / "table.json").write_text("{}")
    for command in ("resume", "score"):
        assert "is the run of a table; it is for moml evaluate" in refused(capsys, command, run)
    for words, prog in ((["--data", path], "--data"), (["--from", run, "--data", path], "--from")):
        with pytest.raises(SystemExit):
            moml("train", *words, "--nonsense")
        assert f"{prog} --help" in capsys.readouterr().err


@pytest.mark.filterwarnings("default::moml.errors.MomlWarning")
def test_ids_and_targets_alone_are_a_table(tmp_path, capsys):
    data = columns()
    names = ["Ann", "ann ", *(f"user {i}" for i in range(28))]
    data = {"user": np.array(names)[data["user"]], "y": data["y"]}
    path, run = csv_file(tmp_path / "two.csv", data), tmp_path / "run"
    moml("train", "--data", path, *TASK, *SMALL[:-1], "--out", run)
    told = capsys.readouterr()
    assert "no input: a task is predicted from its known rows alone" in told.out
    assert (
        "moml: warning: tasks 'Ann' and 'ann ' differ in case, spaces, zeros or unicode" in told.err
    )
    moml("predict", run, "--data", path, "--out", tmp_path / "p.parquet")
    made = pq.read_table(tmp_path / "p.parquet")["prediction"].to_numpy()
    assert len(np.unique(made.round(6))) == 30  # one value a task
    moml("export", run, "--out", tmp_path / "export")
    served = moml_serve.load(tmp_path / "export").predict({"user": list(data["user"])})
    np.testing.assert_allclose(served["prediction"], made, rtol=1e-5)


def test_ids_known_by_another_spelling_are_told(tmp_path, capsys):
    path, run = csv_file(tmp_path / "whole.csv", columns()), tmp_path / "run"
    moml("train", "--data", path, *TASK, *SMALL[:-1], "--out", run)
    floats = csv_file(tmp_path / "floats.csv", columns() | {"user": columns()["user"] * 1.0})
    said = "task '0.0' is new, but '0' is known (and 29 more such pairs): they differ in case,"
    moml("predict", run, "--data", floats, "--out", tmp_path / "a.csv")
    assert f"\n{said}" in capsys.readouterr().out
    moml("predict", run, "--data", path, "--adapt-on", floats, "--out", tmp_path / "b.csv")
    assert f"to adapt on: {said}" in capsys.readouterr().out
    moml("adapt", run, "--data", floats, "--out", tmp_path / "adapted")
    assert said in capsys.readouterr().out
    moml("train", "--from", run, "--data", floats, "--iterations", 1, "--out", tmp_path / "later")
    assert said in capsys.readouterr().out
    moml("evaluate", run, "--data", floats)
    assert said in capsys.readouterr().out
