"""`moml train`, `moml resume`, `moml sweep`, `moml score`, `moml doctor`."""

import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from moml.cli.execution import Execution, execution
from moml.cli.plugins import Plugins
from moml.cli.validation import rows_file, say
from moml.errors import ConfigError

if TYPE_CHECKING:
    from moml.config.config import Config
    from moml.runs.job import Job
    from moml.types import Record


@dataclass(frozen=True)
class Train(Execution):
    """Train one model in a run folder; with --data, on your own table.

    `moml resume RUN` continues after any interruption.
    `moml train --print-config NAME` writes the complete file of a starting point.
    `moml train --data FILE --task COLUMN --target COLUMN --out RUN` learns from your own table;
    its options are listed by `moml train --data --help`. With --from RUN it continues from such a
    run; see `moml train --data --from --help`.
    """

    out: Path
    """Folder of the run: configuration, metrics, checkpoints, log."""
    from_: Annotated[Path | None, tyro.conf.arg(name="from")] = None
    """Start from the parameters w of the newest checkpoint of another run."""
    json: Path | None = None
    """File for the result row."""
    log: tuple[str, ...] = ()
    """Services that get the metrics too, of tensorboard, wandb, mlflow (extras of these names)."""


@dataclass(frozen=True)
class Sweep(Plugins):
    """Train a grid of step sizes with several seeds as one compiled program, and rank it."""

    out: Path
    """Folder of the sweep."""
    grid: tuple[str, ...] = ()
    """Values of the method's numbers, such as eta=.002,.005 beta=.1,.3"""
    seeds: int = 5
    """Trainings of each point of the grid; from 1."""
    log: tuple[str, ...] = ()
    """Services that get the metrics too, of tensorboard, wandb and mlflow; the sweep is a group."""
    memory_gb: float | None = None
    """Memory to use; by default 70 % of what is free."""
    json: Path | None = None
    """File for the rows; by default rows.json in the folder."""


@dataclass(frozen=True)
class Resume(Execution):
    """Continue a run or a sweep from its last good checkpoint, bit for bit."""

    run: tyro.conf.Positional[Path]
    """Its folder."""
    allow_change: list[str] = field(default_factory=list)
    """Fields of config.toml that may differ from the start of the run."""
    json: Path | None = None
    """File for the result rows."""
    log: tuple[str, ...] = ()
    """Services that get the metrics too, of tensorboard, wandb, mlflow (extras of these names)."""


@dataclass(frozen=True)
class Score(Plugins):
    """Score a run's model again, with other shots, steps or test tasks.

    For a federated run, every client by three models: the global one; the one that it keeps, or the
    global one fine-tuned on its training samples where it keeps none; the global one adapted to
    `shots` of its test samples. Mean over clients, also weighted by test samples, the worst tenth,
    the spread, how many are worse off than with the global model; --json has a row for each client.
    """

    run: tyro.conf.Positional[Path]
    """Its folder."""
    shots: list[int] | None = None
    """Samples to adapt on (in episodes, of each class); one or more numbers."""
    steps: int | None = None
    """Steps to adapt with."""
    tasks: int | None = None
    """Number of unseen tasks to score on; clients and tables are all scored."""
    alone: bool = False
    """Episodes: classify one image at a time, so that no answer depends on the others."""
    best: bool = False
    """The best checkpoint instead of the newest."""
    epochs: int | None = None
    """Clients: passes of fine-tuning over the training samples. By default local_epochs, or 1."""
    rate: float | None = None
    """Clients: step size of fine-tuning. By default the eta of the run."""
    leaves: str | None = None
    """Clients: parameters to fine-tune, as a regular expression of their names, such as head. By
    default all."""
    local: Path | None = None
    """Clients: a run of method local on the same problem; counts who is worse off than alone."""
    json: Path | None = None
    """File for the result rows."""


@dataclass(frozen=True)
class Doctor(Plugins):
    """Show devices, versions, caches and data sets, and test one identity."""


@dataclass(frozen=True)
class _Nothing(Plugins):
    """The complete file of a configuration."""


def _report(
    rows: "list[Record]",
    title: str,
    file: Path | None,
    folder: Path,
    spent: "dict[str, int] | None" = None,
) -> None:
    from moml.report.terminal import cost_line, print_clients, print_rows
    from moml.storage.files import write_json

    of_clients = [row for row in rows if "group" in row["setting"]]
    others = [row for row in rows if "group" not in row["setting"]]
    if others:
        print_rows(others, title)
    if of_clients:
        method, metric = (of_clients[0][name] for name in ("method", "metric"))
        print_clients(of_clients, f"{method}, {metric.replace('_', ' ')} of clients by model")
    if spent is not None:
        say(f"cost:   {cost_line(spent)}")
    if file is not None:
        write_json(rows, file)
        say(f"rows:   {file}")
    say(f"folder: {folder}")


def train(arguments: Sequence[str]) -> None:
    """Start a run; or, with --print-config NAME, print that configuration."""
    from moml.cli.configured import parse
    from moml.config.toml import dump
    from moml.runs import runs

    if arguments[:1] == ["--print-config"]:
        config, _ = parse(arguments[1:], "moml train --print-config", _Nothing)
        print(dump(config), end="")
        return
    with ExitStack() as open_:
        found: list[tuple] = []
        ready = lambda own: found.append(open_.enter_context(execution(own, own.out)))
        config, own = parse(arguments, "moml train", Train, ready)
        mesh, group = found[0]
        file = rows_file(own.json)
        began = time.monotonic()
        config, job = runs.train(
            config, own.out, source=own.from_, progress=True, log=own.log, mesh=mesh,
            group=group,
        )  # fmt: skip
        if group.leads:
            _end(config, job, own.out, file, time.monotonic() - began)


def sweep(arguments: Sequence[str]) -> None:
    """Start a sweep."""
    from moml.cli.configured import parse
    from moml.runs.sweeps import grid_from, sweep_run

    config, own = parse(arguments, "moml sweep", Sweep)
    grid, file = grid_from(own.grid), rows_file(own.json) or own.out / "rows.json"
    if own.memory_gb is not None and not own.memory_gb > 0:
        raise ConfigError(f"memory_gb must be above 0; got {own.memory_gb:g}")
    memory = None if own.memory_gb is None else 1e9 * own.memory_gb
    config, rows = sweep_run(
        config, own.out, grid, own.seeds, memory=memory, progress=True, log=own.log
    )
    _report(rows, f"{config.method}: the best first", file, own.out)


def resume(command: Resume) -> None:
    """Continue a run or a sweep."""
    from moml.runs import record, runs, sweeps

    file = rows_file(command.json)
    with execution(command, command.run) as (mesh, group):
        known, _ = group.run_all("record", lambda: record.record_of(command.run))
        began = time.monotonic()
        if "grid" in known:
            if mesh is not None:
                raise ConfigError(f"{command.run} holds a sweep: it runs on one device")
            config, rows = sweeps.resume_sweep(
                command.run, command.allow_change, progress=True, log=command.log
            )
            file = file or command.run / "rows.json"
            _report(rows, f"{config.method}: the best first", file, command.run)
            return
        config, job = runs.resume(
            command.run, command.allow_change, progress=True, log=command.log, mesh=mesh,
            group=group,
        )  # fmt: skip
        if group.leads:
            _end(config, job, command.run, file, time.monotonic() - began)


def _end(config: "Config", job: "Job", folder: Path, file: Path | None, seconds: float) -> None:
    from moml.runs import runs
    from moml.runs.record import record_of

    if text := job.execution.describe():
        say(text)
    if found := record_of(folder)[0].get("choice"):
        tried = ", ".join(f"{beta:.3g}" for beta in found["rungs"][0]["beta"])
        say(f"beta:   {found['beta']:.3g}, the best of {tried} on {found['tasks']} held-out tasks")
    row = runs.last_row(config, job.plan, folder, seconds)
    _report([row], f"{config.method}, {row['metric']}", file, folder, runs.spent(folder))


def score(command: Score) -> None:
    """Score a run's model."""
    from moml.runs.client_scores import FineTuning
    from moml.runs.score import score as scored

    file = rows_file(command.json)
    config, rows = scored(
        command.run,
        shots=command.shots,
        steps=command.steps,
        tasks=command.tasks,
        alone=command.alone,
        best=command.best,
        tuning=FineTuning(command.epochs, command.rate, command.leaves),
        local=command.local,
    )
    _report(rows, f"{config.method}, {rows[0]['metric']}", file, command.run)


def doctor(command: Doctor) -> None:
    """Print the facts; exit with code 1 if the self-test fails."""
    from moml.runs.doctor import facts, identity

    for name, value in facts():
        say(f"{name:<18}{value}")
    began = time.monotonic()
    apart = identity()
    good = apart < 1e-4
    text = f"v1 at beta = 1 is MAML: {apart:.1e} apart after 200 steps"
    say(f"{'self-test':<18}{text}, {time.monotonic() - began:.1f} s: {'ok' if good else 'WRONG'}")
    if not good:
        sys.exit(1)
