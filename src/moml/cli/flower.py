"""`moml flower`: a federation of real processes, under Flower."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from moml.cli.plugins import Plugins
from moml.cli.validation import rows_file, say
from moml.errors import check_count

if TYPE_CHECKING:
    from moml.types import Record

HEAD = f"{'round':>9}{'loss':>9}{'before':>9}{'after':>9}{'answered':>10}{'seconds':>9}"


@dataclass(frozen=True)
class Init(Plugins):
    """Make the folder of a federation: an app for Flower, and the experiment to change."""

    folder: tyro.conf.Positional[Path]
    """A new folder."""
    config: str | None = None
    """The experiment: a starting point or a TOML file; by default on generated data."""
    superlink: str = "127.0.0.1:8000"
    """Address of a SuperLink that you run; `moml flower up` starts one of its own."""
    root_certificates: Path | None = None
    """File with the certificate of the authority that signed the SuperLink's."""


@dataclass(frozen=True)
class Up(Plugins):
    """Start a SuperLink and nodes on this machine alone, or those of them that do not run."""

    folder: tyro.conf.Positional[Path]
    """Of `moml flower init`."""
    nodes: int | None = None
    """SuperNodes, each with an equal share of the tasks; by default 3."""
    tls: bool = False
    """Encrypt, and let in only nodes whose keys are registered; certificates are made for it."""
    data: Path | None = None
    """What nodes learn from, where it is not generated: a table (each takes the rows of its own
    tasks), or the folder of data sets, by default what MOML_DATA says."""


@dataclass(frozen=True)
class Run(Plugins):
    """Run the experiment and show its rounds; Ctrl-C stops it, `--resume` goes on with it."""

    folder: tyro.conf.Positional[Path]
    """Of `moml flower init`."""
    rounds: int | None = None
    """Rounds in all; by default as the settings in pyproject.toml say."""
    method: str | None = None
    """A method with rounds, such as localmoml or fedavg; by default as config.toml says."""
    resume: bool = False
    """Go on with the last run, after the last round that it finished."""
    json: Path | None = None
    """File for the result rows, two for each round."""
    log: tuple[str, ...] = ()
    """Services that get the rounds too, of tensorboard, wandb, mlflow (extras of these names)."""


@dataclass(frozen=True)
class Down:
    """Stop what `moml flower up` has started, and nothing else."""

    folder: tyro.conf.Positional[Path]
    """Of `moml flower init`."""


Action = (
    Annotated[Init, tyro.conf.subcommand("init")]
    | Annotated[Up, tyro.conf.subcommand("up")]
    | Annotated[Run, tyro.conf.subcommand("run")]
    | Annotated[Down, tyro.conf.subcommand("down")]
)


@dataclass(frozen=True)
class Flower:
    """Run clients as real processes, here or on many machines, under Flower."""

    action: tyro.conf.OmitSubcommandPrefixes[Action]


def flower(command: Flower) -> None:
    """Carry out one of the four."""
    match command.action:
        case Init():
            init(command.action)
        case Up():
            up(command.action)
        case Run():
            run(command.action)
        case Down():
            down(command.action)


def init(command: Init) -> None:
    """Write the folder."""
    from moml.config.toml import dump, load
    from moml.flower.app.settings import START, experiment_of
    from moml.flower.local import folder

    folder.init(
        command.folder,
        experiment_of(dump(load(command.config or START))),
        address=command.superlink,
        root_certificates=command.root_certificates,
    )
    say(f"folder: {command.folder}")


def up(command: Up) -> None:
    """Start what does not run."""
    from moml.flower.local.deploy import up
    from moml.flower.local.folder import opened

    nodes = None if command.nodes is None else check_count("nodes", command.nodes, below=1001)
    places = opened(command.folder)
    now, new = up(places, nodes, command.tls, command.data, command.plugin, shown=True)
    secure = "TLS, registered nodes only" if now.tls else "insecure: this machine only"
    state = f"SuperLink on {now.address}, {now.nodes} nodes, {secure}"
    say(f"{command.folder} is {'up' if new else 'up already'}: {state}")


def run(command: Run) -> None:
    """Run it, or go on with it; a line a round."""
    from moml.flower.app.rows import result_rows
    from moml.flower.local import run as runs
    from moml.flower.local.folder import opened
    from moml.storage.files import write_json
    from moml.storage.sinks import check_sinks

    file = rows_file(command.json)
    check_sinks(command.log)
    places = opened(command.folder)
    runs.check_nodes(places)
    given = {"rounds": command.rounds, "method": command.method}
    given = {name: value for name, value in given.items() if value is not None}
    given["plugin"] = " ".join(command.plugin)  # never what a file says
    folder, settings = (runs.last if command.resume else runs.new)(places, given)
    config = settings.config
    say(f"{config.method}, {settings.rounds} rounds in {folder}")
    say(HEAD, flush=True)
    try:
        runs.run(places, folder, settings, _show, command.log)
    finally:
        if file is not None:
            write_json(result_rows(config, runs.rounds(folder)), file)
            say(f"rows: {file}")


def _show(row: "Record") -> None:
    """Print a round in a line, and the clients that are left out."""
    figure = lambda name: f"{'-':>9}" if row[name] is None else f"{row[name]:>9.4g}"
    figures = "".join(map(figure, ("loss", "before", "after")))
    answered = f"{row['answered']}/{row['drawn']}"
    privacy = "" if row["epsilon"] is None else f"  epsilon {row['epsilon']:.3g}"
    step = f"{row['round']}/{row['rounds']}"
    say(f"{step:>9}{figures}{answered:>10}{row['seconds']:>9.1f}{privacy}", flush=True)
    for one in row["failed"]:
        who = f"partition {one['partition']} (tasks {' '.join(map(str, one['tasks']))})"
        say(f"  left out: {who}: {one['reason']}", flush=True)


def down(command: Down) -> None:
    """Stop all of it."""
    from moml.flower.local.deploy import down
    from moml.flower.local.folder import opened

    stopped = down(opened(command.folder))
    result = f"{stopped} processes stopped" if stopped else "nothing was running"
    say(f"{command.folder} is down: {result}")
