"""Whoever is forgotten is in no byte of a run; for the others nothing changes."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from moml.cli import run as moml
from moml.errors import CheckpointError, ConfigError, MomlError
from moml.serving import moml_serve
from moml.serving.export import export
from moml.serving.forget import forget
from moml.storage.arrays import read_arrays
from moml.storage.manifest import seal, verify
from moml.tabular.run import load_table_run
from tests.support.small_run import quick, small_run, visits  # noqa: F401

WHO, OTHER = "pers\u00f6n-4", "pers\u00f6n-40"


@pytest.fixture(scope="module")
def kept(tmp_path_factory, quick):  # noqa: F811
    """A run, one as `moml adapt` leaves it, and an export; person 40 is not person 4."""
    folder = tmp_path_factory.mktemp("forget")
    rows = visits(7, 0)
    rows["person"][rows["person"] == "pers\u00f6n-6"] = OTHER
    small_run(folder / "run", rows, ["summary", "head"], order="day")
    small_run(folder / "models", rows, ["summary", "head"], order="day", each=True)
    export(folder / "run", folder / "export")
    return folder, rows


def everything(folder):
    """All bytes of a folder, file names among them."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder.parent)): path.read_bytes() for path in files}


def traces(id_, arrays, row):
    """A search for an id in the forms a file may have it in, and for the bytes of its arrays."""
    plain = [id_.encode(), json.dumps(id_).strip('"').encode(), id_.encode("utf-16-le")]
    words = [re.escape(word) + rb"(?!\x00?[0-9])" for word in plain]
    words += [re.escape(np.ascontiguousarray(leaf[row]).tobytes()) for leaf in arrays.values()]
    return re.compile(b"|".join(words), re.DOTALL)


def personal_of(place):
    """The personal arrays of a folder, and the row of WHO in them."""
    if (place / "index.json").exists():
        file = json.loads((place / "index.json").read_text())[WHO]["file"]
        return {name: a[None] for name, a in read_arrays(place / file).items()}, 0
    file = "personal" if (place / "table.json").exists() else "tasks"
    told = json.loads((place / "tasks.json").read_text())
    return read_arrays(place / f"{file}.safetensors"), told["ids"].index(WHO)


def known(place):
    """The ids that a folder knows."""
    return (
        moml_serve.load(place).known
        if (place / "card.json").exists()
        else load_table_run(place).tasks.places
    )


def answers(place, rows):
    if (place / "card.json").exists():
        return moml_serve.load(place).predict(rows)["prediction"]
    return load_table_run(place).predict(rows).columns["prediction"]


@pytest.mark.parametrize("name", ["run", "models", "export"])
def test_no_byte_is_left_and_others_have_the_same_predictions(kept, tmp_path, name):
    folder, rows = kept
    place = Path(shutil.copytree(folder / name, tmp_path / name))
    arrays, row = personal_of(place)
    trace = traces(WHO, arrays, row)
    found = lambda: [name for name, data in everything(tmp_path).items() if trace.search(data)]
    assert len(found()) >= 2
    before = answers(place, rows)
    said = forget(place, [WHO])
    assert not found()
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert verify(place) is None
    assert any("the trace in the common parameters w" in line for line in said)
    mine, after = rows["person"] == WHO, answers(place, rows)
    assert after[~mine].tobytes() == before[~mine].tobytes()
    assert np.abs(after[mine] - before[mine]).max() > 1e-3
    assert OTHER in known(place)
    with pytest.raises(ConfigError, match="has no task"):
        forget(place, [WHO])


def test_everybody_can_be_forgotten(kept, tmp_path):
    folder, rows = kept
    place = Path(shutil.copytree(folder / "run", tmp_path / "run"))
    everyone = list(dict.fromkeys(rows["person"].tolist()))
    forget(place, everyone)
    assert not load_table_run(place).tasks.places
    assert np.isfinite(answers(place, rows)).all()


NAME = "Ann\u00e9 of 4"  # of WHO, in a column with names, and who is a class by the id


@pytest.fixture(scope="module")
def named(tmp_path_factory, quick):  # noqa: F811
    """The same folders of a table that names people in its columns."""
    folder = tmp_path_factory.mktemp("named")
    rows = visits(7, 0, "two")
    mine = rows["person"] == WHO
    rows["kind"] = np.where(mine, NAME, np.where(rows["kind"] == None, "b", rows["kind"]))  # noqa: E711
    rows["by"] = np.where(mine, f"Dr. {WHO}", np.where(rows["new"], "Dr. A", "Dr. B"))
    rows["y"] = rows["y"].astype("U20")
    rows["y"][np.flatnonzero(mine)[:2]] = WHO
    small_run(folder / "run", rows, ["summary"])
    small_run(folder / "models", rows, ["summary"], each=True)
    export(folder / "run", folder / "export")
    return folder, rows


@pytest.mark.parametrize("name", ["run", "models", "export"])
def test_what_is_said_to_stay_is_what_stays(named, tmp_path, name, capsys):
    folder, rows = named
    place = Path(shutil.copytree(folder / name, tmp_path / name))
    file = "card.json" if name == "export" else "table.json"

    def found(text):
        """The files with a text, and how often."""
        trace = traces(text, {}, 0)
        counts = {n: len(trace.findall(data)) for n, data in everything(place).items()}
        return {n.partition("/")[2]: count for n, count in counts.items() if count}

    before = answers(place, rows)
    moml(["forget", str(place), "--task", WHO])
    said = capsys.readouterr().out
    assert found(WHO) == {file: 2} and found(NAME) == {file: 1}
    assert [line for line in said.splitlines() if line.startswith(f"not removed: '{WHO}'")] == [
        f"not removed: '{WHO}' in {file}, columns.inputs.by.words",
        f"not removed: '{WHO}' in {file}, columns.target.y.classes",
    ]
    words = json.loads((place / file).read_text())["columns"]["inputs"]
    (kinds,) = [one["words"] for one in words if one["name"] == "kind"]
    assert NAME in kinds and f"not removed: categories of kind ({', '.join(kinds)})" in said
    assert f"not removed: classes of y (no, {WHO}, yes)" in said
    others = rows["person"] != WHO
    assert [*answers(place, rows)[others]] == [*before[others]]
    between = probabilities(place, rows)
    moml(["forget", str(place), "--category", f"kind={NAME}", f"by=Dr. {WHO}"])
    said = capsys.readouterr().out
    assert found(NAME) == {} and NAME not in said
    assert found(WHO) == {file: 1}  # the class
    assert verify(place) is None
    after, mine = probabilities(place, rows), rows["kind"] == NAME
    assert after[:, ~mine].tobytes() == between[:, ~mine].tobytes()
    assert np.abs(after[:, mine] - between[:, mine]).max() > 1e-3
    unknown = rows | {name: np.where(mine, "nobody", rows[name]) for name in ("kind", "by")}
    assert probabilities(place, unknown).tobytes() == after.tobytes()


def test_categories_that_there_are_not(named, tmp_path):
    folder, _ = named
    place = Path(shutil.copytree(folder / "run", tmp_path / "run"))
    before = everything(tmp_path)
    for wrong in ("kind=nobody", "kind", f"y={WHO}"):
        with pytest.raises(ConfigError, match=r"has no category .*; it must be COLUMN=CATEGORY of"):
            forget(place, [WHO], [wrong])
    assert everything(tmp_path) == before
    with pytest.raises(ConfigError, match="task must have at least one value"):
        moml(["forget", str(place)])


def probabilities(place, rows):
    """Of each class."""
    if (place / "card.json").exists():
        given = moml_serve.load(place).predict(rows)
    else:
        given = load_table_run(place).predict(rows).columns
    return np.stack([given[name] for name in given if name.startswith("probability_")])


@pytest.mark.parametrize("name", ["run", "models"])
def test_a_folder_without_tasks_can_be_used_saved_and_rewritten(kept, tmp_path, name):
    folder, rows = kept
    place = Path(shutil.copytree(folder / name, tmp_path / name))
    table = json.loads((place / "table.json").read_text())
    last, everyone = table["trained"][0], [*load_table_run(place).tasks.places]
    forget(place, [id_ for id_ in everyone if name == "run" or id_ != last])
    if name == "models":
        forget(place, [last])  # there is no file of it any more, but its id
    run = load_table_run(place)
    assert not run.tasks.places
    saved = run.save(tmp_path / "saved")
    np.testing.assert_array_equal(answers(place, rows), saved.predict(rows).columns["prediction"])


def test_an_export_that_was_imported_can_be_rewritten(kept, tmp_path):
    folder, _ = kept
    place = Path(shutil.copytree(folder / "export", tmp_path / "export"))
    (place / "__pycache__").mkdir()
    (place / "__pycache__" / "moml_serve.cpython-311.pyc").write_bytes(b"compiled")
    forget(place, [WHO])
    assert WHO not in known(place) and not (place / "__pycache__").exists()


def test_mistakes_change_nothing(kept, tmp_path):
    folder, _ = kept
    place = Path(shutil.copytree(folder / "run", tmp_path / "run"))
    before = everything(tmp_path)
    with pytest.raises(ConfigError, match="has no task 'nobody'; nothing was changed"):
        forget(place, [WHO, "nobody"])
    with pytest.raises(ConfigError, match="is not the folder of a run"):
        forget(tmp_path / "none", [WHO])
    assert everything(tmp_path) == before
    (place / "tasks.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"tasks.json has 2 bytes"):
        forget(place, [WHO])
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


ODD = {
    "table.json": [lambda t: t | {"columns": {}}, lambda t: t | {"columns": [1]}, lambda t: [t]],
    "tasks.json": [lambda t: t | {"rows": []}, lambda t: t | {"ids": 3}, lambda t: []],
    "index.json": [lambda t: {WHO: {}}, lambda t: {WHO: {"file": 3}}, lambda t: [[]]],
}


def test_what_a_killed_command_left_beside_it_is_named(kept, tmp_path):
    folder, _ = kept
    for name in ("run", ".run.0123456789abcdef.partial", ".runs.0123456789abcdef.partial"):
        shutil.copytree(folder / "run", tmp_path / name)
    said = [line for line in forget(tmp_path / "run", [WHO]) if "partial" in line]
    (one,) = said
    assert f"{tmp_path / '.run.0123456789abcdef.partial'}, which a killed command left" in one


@pytest.mark.parametrize("file", ODD)
def test_a_folder_that_somebody_made_up_is_refused(kept, tmp_path, file):
    folder, _ = kept
    for i, change in enumerate(ODD[file]):
        source = folder / ("models" if file == "index.json" else "run")
        place = Path(shutil.copytree(source, tmp_path / str(i)))
        made = json.dumps(change(json.loads((place / file).read_text())))
        (place / file).write_text(made)
        seal(place)
        with pytest.raises(MomlError, match="was not written by moml"):
            forget(place, [WHO])
        assert (place / file).read_text() == made


# Kills a child of its own at each of some moments, and lets the next one finish.
KILLED = """
import os, shutil, signal, sys
from pathlib import Path
from moml.serving import forget as f
from moml.storage.manifest import seal, verify
root, who = Path(sys.argv[1]), sys.argv[2]
die = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
def torn(folder): (folder / "torn").touch(); die()
def between(old, new, real=os.rename):
    real(old, new)
    if Path(new).name == "old": die()
MOMENTS = {"while it is written": {"seal": torn}, "after the renames": {"sync_folder": die},
           "between two renames": {"rename": between}}
for name, patches in MOMENTS.items():
    run = root / name
    shutil.copytree(root / "run", run)
    if not (child := os.fork()):
        for key, value in patches.items(): setattr(os if key == "rename" else f, key, value)
        f.forget(run, [who])
    assert os.waitpid(child, 0)[1] == signal.SIGKILL, name
    assert (root / f".{name}.forget").exists(), name
    assert name == "between two renames" or verify(run) is None, name
    f.forget(run, [who])
    assert verify(run) is None, name
print(sorted(path.name for path in root.iterdir()))
"""


def test_killed_at_any_moment_the_same_command_finishes(kept, tmp_path):
    folder, _ = kept
    shutil.copytree(folder / "run", tmp_path / "run")
    arrays, row = personal_of(tmp_path / "run")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", KILLED, str(tmp_path), WHO],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    names = ["after the renames", "between two renames", "run", "while it is written"]
    assert done.stdout.strip() == str(names)
    forget(tmp_path / "run", [WHO])
    assert len({str(sorted(everything(tmp_path / n).values())) for n in names}) == 1
    trace = traces(WHO, arrays, row)
    assert not [name for name, data in everything(tmp_path).items() if trace.search(data)]
