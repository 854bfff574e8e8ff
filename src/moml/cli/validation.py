"""What the commands that make tables check before they begin."""

from itertools import count
from pathlib import Path
from typing import Any

from moml.errors import ConfigError


def places(out: Path, json: Path | None) -> tuple[Path, Path]:
    """The folder and the rows' file, both known to be writable."""
    from moml.report.figures import pyplot
    from moml.storage.files import writable_folder

    pyplot()  # a missing matplotlib is said before the work, not after it
    folder = writable_folder(out)
    return folder, rows_file(json) or folder / "rows.json"


def set_aside(rows: Path) -> None:
    """Give the rows of an earlier command another name: hours may have gone into them."""
    if rows.exists():
        numbered = (rows.with_name(f"{rows.stem}-{n}{rows.suffix}") for n in count(1))
        earlier = next(path for path in numbered if not path.exists())
        rows.rename(earlier)
        print(f"rows of an earlier command: {earlier}")


def rows_file(path: Path | None) -> Path | None:
    """A file for rows that can be written, where one is asked for."""
    from moml.storage.files import writable_folder

    if path is not None:
        writable_folder(path.parent)
        if path.is_dir():
            raise ConfigError(f"{path} is a folder; give a file for the rows")
    return path


def some(name: str, values: list[Any] | None) -> None:
    """Refuse an option that was given without a value."""
    if values is not None and not values:
        raise ConfigError(f"{name}: give at least one, or leave the option out")
