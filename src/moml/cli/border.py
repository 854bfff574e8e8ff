"""What the commands that make tables check before they begin."""

from pathlib import Path
from typing import Any

from moml.errors import ConfigError


def places(out: Path, json: Path | None) -> tuple[Path, Path]:
    """The folder and the rows' file, both known to be writable."""
    from moml.report.figures import pyplot
    from moml.run.files import writable_folder

    pyplot()  # a missing matplotlib is said before the work, not after it
    folder = writable_folder(out)
    rows = folder / "rows.json" if json is None else json
    writable_folder(rows.parent)
    if rows.is_dir():
        raise ConfigError(f"{rows} is a folder; give a file for the rows")
    return folder, rows


def some(name: str, values: list[Any] | None) -> None:
    """Refuse an option that was given without a value."""
    if values is not None and not values:
        raise ConfigError(f"{name}: give at least one, or leave the option out")
