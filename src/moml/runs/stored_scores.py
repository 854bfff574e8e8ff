"""Scores of clients, kept in the folder of their run for `moml report`."""

import json
from collections.abc import Sequence
from contextlib import suppress
from math import isfinite
from numbers import Real
from pathlib import Path
from typing import NamedTuple

from moml.atomic import read_plain
from moml.errors import DataError, MomlError
from moml.storage.files import write_text
from moml.types import Record

NAME = "clients.json"
MODELS = ("global", "kept", "fine-tuned", "adapted", "local")
GROUPS = ("took-part", "not-drawn", "unseen")


class StoredScores(NamedTuple):
    """Result rows of clients, and the step of the checkpoint that they are of."""

    step: int
    rows: list[Record]


def store(folder: Path, step: int, rows: Sequence[Record]) -> None:
    """Write the newest scores; a folder that cannot be written to stays as it is."""
    with suppress(MomlError):
        write_text(json.dumps({"step": step, "rows": list(rows)}) + "\n", folder / NAME)


def stored(folder: Path) -> StoredScores | None:
    """Read the scores, if there are any."""
    path = folder / NAME
    if not path.exists():
        return None
    try:
        found = json.loads(read_plain(path))
        step, rows = int(found["step"]), list(found["rows"])
        for row in rows:
            _check(row)
        if not any("client" in row["setting"] for row in rows):
            raise ValueError("no row of a client")
    except MomlError:
        raise
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise DataError(f"cannot read {path}: {error}; remove it") from error
    return StoredScores(step, rows)


def _check(row: Record) -> None:
    """Raise a ValueError, LookupError or TypeError unless a row can be shown."""
    setting = row["setting"]
    MODELS.index(setting["model"]), GROUPS.index(setting["group"])
    counts = ("client", "images") if "client" in setting else ("clients",)
    numbers = [setting[name] for name in counts]
    numbers += [] if row["mean"] is None else [row["mean"]]
    numbers += [setting[name] for name in ("epochs", "shots") if name in setting]
    if not isinstance(row["metric"], str) or not all(map(_finite, numbers)):
        raise ValueError(f"a row must have a metric and finite numbers; got {row!r}"[:200])


def _finite(value: object) -> bool:
    return isinstance(value, Real) and isfinite(value)
