"""`moml flower`: a federation of real processes, under Flower."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from moml.errors import check_count


@dataclass(frozen=True)
class Init:
    """Make the folder of a federation: an app for Flower, and the experiment to change."""

    folder: tyro.conf.Positional[Path]
    """A new folder."""
    config: str = "synthetic"
    """The experiment: a starting point or a TOML file."""
    superlink: str = "127.0.0.1:8000"
    """Address of a SuperLink that you run; `moml flower up` starts one of its own."""
    root_certificates: Path | None = None
    """File with the certificate of the authority that signed the SuperLink's."""


@dataclass(frozen=True)
class Up:
    """Start a SuperLink and nodes on this machine alone, or those of them that do not run."""

    folder: tyro.conf.Positional[Path]
    """Of `moml flower init`."""
    nodes: int | None = None
    """SuperNodes, each with an equal share of the tasks; by default 3."""
    tls: bool = False
    """Encrypt, and let in only nodes whose keys are registered; certificates are made for it."""


@dataclass(frozen=True)
class Down:
    """Stop what `moml flower up` has started, and nothing else."""

    folder: tyro.conf.Positional[Path]
    """Of `moml flower init`."""


Action = (
    Annotated[Init, tyro.conf.subcommand("init")]
    | Annotated[Up, tyro.conf.subcommand("up")]
    | Annotated[Down, tyro.conf.subcommand("down")]
)


@dataclass(frozen=True)
class Flower:
    """Run clients as real processes, here or on many machines, under Flower."""

    action: tyro.conf.OmitSubcommandPrefixes[Action]


def flower(command: Flower) -> None:
    """Carry out one of the four."""
    COMMANDS[type(command.action)](command.action)


def init(command: Init) -> None:
    """Write the folder."""
    from moml.flower import folder
    from moml.run.toml import load

    folder.init(
        command.folder,
        load(command.config),
        rounds=5,
        address=command.superlink,
        root_certificates=command.root_certificates,
    )
    print(f"folder: {command.folder}")


def up(command: Up) -> None:
    """Start what does not run."""
    from moml.flower.deploy import up
    from moml.flower.folder import opened

    nodes = None if command.nodes is None else check_count("nodes", command.nodes, below=1001)
    now, new = up(opened(command.folder), nodes, command.tls, shown=True)
    secure = "TLS, registered nodes only" if now.tls else "insecure: this machine only"
    told = f"SuperLink on {now.address}, {now.nodes} nodes, {secure}"
    print(f"{command.folder} is {'up' if new else 'up already'}: {told}")


def down(command: Down) -> None:
    """Stop all of it."""
    from moml.flower.deploy import down
    from moml.flower.folder import opened

    stopped = down(opened(command.folder))
    told = f"{stopped} processes stopped" if stopped else "nothing was running"
    print(f"{command.folder} is down: {told}")


COMMANDS: dict[type, Callable[[Any], None]] = {Init: init, Up: up, Down: down}
