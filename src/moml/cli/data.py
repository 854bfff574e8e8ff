"""`moml data`: list, fetch and check data sets."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from moml.cli.validation import say
from moml.errors import DataError

if TYPE_CHECKING:
    from moml.data.images.sets import Found


@dataclass(frozen=True)
class Fetch:
    """Download a data set from its publisher; existing files are kept."""

    name: tyro.conf.Positional[str]
    """mnist, fmnist, cifar10, cifar100 or omniglot."""
    data_dir: Path | None = None
    """Folder of all data sets; by default that of MOML_DATA."""


@dataclass(frozen=True)
class Check:
    """Read data sets, and compare structure and numbers with the publishers'."""

    names: tyro.conf.Positional[list[str]] = field(default_factory=list)
    """Data sets that must be there; by default those that are."""
    data_dir: Path | None = None
    """Folder of all data sets; by default that of MOML_DATA."""


@dataclass(frozen=True)
class Listing:
    """List the data sets by name."""


Action = (
    Annotated[Fetch, tyro.conf.subcommand("fetch")]
    | Annotated[Check, tyro.conf.subcommand("check")]
    | Annotated[Listing, tyro.conf.subcommand("list")]
)


@dataclass(frozen=True)
class Data:
    """List, fetch and check data sets."""

    action: tyro.conf.OmitSubcommandPrefixes[Action]


def data(command: Data) -> None:
    """Run one of the three commands."""
    match command.action:
        case Fetch() as action:
            fetch(action)
        case Check() as action:
            check(action)
        case _:
            listing()


def fetch(command: Fetch) -> None:
    """Download what is missing."""
    from moml.data.images import sets

    sets.by_name(command.name)
    folder = sets.data_folder(command.data_dir, must_exist=False)
    with _shown() as progress:
        came = sets.fetch(command.name, folder, progress)
    for path in came:
        say(path)
    found = sets.check(command.name, folder)
    if found.wrong:
        raise DataError("; ".join(found.wrong))
    say(_line(found) if came else f"{_line(found)}; it was there already")


def check(command: Check) -> None:
    """Print a line for each data set; a requested one that is missing or wrong is an error."""
    from moml.data.images import sets

    folder = sets.data_folder(command.data_dir)
    names = command.names or list(sets.SETS)
    for name in names:
        sets.by_name(name)
    bad = []
    for name in names:
        found = sets.check(name, folder)
        say(_line(found), flush=True)
        if found.wrong and (found.there or command.names):
            bad.append(name)
    if bad:
        raise DataError(f"missing or wrong in {folder}: {', '.join(bad)}")


def listing() -> None:
    """Print a line for each data set."""
    from moml.data.images.catalog import SETS

    for name, one in SETS.items():
        parts = [f"{split} {sum(each):,}" for split, each in one.counts.items()]
        size = sum(archive.size for archive in one.archives) / 1e6
        say(f"{name:<10}{one.title}; {', '.join(parts)} images; {size:.0f} MB to fetch")


def _line(found: "Found") -> str:
    if not found.there:
        return f"{found.name:<10}missing"
    parts = [
        f"{split} {images:,} images of {classes} classes"
        for split, (_, images, classes) in found.splits.items()
    ]
    if found.wrong:
        return f"{found.name:<10}wrong: {'; '.join([*found.wrong, *parts])}"
    places = dict.fromkeys(str(place) for place, _, _ in found.splits.values())
    return f"{found.name:<10}ok: {', '.join(parts)}; in {', '.join(places)}"


@contextmanager
def _shown() -> Iterator[Callable[[str, int, int], None]]:
    """Progress of downloads on standard error: a bar on a terminal, else a line every 5 s."""
    if not sys.stderr.isatty():
        last = time.monotonic()

        def show(file: str, done: int, size: int) -> None:
            nonlocal last
            if done == size or time.monotonic() - last > 5:
                last = time.monotonic()
                line = f"{file}: {done / 1e6:.1f} of {size / 1e6:.1f} MB"
                say(line, file=sys.stderr, flush=True)

        yield show
        return
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=Console(stderr=True)) as shown:
        tasks: dict[str, progress.TaskID] = {}

        def bar(file: str, done: int, size: int) -> None:
            if file not in tasks:
                tasks[file] = shown.add_task(file, total=size)
            shown.update(tasks[file], completed=done)

        yield bar
