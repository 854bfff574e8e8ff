"""What services that log have of runs: read from their own files."""

import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

Rows = dict[int, dict[str, float]]


@pytest.fixture
def services(tmp_path, monkeypatch):
    """A folder for all services; nothing is sent anywhere."""
    folder = tmp_path / "services"
    folder.mkdir()
    for name, value in {
        "WANDB_MODE": "offline", "WANDB_DIR": str(folder), "WANDB_CACHE_DIR": str(folder / "cache"),
        "WANDB_CONFIG_DIR": str(folder / "config"), "WANDB_DATA_DIR": str(folder / "data"),
        "WANDB_ERROR_REPORTING": "false", "WANDB_DISABLE_GIT": "true", "WANDB_DISABLE_CODE": "true",
        "MLFLOW_TRACKING_URI": (folder / "mlflow").as_uri(), "MLFLOW_ALLOW_FILE_STORE": "true",
        "MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    yield folder
    if "wandb" in sys.modules:
        sys.modules["wandb"].teardown()  # it has read the variables


def mlflow_runs(where: Path | str) -> list[dict[str, Any]]:
    """The runs of the experiment moml: in the folder of the services, or at an address."""
    import mlflow

    uri = where if isinstance(where, str) else (where / "mlflow").as_uri()
    client, found = mlflow.MlflowClient(uri), []
    experiment = client.get_experiment_by_name("moml")
    for run in client.search_runs([experiment.experiment_id]):
        rows: Rows = defaultdict(dict)
        for name in run.data.metrics:
            for metric in client.get_metric_history(run.info.run_id, name):
                rows[metric.step][name] = metric.value
        tags = run.data.tags
        found.append(
            {"id": run.info.run_id, "name": tags["mlflow.runName"], "status": run.info.status,
             "params": run.data.params, "rows": rows, "parent": tags.get("mlflow.parentRunId")}
        )  # fmt: skip
    return found


def wandb_runs(folder: Path) -> list[dict[str, Any]]:
    """The offline runs, those of one id together."""
    import json

    from wandb.proto.wandb_internal_pb2 import Record

    runs: dict[str, dict[str, Any]] = {}
    for file in sorted(folder.glob("wandb/offline-run-*/run-*.wandb")):
        records = [Record.FromString(data) for data in _log_records(file.read_bytes())]
        for record in records:
            if record.HasField("run"):
                run = record.run
                config = {item.key: json.loads(item.value_json) for item in run.config.update}
                mine = runs.setdefault(run.run_id, {"rows": defaultdict(dict), "exits": []})
                mine |= {"id": run.run_id, "name": run.display_name, "group": run.run_group}
                mine |= {"project": run.project}
                mine["config"] = {k: v for k, v in config.items() if k != "_wandb"}
        for record in records:
            for item in record.history.item:
                name = item.key or "/".join(item.nested_key)
                if not name.startswith("_"):
                    mine["rows"][record.history.step.num][name] = json.loads(item.value_json)
            if record.HasField("exit"):
                mine["exits"].append(record.exit.exit_code)
    return list(runs.values())


def _log_records(content: bytes, block: int = 32768) -> list[bytes]:
    """The records of a log as LevelDB writes it, behind a header of 7 bytes."""
    records, parts, at = [], [], 7
    while at + 7 <= len(content):
        if block - at % block < 7:  # no room for a head: the next block
            at += block - at % block
            continue
        size, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        parts.append(content[at + 7 : at + 7 + size])
        at += 7 + size
        if kind in (1, 4):  # whole, or the last part
            records.append(b"".join(parts))
            parts = []
    return records


def tensorboard_rows(folder: Path) -> Rows:
    """The scalars of all event files, without those that a later file has purged."""
    from tensorboardX.proto.event_pb2 import Event, SessionLog

    rows: Rows = defaultdict(dict)
    for file in sorted(folder.iterdir()):
        left = file.read_bytes()
        while left:  # records of TensorFlow: length, its checksum, an event, its checksum
            size = int.from_bytes(left[:8], "little")
            event = Event.FromString(left[12 : 12 + size])
            left = left[16 + size :]
            if event.session_log.status == SessionLog.START:
                for step in [step for step in rows if step >= event.step]:
                    del rows[step]
            for value in event.summary.value:
                rows[event.step][value.tag] = value.simple_value
    return rows
