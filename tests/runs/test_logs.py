"""`--log`: what services have of runs and sweeps is what metrics.jsonl has."""

import sys

import pytest

from moml.config.config import Config
from moml.config.problems import Sine
from moml.config.toml import dump
from moml.runs import runs, sweeps
from moml.runs.record import resume_words
from moml.storage.metrics import VALUES, read
from tests.support.program import call
from tests.support.services import mlflow_runs, services, tensorboard_rows, wandb_runs  # noqa: F401

pytestmark = pytest.mark.usefixtures("services")
ALL = ("wandb", "mlflow", "tensorboard")
TINY = Config(
    Sine(hidden=(8,), n=20), iterations=60, log_every=20, score_every=20, test_tasks=4, test_steps=1
)


def same(rows, folder, member=None):
    """The rows of a service are those of the file, as float32 at least."""
    of = lambda value: value if member is None else value[member]
    want = {
        row["step"]: {n: of(row[n]) for n in VALUES}
        | {n: row[n] for n in ("iterations", "samples")}
        for row in read(folder / "metrics.jsonl")
    }
    assert rows.keys() == want.keys() and len(want) == 3
    for step, values in want.items():
        assert rows[step] == pytest.approx(values, rel=1e-6)


def test_a_resumed_run_goes_on_in_the_same_place(services, tmp_path, capsys):  # noqa: F811
    folder = tmp_path / "run"
    runs.train(TINY, folder, log=ALL, callback=lambda info: True)  # stops after 20 steps
    assert len(read(folder / "metrics.jsonl")) == 1
    assert call(capsys, "resume", folder, "--log", *ALL)[0] == 0
    (mine,) = wandb_runs(services)
    (theirs,) = mlflow_runs(services)
    for rows in (mine["rows"], theirs["rows"], tensorboard_rows(folder / "tensorboard")):
        same(rows, folder)
    assert mine["name"] == theirs["name"] == "run"
    assert mine["config"]["problem.hidden"] == [8] and theirs["params"]["iterations"] == "60"
    assert call(capsys, "resume", folder)[0] == 0  # the ids are no reason to log


def test_a_sweep_of_two_parts_is_one_group(services, tmp_path, capsys):  # noqa: F811
    file, folder = tmp_path / "tiny.toml", tmp_path / "grid"
    file.write_text(dump(TINY))
    words = ("--grid", "eta=.01,.02", "--seeds", 1, "--log", "wandb", "mlflow", "--out", folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweeps, "members_that_fit", lambda *_: 1)
        assert call(capsys, "sweep", file, *words)[0] == 0
    found = wandb_runs(services)
    assert [run["group"] for run in found] == ["grid", "grid"]
    for part, eta in enumerate((0.01, 0.02)):
        (mine,) = [run for run in found if run["config"]["eta"] == eta]
        same(mine["rows"], folder / f"part-{part:03d}", member=0)
    by_parent = {run["parent"]: run for run in mlflow_runs(services)}
    assert by_parent[None]["name"] == "grid" and by_parent[None]["id"] in by_parent
    assert len(mlflow_runs(services)) == 3


def test_users_mistakes_leave_nothing_behind(tmp_path, capsys, monkeypatch):
    folder = tmp_path / "run"
    monkeypatch.setitem(sys.modules, "mlflow", None)
    code, _, told = call(capsys, "train", "sine", "--out", folder, "--log", "mlflow")
    assert code == 2 and "pip install 'moml[mlflow]'" in told and told.count("\n") == 1
    code, _, told = call(capsys, "train", "sine", "--out", folder, "--log", "neptune")
    assert code == 2 and "log must be of tensorboard, wandb, mlflow; got 'neptune'" in told
    code, _, told = call(capsys, "train", "sine", "--out", folder, "--log", "wandb", "wandb")
    assert code == 2 and "log must name each service once; got wandb wandb" in told
    assert told.count("\n") == 1 and not folder.exists()


def test_a_folder_that_cannot_be_written_is_told(tmp_path, capsys):
    runs.train(TINY, tmp_path / "run", callback=lambda info: True)
    (tmp_path / "run" / "tensorboard").touch()
    code, _, told = call(capsys, "resume", tmp_path / "run", "--log", "tensorboard")
    assert code == 2 and told.splitlines()[-1].endswith("run/tensorboard: File exists")


def test_the_command_to_go_on_names_the_services(tmp_path):
    words = resume_words(tmp_path / "a run", (), ("wandb", "mlflow"))
    assert words == f"moml resume '{tmp_path}/a run' --log wandb mlflow"
