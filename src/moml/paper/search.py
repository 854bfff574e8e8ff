"""The one search over a grid on validation tasks, and the file that keeps what it finds."""

import itertools
import json
import platform
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import jax
import numpy as np
from jaxtyping import Bool, Float

from moml.atomic import SHARED
from moml.errors import DataError
from moml.storage.files import write_text
from moml.training.rows import mean_of_seeds, means_to_choose_by
from moml.types import Record

Lists = Mapping[str, Sequence[float | int]]
Scores = tuple[Float[np.ndarray, "settings runs"], Bool[np.ndarray, "settings runs"]]
Evaluate = Callable[
    [dict[str, float | int], Lists], Scores
]  # fixed values, grid -> scores, lost runs


def best_first(scores: Float[np.ndarray, "settings runs"], lost: np.ndarray) -> list[int]:
    """The settings by mean score, highest first; those that lose more runs than others are last.

    >>> best_first(np.array([[1.0], [9.0], [3.0]]), np.array([[False], [True], [False]]))
    [2, 0, 1]
    """
    return np.argsort(-means_to_choose_by(scores, lost), kind="stable").tolist()


def search(
    grid: Lists, evaluate: Evaluate, *, swept: Collection[str], sign: int = 1,
    on_row: Callable[[Record], None] = lambda row: None,
) -> list[Record]:  # fmt: skip
    """Score every setting of a grid on validation tasks, and rank them.

    `evaluate` trains the settings of a grid side by side; that is for the names in `swept`, each
    value of the others is a program. `sign` is -1 where a low score is good. `on_row` is called
    with each row as soon as it is known: the setting with `mean`, `std` and `lost` over the runs,
    where mean and std are None if one was lost. The rows are returned with the best first.
    """
    inside = {name: values for name, values in grid.items() if name in swept}
    outside = {name: values for name, values in grid.items() if name not in swept}
    rows: list[Record] = []
    found = []
    for fixed in combinations(outside):
        scores, lost = evaluate(fixed, inside)
        lost = lost | ~np.isfinite(scores)
        found.append((scores, lost))
        for one, values, gone in zip(combinations(inside), scores, lost, strict=True):
            mean, std = (None, None) if gone.any() else mean_of_seeds(values, gone)
            setting = {name: (fixed | one)[name] for name in grid}
            rows.append(setting | {"mean": mean, "std": std, "lost": int(gone.sum())})
            on_row(rows[-1])
    scores, lost = (np.concatenate(part) for part in zip(*found, strict=True))
    return [rows[i] for i in best_first(sign * scores, lost)]


def combinations(grid: Lists) -> list[dict[str, float | int]]:
    """All combinations of the values, the last name running fastest.

    >>> combinations({"eta": [0.1], "beta": [1.0, 0.5]})
    [{'eta': 0.1, 'beta': 1.0}, {'eta': 0.1, 'beta': 0.5}]
    """
    return [dict(zip(grid, row, strict=True)) for row in itertools.product(*grid.values())]


def machine() -> str:
    """The device and the versions that a search ran on."""
    kind = jax.devices()[0].device_kind
    return f"{kind}, jax {jax.__version__}, Python {platform.python_version()}"


def read_settings(path: Path, keys: set[str]) -> Record:
    """What an earlier search wrote, to be added to; empty where there is no file."""
    try:
        found = json.loads(path.read_text("utf-8")) if path.exists() else {}
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read settings from {path}: {error}") from error
    if not isinstance(found, dict) or not keys >= set(found):
        names = ", ".join(sorted(keys))
        raise DataError(f"{path} must hold the settings of this search ({names}), or not exist")
    return found


def write_settings(content: Record, path: Path) -> None:
    """Write the whole file."""
    write_text(json.dumps(content, indent=1) + "\n", path, SHARED)
