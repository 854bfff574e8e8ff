"""Where CIFAR lies: the publisher's four archives, unpacked or as they are."""

import tarfile
import zlib
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from moml.errors import DataError

LARGEST = 200_000_000  # bytes of a file in an archive; the largest of theirs has 155 million


class Layout(NamedTuple):
    """One of the publisher's archives, and the folder that is in it."""

    folder: str
    archive: str
    files: dict[str, tuple[str, ...]]  # by split
    rows: dict[str, int]  # in each of the files
    names: tuple[str, ...]  # files or keys with the names of the classes, then of their groups
    meta: str | None = None  # python version: the file that has these keys
    labels: tuple[str, ...] = ()  # python version: keys of the labels, in the order of `names`


_ONE = {"train": 50_000, "test": 10_000}
_FIVE = {"train": 10_000, "test": 10_000}
LAYOUTS = {
    "cifar10": (
        Layout(
            folder="cifar-10-batches-bin",
            archive="cifar-10-binary.tar.gz",
            files={
                "train": tuple(f"data_batch_{k}.bin" for k in range(1, 6)),
                "test": ("test_batch.bin",),
            },
            rows=_FIVE,
            names=("batches.meta.txt",),
        ),
        Layout(
            folder="cifar-10-batches-py",
            archive="cifar-10-python.tar.gz",
            files={
                "train": tuple(f"data_batch_{k}" for k in range(1, 6)),
                "test": ("test_batch",),
            },
            rows=_FIVE,
            names=("label_names",),
            meta="batches.meta",
            labels=("labels",),
        ),
    ),
    "cifar100": (
        Layout(
            folder="cifar-100-binary",
            archive="cifar-100-binary.tar.gz",
            files={"train": ("train.bin",), "test": ("test.bin",)},
            rows=_ONE,
            names=("fine_label_names.txt", "coarse_label_names.txt"),
        ),
        Layout(
            folder="cifar-100-python",
            archive="cifar-100-python.tar.gz",
            files={"train": ("train",), "test": ("test",)},
            rows=_ONE,
            names=("fine_label_names", "coarse_label_names"),
            meta="meta",
            labels=("fine_labels", "coarse_labels"),
        ),
    ),
}
BY_NAME = {
    place: layout
    for pair in LAYOUTS.values()
    for layout in pair
    for place in (layout.folder, layout.archive)
}


def places(name: str, root: Path) -> list[Path]:
    """Folders and archives under `root` that are called as the publisher's, folders first."""
    around = [root, root / name, root / name.replace("cifar", "cifar-")]
    named = [layout.folder for layout in LAYOUTS[name]]
    archives = [layout.archive for layout in LAYOUTS[name]]
    found = [root.resolve()] if root.resolve().name in named else []
    found += [place / folder for folder in named for place in around if (place / folder).is_dir()]
    return found + [
        place / file for file in archives for place in around if (place / file).is_file()
    ]


def files(place: Path, split: str) -> list[Path]:
    """What a split is read from: the archive, or files of the folder, all of them there."""
    if not place.is_dir():
        return [place]
    paths = [place / name for name in wanted_files(BY_NAME[place.name], split)]
    for path in paths:
        if not path.is_file():
            raise DataError(f"{path} is missing")
    return paths


def wanted_files(layout: Layout, split: str) -> tuple[str, ...]:
    """The files that a split needs, those with the names of the classes last."""
    return layout.files[split] + (layout.names if layout.meta is None else (layout.meta,))


def content(place: Path, wanted: tuple[str, ...]) -> dict[str, bytes]:
    """The bytes of some files of a folder or of an archive; nothing is unpacked to disk."""
    if place.is_dir():
        return {path.name: path.read_bytes() for path in map(place.joinpath, wanted)}
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(place, "r:*") as archive:
            for member in archive:
                name = PurePosixPath(member.name).name
                if name not in wanted or not member.isfile():
                    continue
                if member.size > LARGEST:
                    raise DataError(f"{place}: {name} has {member.size:,} bytes, too many")
                file = archive.extractfile(member)
                found[name] = file.read() if file else b""
                if len(found) == len(wanted):
                    break
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise DataError(f"{place} is truncated or damaged: {error}") from error
    for name in wanted:
        if name not in found:
            raise DataError(f"{place}: {name} is missing in it")
    return found
