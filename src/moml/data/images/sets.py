"""Find, read, check and fetch a data set by its name."""

import hashlib
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt8

from moml.data.images.arrays import Images, counts, shrunk, stacked
from moml.data.images.cache import cached
from moml.data.images.catalog import SETS, Set
from moml.data.images.fetch import download
from moml.errors import ConfigError, DataError

Pool = UInt8[np.ndarray, "_ each height width channels"]


class Found(NamedTuple):
    """The result of `check`: place and numbers of each good split, and the errors of the others."""

    name: str
    there: bool
    splits: dict[str, tuple[Path, int, int]]  # place, images, classes
    wrong: tuple[str, ...]


def data_folder(folder: str | Path | None = None, must_exist: bool = True) -> Path:
    """The folder of all data sets: `folder`, or else the environment variable MOML_DATA."""
    given = folder if folder is not None else os.environ.get("MOML_DATA") or None
    if given is None:
        raise DataError(
            "where is the data? Give folder= (--data-dir), or set MOML_DATA; "
            "moml data fetch NAME --data-dir DIR downloads a data set"
        )
    place = Path(given).expanduser()
    if must_exist and not place.is_dir():
        name = "MOML_DATA" if folder is None else "the data folder"
        raise DataError(f"{name} must be a folder; got {place}")
    return place


def load(name: str, split: str, folder: str | Path | None = None, *, whole: bool = True) -> Images:
    """One split of a data set, from the publisher's files or the cache made of them.

    Splits are train and test, for omniglot background and evaluation. `whole` requires as many
    images of each class as the publisher has; a copy cut down on purpose loads without it.
    """
    found = by_name(name)
    if split not in found.counts:
        raise ConfigError(f"{name} has no split {split!r}; allowed: {', '.join(found.counts)}")
    root = data_folder(folder)
    place, sources = _place(name, root, split)
    images = cached(root, name, split, sources, lambda: found.read(place, split, whole))
    if whole:
        _compare(images, found, place)
    return images


def pools(name: str, side: int, folder: Path | None = None) -> list[Pool]:
    """All images by class, in the publisher's parts that share no class.

    Omniglot has two, background and evaluation; its ink is 255 here and its pictures are shrunk to
    `side`. The other sets have one part, with the training and test images of each class.
    """
    if name == "omniglot":
        parts = [load(name, split, folder) for split in ("background", "evaluation")]
        return [stacked(part._replace(x=shrunk(255 - part.x, side))) for part in parts]
    both = [stacked(load(name, split, folder)) for split in ("train", "test")]
    if side != both[0].shape[2]:
        raise ConfigError(f"side must be {both[0].shape[2]}, the side of {name}; got {side}")
    return [np.concatenate(both, axis=1)]


def check(name: str, folder: str | Path | None = None) -> Found:
    """Read every file of a data set, and compare structure and numbers; raises nothing.

    Checksums are not compared, so a repacked copy passes.
    """
    found, root = by_name(name), data_folder(folder)
    good, wrong = {}, []
    for split in found.counts:
        try:
            place, _ = _place(name, root, split)
            images = found.read(place, split, True)
            _compare(images, found, place)
            good[split] = (place, len(images.y), len(images.names))
        except DataError as error:
            wrong.append(str(error))
    return Found(name, bool(found.places(root)), good, tuple(dict.fromkeys(wrong)))


def fetch(
    name: str,
    folder: str | Path | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> list[Path]:
    """Download the missing files of a data set, and return their paths.

    `progress` is called with a file's name, the bytes received, and those in total. A file that
    exists and is not the publisher's is never overwritten.
    """
    found, root = by_name(name), data_folder(folder, must_exist=False)
    if root.is_dir() and found.places(root) and not check(name, root).wrong:
        return []
    came = []
    for archive in found.archives:
        target = root / archive.file
        if target.exists():
            with open(target, "rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != archive.sha256:
                    raise DataError(f"{target} is not the publisher's; remove it to fetch it again")
            continue
        report = None if progress is None else partial(progress, archive.file)
        came.append(download(archive.addresses, target, archive.size, archive.sha256, report))
    return came


def by_name(name: str) -> Set:
    """The data set of this name; an unknown one is a ConfigError."""
    if name not in SETS:
        raise ConfigError(f"unknown data set {name!r}; allowed: {', '.join(SETS)}")
    return SETS[name]


def _place(name: str, root: Path, split: str) -> tuple[Path, list[Path]]:
    """The first place that has all files of a split, and these."""
    places = SETS[name].places(root)
    if not places:
        raise DataError(
            f"no {name} in {root}; moml data fetch {name} --data-dir {root} downloads it; "
            "another folder is given by folder= (--data-dir) or MOML_DATA"
        )
    wrong: list[DataError] = []
    for place in places:
        try:
            return place, SETS[name].files(place, split)
        except DataError as error:
            wrong.append(error)
    raise wrong[0]


def _compare(images: Images, found: Set, place: Path) -> None:
    given, wanted = counts(images), np.array(found.counts[images.split])
    where = f"{place}, {images.split}"
    if len(given) != len(wanted):
        raise DataError(f"{where} must have {len(wanted)} classes; got {len(given)}")
    for k in np.flatnonzero(given != wanted)[:1]:
        must = f"must have {wanted[k]:,} images of class {images.names[k]}"
        raise DataError(f"{where} {must}; got {given[k]:,}")
