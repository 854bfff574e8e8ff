"""Find, read, check and fetch a data set by its name."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from moml.data.images.arrays import Images, counts
from moml.data.images.cache import cached
from moml.data.images.catalog import SETS, Set
from moml.data.images.fetch import digest, download
from moml.errors import ConfigError, DataError


class Found(NamedTuple):
    """What `check` found: the place and numbers of each split, and what is wrong with others."""

    name: str
    there: bool
    splits: dict[str, tuple[Path, int, int]]  # place, images, classes
    wrong: tuple[str, ...]


def data_folder(folder: str | Path | None = None, must_exist: bool = True) -> Path:
    """The folder of all data sets: `folder`, or else what MOML_DATA says."""
    given = folder if folder is not None else os.environ.get("MOML_DATA") or None
    if given is None:
        raise DataError(
            "where is the data? Give folder= (--data-dir), or set MOML_DATA; "
            "moml data fetch NAME --data-dir DIR brings what is not there yet"
        )
    place = Path(given).expanduser()
    if must_exist and not place.is_dir():
        raise DataError(f"{'MOML_DATA' if folder is None else 'data folder'} {place} is no folder")
    return place


def load(name: str, split: str, folder: str | Path | None = None, *, whole: bool = True) -> Images:
    """One split of a data set, from the publisher's files or the cache made of them.

    Splits are train and test, for omniglot background and evaluation. `whole` wants as many images
    of each class as the publisher has; a copy that was cut down on purpose loads without it.
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


def check(name: str, folder: str | Path | None = None) -> Found:
    """Read every file of a data set anew, and compare structure and numbers; raises nothing.

    Checksums are not compared: a copy that was packed anew is as good.
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
    """Download what is missing of a data set; the files that came, none if all was there.

    `progress` is told a file's name, the bytes that are there, and those in all. A file that is
    there and is not the publisher's is never written over.
    """
    found, root = by_name(name), data_folder(folder, must_exist=False)
    if root.is_dir() and found.places(root) and not check(name, root).wrong:
        return []
    came = []
    for archive in found.archives:
        target = root / archive.file
        if target.exists():
            if digest(target) != archive.sha256:
                raise DataError(
                    f"{target} is there, and not as the publisher's; remove it to fetch it anew"
                )
            continue
        told = None if progress is None else _telling(progress, archive.file)
        came.append(download(archive.addresses, target, archive.size, archive.sha256, told))
    return came


def by_name(name: str) -> Set:
    """The data set of this name.

    >>> by_name("omniglot").title
    'Omniglot, characters of 50 alphabets, 105 x 105 black and white'
    """
    if name not in SETS:
        raise ConfigError(f"unknown data set {name!r}; allowed: {', '.join(SETS)}")
    return SETS[name]


def _place(name: str, root: Path, split: str) -> tuple[Path, list[Path]]:
    """The first place that has all files of a split, and these."""
    places = SETS[name].places(root)
    if not places:
        raise DataError(
            f"no {name} in {root}; moml data fetch {name} --data-dir {root} brings it, "
            "or say where it is by folder= (--data-dir) or MOML_DATA"
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
    if len(given) != len(wanted):
        raise DataError(
            f"{place}, {images.split}: {len(given)} classes; the publisher's has {len(wanted)}"
        )
    for k in np.flatnonzero(given != wanted)[:1]:
        raise DataError(
            f"{place}, {images.split}: {given[k]:,} images of class {images.names[k]}; "
            f"the publisher's has {wanted[k]:,}"
        )


def _telling(progress: Callable[[str, int, int], None], file: str) -> Callable[[int, int], None]:
    return lambda done, size: progress(file, done, size)
