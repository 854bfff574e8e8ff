"""Services that get the metrics too, by their real packages: offline, or in a folder."""

import json
import logging
import sys
import types
from pathlib import Path

import pytest

from moml.errors import ConfigError, Interrupted
from moml.storage import sinks
from moml.storage.sinks import About, check_sinks, open_sinks
from tests.storage.test_metrics import row
from tests.support.services import mlflow_runs, services, tensorboard_rows, wandb_runs  # noqa: F401

ALL = ("wandb", "mlflow", "tensorboard")
CONFIG = {"eta": 0.1, "problem.hidden": (40, 40)}


def seen(step, **given):
    """What a service has of a row."""
    return {"loss": 0.1 * step, "norm": 1.0, "iterations": 2 * step, "samples": 10 * step} | given


def close(one, other):
    assert one.keys() == other.keys()
    for step, values in other.items():
        assert one[step] == pytest.approx(values, rel=1e-6)


def test_every_row_reaches_all_and_a_resumed_run_goes_on(services, tmp_path):  # noqa: F811
    folder = tmp_path / "first"
    folder.mkdir()
    about = About(CONFIG)
    cost = {"rounds": 3, "up": 7}
    with pytest.raises(Interrupted), open_sinks(ALL, folder, about, 0) as write:
        write(row(1))
        write(row(2, loss=float("inf"), score=0.5))
        raise Interrupted("stopped", 130)
    ids = json.loads((folder / "logs.json").read_text())
    assert [run["status"] for run in mlflow_runs(services)] == ["KILLED"]
    with open_sinks(ALL, folder, about, 2) as write:
        write(row(3, cost=cost))
    assert json.loads((folder / "logs.json").read_text()) == ids
    want = {
        1: seen(1),
        2: {k: v for k, v in seen(2, score=0.5).items() if k != "loss"},
        3: seen(3, **{"cost/rounds": 3, "cost/up": 7}),
    }
    (run,) = mlflow_runs(services)
    close(run["rows"], want)
    assert (run["name"], run["status"], run["id"]) == ("first", "FINISHED", ids["mlflow"][0])
    assert run["params"] == {"eta": "0.1", "problem.hidden": "(40, 40)"}
    (run,) = wandb_runs(services)  # two offline sessions of one id, which wandb joins
    close(run["rows"], want)
    assert (run["name"], run["id"], run["project"]) == ("first", ids["wandb"][0], "moml")
    assert run["config"] == {"eta": 0.1, "problem.hidden": [40, 40]} and run["group"] == ""
    assert run["exits"] == [1, 0]
    close(tensorboard_rows(folder / "tensorboard"), want)


def test_a_sweep_is_a_group(services, tmp_path):  # noqa: F811
    sweep = tmp_path / "grid"
    members = ({"eta": 0.1, "seed": 0}, {"eta": 0.2, "seed": 0})
    for part in ("part-000", "part-001"):
        (sweep / part).mkdir(parents=True)
        with open_sinks(ALL, sweep / part, About({"k": 1}, sweep, members), 0) as write:
            write(row(4, loss=[1.0, float("nan")], norm=[2.0, 3.0], score=[None, 5.0]))
    counts = {"iterations": 8, "samples": 40}
    rows = [{4: {"loss": 1.0, "norm": 2.0} | counts}, {4: {"norm": 3.0, "score": 5.0} | counts}]
    found = wandb_runs(services)
    assert [run["group"] for run in found] == ["grid"] * 4
    assert {run["name"] for run in found} == {"grid eta=0.1 seed=0", "grid eta=0.2 seed=0"}
    for run in found:
        i = members.index({key: run["config"][key] for key in ("eta", "seed")})
        close(run["rows"], rows[i])
        assert run["config"]["k"] == 1
    parents = [run for run in mlflow_runs(services) if run["parent"] is None]
    assert [run["name"] for run in parents] == ["grid"]
    children = [run for run in mlflow_runs(services) if run["parent"] == parents[0]["id"]]
    assert len(children) == 4
    for run in children:
        close(run["rows"], rows[0 if run["params"]["eta"] == "0.1" else 1])
    names = set(tensorboard_rows(sweep / "part-001" / "tensorboard")[4])
    assert {"loss/0", "norm/0", "norm/1", "score/1", "samples"} <= names and "loss/1" not in names


@pytest.mark.parametrize("name", sinks.SINKS)
def test_a_missing_package_is_told(name, monkeypatch):
    monkeypatch.setitem(sys.modules, sinks.PACKAGES[name], None)
    with pytest.raises(ConfigError, match=rf"--log {name} needs .*pip install 'moml\[{name}\]'"):
        check_sinks([name])


def test_an_unknown_service_is_told():
    with pytest.raises(
        ConfigError, match="log must be of tensorboard, wandb, mlflow; got 'neptune'"
    ):
        check_sinks(["wandb", "neptune"])


def test_a_service_that_is_named_twice_is_told():
    with pytest.raises(ConfigError, match=r"log must name each service once; got wandb wandb$"):
        check_sinks(["wandb", "wandb"])


@pytest.mark.filterwarnings("ignore:The ``noload``:DeprecationWarning")  # MLflow's own
def test_mlflow_without_settings_writes_here(services, tmp_path, monkeypatch):  # noqa: F811
    """By default it keeps an SQLite file, which needs packages that mlflow-skinny does not."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    monkeypatch.chdir(tmp_path)
    with open_sinks(["mlflow"], tmp_path, About(CONFIG), 0) as write:
        write(row(1))
    (run,) = mlflow_runs("sqlite:///mlflow.db")
    assert run["status"] == "FINISHED" and (tmp_path / "mlflow.db").is_file()
    close(run["rows"], {1: seen(1)})


def test_a_service_that_fails_stops_no_run(tmp_path, monkeypatch, caplog):
    written = []

    def broken(folder: Path, about: About, step: int) -> sinks.Writer:
        def write(row):
            written.append(row)
            raise OSError("the server\n is gone")

        return sinks.Writer(write, lambda error: 1 / 0)

    monkeypatch.setitem(sinks.SINKS, "wandb", broken)
    with caplog.at_level(logging.WARNING, "moml"):
        with open_sinks(["wandb", "tensorboard"], tmp_path, About({}), 0) as write:
            write(row(1))
            write(row(2))
        with open_sinks(["wandb"], tmp_path, About({}), 0):
            pass
    assert len(written) == 1 and set(tensorboard_rows(tmp_path / "tensorboard")) == {1, 2}
    gone, by_zero = caplog.messages
    assert gone == "wandb: the server is gone; it gets no further rows"
    assert by_zero.startswith("wandb: division by zero")


def test_what_cannot_be_opened_is_told(tmp_path, monkeypatch):
    def closed(*_: object) -> sinks.Writer:
        raise RuntimeError("no key\nis set")

    monkeypatch.setitem(sinks.SINKS, "mlflow", closed)
    with (
        pytest.raises(ConfigError, match=r"^mlflow cannot be started: no key is set$"),
        open_sinks(["tensorboard", "mlflow"], tmp_path, About({}), 0),
    ):
        pass
    monkeypatch.setitem(sys.modules, "wandb", types.ModuleType("wandb"))
    for content in ('{"wandb": ["../x"]}', '{"wandb": []}', "[]", "{"):
        (tmp_path / "logs.json").write_text(content)
        with (
            pytest.raises(ConfigError, match=r"logs.json"),
            open_sinks(["wandb"], tmp_path, About({}), 0),
        ):
            pass
