"""What is kept of persons: only its owner can read it, and numbers that cannot be are refused."""

import json
import os
import shutil
import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from moml.errors import CheckpointError
from moml.runs import runs
from moml.serving import moml_serve
from moml.storage.arrays import read_arrays, write_arrays
from moml.storage.manifest import seal
from moml.tabular.run import load_table_run
from tests.runs.test_planted import SINE, call, made  # noqa: F401
from tests.support.small_run import quick, visits  # noqa: F401


@pytest.fixture
def open_to_all():
    """A umask that forbids nothing."""
    before = os.umask(0)
    yield
    os.umask(before)


def readable(folder):
    """What others may read or write below a folder, itself included."""
    return [p.name for p in (folder, *folder.rglob("*")) if stat.S_IMODE(p.stat().st_mode) & 0o077]


def test_runs_and_personal_models_are_their_owners(made, tmp_path, capsys, open_to_all):  # noqa: F811
    table, data = tmp_path / "a" / "table", made / "rows.csv"
    load_table_run(made / "table").save(table)
    runs.train(SINE, tmp_path / "b" / "ram")
    assert call(capsys, "adapt", table, "--data", data, "--out", tmp_path / "adapted")[0] == 0
    assert call(capsys, "export", table, "--out", tmp_path / "export")[0] == 0
    out = tmp_path / "predicted.csv"
    assert call(capsys, "predict", table, "--data", data, "--out", out)[0] == 0
    assert readable(out) == []
    for name in ("", ".gz"):
        again = tmp_path / f"again.csv{name}"
        count = len(data.read_text().splitlines()) - 1
        moml_serve.write_csv(data, {"more": np.zeros(count)}, again)
        assert readable(again) == []
    assert call(capsys, "forget", table, "--task", "pers\u00f6n-1")[0] == 0
    assert call(capsys, "forget", tmp_path / "b" / "ram", "--task", 1)[0] == 0
    for folder in (table, tmp_path / "b" / "ram", tmp_path / "adapted", tmp_path / "export"):
        assert readable(folder) == []
    page = tmp_path / "pages" / "page.html"
    assert call(capsys, "report", tmp_path / "b" / "ram", "--out", page)[0] == 0
    assert readable(page.parent) == ["pages", "page.html"]  # made to be shown: as the umask says


def test_memories_on_disk_are_their_owners(tmp_path, open_to_all):
    runs.train(replace(SINE, memory="disk", memory_dir=str(tmp_path / "rows")), tmp_path / "run")
    assert readable(tmp_path / "run") == [] == readable(tmp_path / "rows")


def arrays(file, **changed):
    def change(run):
        found = {name: np.array(array) for name, array in read_arrays(run / file).items()}
        name = next(name for name in found if "knots" not in name)
        found[name].reshape(-1)[0] = changed["value"]
        (run / file).unlink()
        write_arrays(run / file, found)

    return change


def told(file, old, new):
    def change(run):
        content = json.loads((run / file).read_text())
        old(content)
        text = json.dumps(content)
        (run / file).write_text(new(text))

    return change


def first(name, value):
    return lambda content: content[name].__setitem__(0, value)


same, WHO = lambda content: content, "pers\u00f6n-2"
WRONG = {
    "NaN weights": (arrays("model.safetensors", value=np.nan), r"model\.safetensors: .* finite"),
    "infinite ones": (arrays("personal.safetensors", value=np.inf), r"personal\.safet.* finite"),
    "NaN residuals": (arrays("residuals.safetensors", value=np.nan), r"residuals\.safet.* finite"),
    "a negative count": (told("tasks.json", first("rows", -3), same), "must be from 0; got -3"),
    "half a row": (told("tasks.json", first("rows", 1.5), same), "must be from 0; got 1.5"),
    "an id twice": (told("tasks.json", first("ids", WHO), same), "distinct texts; got"),
    "a number for an id": (told("tasks.json", first("ids", 7), same), "distinct texts; got 7"),
    "negative shots": (told("table.json", lambda c: c.update(shots=-1), same), "negative ones"),
    "a key twice": (
        told("table.json", same, lambda text: text.replace("{", '{"seed": 1, ', 1)),
        "'seed' is given 2 times",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_sealed_run_with_impossible_content_is_refused(name, made, tmp_path):  # noqa: F811
    change, said = WRONG[name]
    run = Path(shutil.copytree(made / "table", tmp_path / "run"))
    change(run)
    seal(run)
    with pytest.raises(CheckpointError, match=said) as refused:
        load_table_run(run)
    assert "\n" not in str(refused.value) and str(run) in str(refused.value)


def test_a_page_of_scores_without_their_fields_is_refused(made, tmp_path, capsys):  # noqa: F811
    code, error = call(capsys, "report", made / "table", "--out", tmp_path / "page.html")
    assert code == 2 and "was not written by moml: KeyError: 'quantiles'" in error


def test_so_is_one_of_a_file_for_each_task(made, tmp_path):  # noqa: F811
    run = tmp_path / "run"
    load_table_run(made / "table").adapt(visits(4, 0), run)
    index = json.loads((run / "index.json").read_text())
    some = next(iter(index))
    double = json.dumps(index).replace("{", f'{{"{some}": {{"rows": 1}}, ', 1)
    (run / "index.json").write_text(double)
    seal(run)
    with pytest.raises(CheckpointError, match="is given 2 times"):
        load_table_run(run)
    index[some]["rows"] = -1
    (run / "index.json").write_text(json.dumps(index))
    seal(run)
    with pytest.raises(CheckpointError, match="must be from 0; got -1"):
        load_table_run(run)
    index[some]["rows"] = 1
    (run / "index.json").write_text(json.dumps(index))
    arrays(index[some]["file"], value=np.nan)(run)
    seal(run)
    with pytest.raises(CheckpointError, match="must be finite"):
        load_table_run(run).predict(visits(4, 0))
