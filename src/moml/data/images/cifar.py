"""CIFAR-10 and CIFAR-100, binary version or python version."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from moml.data.images.arrays import Images, by_class
from moml.data.images.cifar_files import BY_NAME, Layout, content
from moml.data.images.pickles import loads
from moml.errors import DataError

PIXELS = 3 * 32 * 32


def read(place: Path, split: str, whole: bool = True) -> Images:
    """Images [n, 32, 32, 3]; `whole` requires the publisher's number of rows in each file."""
    layout = BY_NAME[place.name]
    raw = content(place, layout.wanted(split))
    name_of = lambda file: str(place / file) if place.is_dir() else f"{place}: {file}"
    names = _names(layout, raw, name_of)
    pixels, labels = [], []
    for file in layout.files[split]:
        reader = _binary if layout.meta is None else _python
        x, y = reader(raw.pop(file), name_of(file), layout)
        if whole and len(x) != layout.rows(split):
            must = f"must have {layout.rows(split):,} images"
            raise DataError(f"{name_of(file)} {must}; got {len(x):,}")
        for label, allowed in zip(y, names, strict=True):
            if label.size and not 0 <= label.min() <= label.max() < len(allowed):
                raise DataError(
                    f"{name_of(file)}: labels must be from 0 to {len(allowed) - 1}; "
                    f"got {label.min()} to {label.max()}"
                )
        pixels.append(x)
        labels.append(y)
    x = np.concatenate(pixels).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    y = np.concatenate(labels, 1)
    groups = _groups(y, names, name_of(layout.files[split][0])) if len(names) > 1 else None
    return by_class(np.ascontiguousarray(x), y[0], names[0], split, groups)


def _binary(raw: bytes, file: str, layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Rows of label bytes and pixels; CIFAR-100 has the coarse label before the fine."""
    marks = len(layout.names)
    if len(raw) % (marks + PIXELS):
        raise DataError(
            f"{file} must have rows of {marks + PIXELS:,} bytes; got {len(raw):,} bytes in all"
        )
    rows = np.frombuffer(raw, np.uint8).reshape(-1, marks + PIXELS)
    return rows[:, marks:], rows[:, :marks].T[::-1]


def _python(raw: bytes, file: str, layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """A pickled dict with an array `data` and lists of labels."""
    pixels, *labels = _values(raw, ["data", *layout.labels], file)
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.ndim != 2:
        raise DataError(f"{file}: data must be a matrix of bytes")
    if pixels.shape[1] != PIXELS:
        raise DataError(f"{file}: data must have the shape (n, {PIXELS}); got {pixels.shape}")
    for key, label in zip(layout.labels, labels, strict=True):
        if not isinstance(label, list | np.ndarray) or len(label) != len(pixels):
            raise DataError(f"{file}: {key} must be a list of {len(pixels):,} labels")
        if not all(isinstance(value, int | np.integer) for value in label):
            raise DataError(f"{file}: {key} must be whole numbers")
    return pixels, np.array(labels, np.int64)


def _names(layout: Layout, raw: dict[str, bytes], name_of: Callable[[str], str]) -> list[list[str]]:
    """Names of the classes, and of their groups where there are any."""
    if layout.meta is None:
        texts = [raw[file].decode("utf-8", "replace") for file in layout.names]
        return [[line.strip() for line in text.splitlines() if line.strip()] for text in texts]
    file, text = name_of(layout.meta), lambda name: getattr(name, "decode", lambda: str(name))()
    lists = []
    for key, names in zip(layout.names, _values(raw[layout.meta], layout.names, file), strict=True):
        if not isinstance(names, list):
            raise DataError(f"{file}: {key} must be a list of names")
        lists.append([text(name) for name in names])
    return lists


def _values(raw: bytes, keys: Sequence[str], file: str) -> list[object]:
    """The values of some keys of a pickled dict."""
    batch = loads(raw, file)
    for key in keys:
        if key not in batch:
            raise DataError(f"{file}: {key} is missing in it; there are {', '.join(sorted(batch))}")
    return [batch[key] for key in keys]


def _groups(labels: np.ndarray, names: list[list[str]], file: str) -> list[str]:
    """The group of each class, which is in one only; not known of a class without images."""
    fine, coarse = labels
    group = np.full(len(names[0]), -1)
    group[fine] = coarse
    wrong = np.flatnonzero(group[fine] != coarse)
    if wrong.size:
        raise DataError(f"{file}: class {names[0][fine[wrong[0]]]} is in more than one group")
    return [names[1][k] if k >= 0 else "" for k in group]
