"""Checks of commands that write result rows, before any work; lines on the terminal."""

from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

from moml.errors import ConfigError, printable


def say(text: object, **given: Any) -> None:
    """Print one line, of which no character controls the terminal."""
    print(printable(text), **given)


def places(out: Path, json: Path | None, *, pictures: bool = True) -> tuple[Path, Path]:
    """The folder and the file for the rows, both writable."""
    from moml.report.figures import pyplot
    from moml.storage.files import writable_folder

    if pictures:
        pyplot()  # fails at once where matplotlib is missing
    folder = writable_folder(out)
    return folder, rows_file(json) or folder / "rows.json"


def set_aside(rows: Path) -> None:
    """Rename the rows of an earlier command instead of overwriting them."""
    if rows.exists():
        numbered = (rows.with_name(f"{rows.stem}-{n}{rows.suffix}") for n in count(1))
        earlier = next(path for path in numbered if not path.exists())
        rows.rename(earlier)
        say(f"rows of an earlier command: {earlier}")


def rows_file(path: Path | None) -> Path | None:
    """Check that the file for the rows, if any, can be written."""
    from moml.storage.files import writable_folder

    if path is not None:
        writable_folder(path.parent)
        if path.is_dir():
            raise ConfigError(f"json must be a file; got the folder {path}")
    return path


def some(name: str, values: Sequence[object] | None) -> None:
    """Check that a list option, if given, has at least one value."""
    if values is not None and not values:
        raise ConfigError(f"{name} must have at least one value; got none")
