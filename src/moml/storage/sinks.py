"""Services that get every metrics row besides metrics.jsonl: TensorBoard, Weights & Biases, MLflow.

A sink is a function that opens a `Writer`. A sweep is a group: each of its members is a run there,
and TensorBoard shows them side by side. RUN/logs.json keeps the ids by which a resumed run goes on.
"""

import json
import logging
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from moml.atomic import read_plain
from moml.errors import ConfigError, Interrupted, MomlError, reason
from moml.storage.files import writable_folder, write_text, writing_to
from moml.storage.metrics import COST, plain
from moml.types import Record

log = logging.getLogger("moml")
IDS = "logs.json"
PROJECT = "moml"  # of runs there, unless the service's own variables name another


class About(NamedTuple):
    """What a service gets to know of a run; `members` are the settings of a sweep's."""

    config: Record
    group: Path | None = None  # the folder of the sweep
    members: tuple[Record, ...] | None = None
    name: str | None = None  # by default that of the folder


class Writer(NamedTuple):
    """Writes rows; `close` takes how the run ended: None, or what was raised."""

    write: Callable[[Record], None]
    close: Callable[[BaseException | None], None]


Sink = Callable[[Path, About, int], Writer]  # folder, about, step from which the run continues


def scalars(row: Record, member: int | None = None) -> dict[str, float]:
    """The numbers of a row but its step, or those of a sweep's member; only those that are finite.

    >>> row = {"step": 5, "samples": 90, "loss": [1.0, float("nan")], "cost": {"rounds": 5}}
    >>> scalars(row)
    {'samples': 90.0, 'loss/0': 1.0, 'cost/rounds': 5.0}
    >>> scalars(row, member=1)
    {'samples': 90.0, 'cost/rounds': 5.0}
    """
    given = {name: value for name, value in row.items() if name not in ("step", COST)}
    given |= {f"{COST}/{name}": value for name, value in row.get(COST, {}).items()}
    found: dict[str, float | None] = {}
    for name, value in given.items():
        numbers = plain(value)
        if not isinstance(numbers, list):
            found[name] = numbers
        elif member is not None:
            found[name] = numbers[member]
        else:
            found |= {f"{name}/{i}": number for i, number in enumerate(numbers)}
    return {name: number for name, number in found.items() if number is not None}


def tensorboard(folder: Path, about: About, step: int) -> Writer:
    """Events in RUN/tensorboard; those after `step` of a run that was killed are purged."""
    place = folder / "tensorboard"
    with writing_to(writable_folder(place, 0o700)):
        writer = _module("tensorboard").SummaryWriter(
            str(place), purge_step=step + 1,
            filename_suffix=f".{step:012d}",  # its names have whole seconds
        )  # fmt: skip

    def write(row: Record) -> None:
        for name, number in scalars(row).items():
            writer.add_scalar(name, number, row["step"])
        with writing_to(place):
            writer.flush()

    def close(_: BaseException | None) -> None:
        with writing_to(place):
            writer.close()

    return Writer(write, close)


def wandb(folder: Path, about: About, step: int) -> Writer:
    """Runs of Weights & Biases, in the group of the sweep; WANDB_MODE and others are its own."""
    module, members = _module("wandb"), about.members
    group = None if about.group is None else about.group.resolve().name
    named = _named(folder, about)
    ids = _ids(folder, "wandb", lambda: [uuid.uuid4().hex for _ in named], len(named))
    quiet = module.Settings(silent=True, console="off")
    runs = [
        module.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT), group=group, name=name, id=id_,
            config=config, resume="allow", reinit="create_new", settings=quiet,
        )
        for id_, (name, config) in zip(ids, named, strict=True)
    ]  # fmt: skip

    def write(row: Record) -> None:
        for i, run in enumerate(runs):
            run.log(scalars(row, None if members is None else i), step=row["step"])

    def close(error: BaseException | None) -> None:
        for run in runs:
            run.finish(exit_code=0 if error is None else 1)

    return Writer(write, close)


def mlflow(folder: Path, about: About, step: int) -> Writer:
    """Runs of MLflow, those of a sweep below one parent; MLFLOW_TRACKING_URI says where."""
    module, entities = _module("mlflow"), import_module("mlflow.entities")
    client, members = module.MlflowClient(), about.members
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)

    def new(run: str, config: Record, tags: dict[str, str]) -> str:
        found = client.get_experiment_by_name(name)
        where = client.create_experiment(name) if found is None else found.experiment_id
        id_ = client.create_run(where, run_name=run, tags=tags).info.run_id
        params = [entities.Param(key, str(value)[:500]) for key, value in config.items()]
        for first in range(0, len(params), 100):  # the most that one call takes
            client.log_batch(id_, params=params[first : first + 100])
        return id_

    tags: dict[str, str] = {}
    parent: list[str] = []
    if about.group is not None:
        sweep = about.group.resolve().name
        parent = _ids(about.group, "mlflow", lambda: [new(sweep, about.config, {})], 1)
        tags = {"mlflow.parentRunId": parent[0]}
    named = _named(folder, about)
    own = _ids(folder, "mlflow", lambda: [new(*one, tags) for one in named], len(named))
    for id_ in (*parent, *own):
        client.update_run(id_, status="RUNNING")

    def write(row: Record) -> None:
        for i, id_ in enumerate(own):
            now, values = int(time.time() * 1000), scalars(row, None if members is None else i)
            metrics = [entities.Metric(key, v, now, row["step"]) for key, v in values.items()]
            client.log_batch(id_, metrics=metrics)

    def close(error: BaseException | None) -> None:
        stopped = isinstance(error, Interrupted | KeyboardInterrupt)
        status = "FINISHED" if error is None else "KILLED" if stopped else "FAILED"
        for id_ in (*own, *parent):
            client.set_terminated(id_, status)

    return Writer(write, close)


SINKS: dict[str, Sink] = {"tensorboard": tensorboard, "wandb": wandb, "mlflow": mlflow}
PACKAGES = {"tensorboard": "tensorboardX", "wandb": "wandb", "mlflow": "mlflow"}


def check_sinks(names: Sequence[str]) -> None:
    """Refuse a name that is unknown, given twice, or whose package is not installed."""
    if len(set(names)) < len(names):
        raise ConfigError(f"log must name each service once; got {' '.join(names)}")
    for name in names:
        if name not in SINKS:
            raise ConfigError(f"log must be of {', '.join(SINKS)}; got {name!r}")
        _module(name)


def log_words(names: Sequence[str]) -> str:
    """The option that names these services again, behind a command."""
    return f" --log {' '.join(names)}" if names else ""


@contextmanager
def open_sinks(
    names: Sequence[str], folder: Path, about: About, step: int
) -> Iterator[Callable[[Record], None]]:
    """Yield a function that gives a row to all sinks; one that fails is left out from then on."""
    writers: dict[str, Writer] = {}

    def each(call: Callable[[Writer], None]) -> None:
        for name, writer in list(writers.items()):
            try:
                call(writer)
            except MomlError:  # a full disk
                raise
            except Exception as error:
                log.warning("%s: %s; it gets no further rows", name, reason(error))
                del writers[name]

    ended: BaseException | None = None
    try:
        for name in names:
            try:
                writers[name] = SINKS[name](folder, about, step)
            except MomlError:
                raise
            except Exception as error:
                raise ConfigError(f"{name} cannot be started: {reason(error)}") from error
        yield lambda row: each(lambda writer: writer.write(row))
    except BaseException as error:
        ended = error
        raise
    finally:
        each(lambda writer: writer.close(ended))


def _module(name: str) -> Any:
    """The package of a sink; a ConfigError says how to install it."""
    try:
        return import_module(PACKAGES[name])
    except ImportError as error:
        what = f"--log {name} needs {PACKAGES[name]}"
        raise ConfigError(f"{what}: pip install 'moml[{name}]'") from error


def _named(folder: Path, about: About) -> list[tuple[str, Record]]:
    """Names and settings of the runs: one, or one for each member of a sweep."""
    name = about.name or (folder if about.group is None else about.group).resolve().name
    if about.members is None:
        return [(name, about.config)]
    words = lambda setting: " ".join(f"{key}={value:g}" for key, value in setting.items())
    return [(f"{name} {words(one)}", about.config | one) for one in about.members]


def _ids(folder: Path, name: str, make: Callable[[], list[str]], count: int) -> list[str]:
    """The ids of a run in a service, from its folder; made where there are none."""
    path = folder / IDS
    try:
        known = json.loads(read_plain(path)) if path.exists() else {}
        ids = known.get(name)
    except (OSError, ValueError, AttributeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    if ids is None:
        ids = make()
        write_text(json.dumps(known | {name: ids}) + "\n", path)
    sound = isinstance(ids, list) and all(re.fullmatch("[0-9a-f]{32}", str(id_)) for id_ in ids)
    if not sound or len(ids) != count:
        raise ConfigError(f"{path} must have {count} ids of {name}; got {ids!r}")
    return ids
