"""What the commands that make tables share: options, their validation, rows on disk."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from moml.cli.validation import places, say, set_aside, some
from moml.errors import DataError, check_count

if TYPE_CHECKING:
    from moml.types import Record

Cell = TypeVar("Cell")
Outcome = TypeVar("Outcome", bound=Any)  # has `rows`


@dataclass(frozen=True, kw_only=True)
class Command:
    """A subcommand of `moml reproduce`."""

    def run(self) -> None:
        """Carry out the command."""
        raise NotImplementedError

    def check(self) -> None:
        """Refuse empty lists, and numbers that are not counts."""
        for field in fields(self):
            value = getattr(self, field.name)
            values = value if isinstance(value, list) else [value]
            some(field.name, values)
            least, below = (0, 2**31) if field.name == "split" else (1, None)
            for each in values:
                if isinstance(each, int) and not isinstance(each, bool):
                    check_count(field.name, each, least, below)


@dataclass(frozen=True, kw_only=True)
class Experiment(Command):
    """Options of every command that makes a table."""

    out: Path | None = None
    """Folder for pictures and rows; by default reproduce-TABLE."""
    json: Path | None = None
    """File for the rows; by default rows.json in the folder."""

    def start(self, default: str, *, pictures: bool = True) -> "Rows":
        """An empty list of rows, in the folder of this command."""
        return Rows(*places(self.out or Path(default), self.json, pictures=pictures))


@dataclass(frozen=True, kw_only=True)
class ImageExperiment(Experiment):
    """Options of those that read images."""

    data_dir: Path | None = None
    """Folder of all data sets; by default what MOML_DATA says."""


def earlier_rows(files: "Iterable[Path]", table: str) -> "list[Record]":
    """The rows of earlier commands, all of one table."""
    from moml.storage.files import read_json

    rows: list[Record] = []
    for file in files:
        rows += read_json(file)
        for row in rows:
            if row.get("table") != table:
                got = repr(row.get("table"))
                raise DataError(f"{file}: rows must be of table {table!r}; got {got}")
    return rows


class Rows:
    """The rows of a command; the whole file is on disk after each addition."""

    def __init__(self, folder: Path, file: Path) -> None:
        self.folder, self.file = folder, file
        self.all: list[Record] = []

    def add(self, rows: "Iterable[Record]") -> None:
        """Add the rows of a cell; the rows of an earlier command are renamed before the first."""
        from moml.storage.files import write_json

        if not self.all:
            set_aside(self.file)
        self.all += rows
        write_json(self.all, self.file)

    def run(self, cells: Iterable[Cell], run_cell: Callable[[Cell], Outcome]) -> list[Outcome]:
        """Run cell after cell, and keep the rows of each outcome."""
        outcomes = []
        for cell in cells:
            outcomes.append(run_cell(cell))
            self.add(outcomes[-1].rows)
        return outcomes

    def finish(self, *pictures: Path) -> None:
        """Print where the pictures and the rows are."""
        for picture in pictures:
            say(f"picture: {picture}")
        say(f"rows:    {self.file}")
