"""Where CIFAR's files are: the publisher's four archives, or the folders that are in them."""

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
    names: tuple[str, ...]  # files or keys with the names of the classes, then of their groups
    meta: str | None = None  # python version: the file that has these keys

    @property
    def labels(self) -> list[str]:
        """Python version: the keys of the labels, in the order of `names`."""
        return [name.replace("label_names", "labels") for name in self.names]

    def rows(self, split: str) -> int:
        """The number of images in each file of a split."""
        return {"train": 50_000, "test": 10_000}[split] // len(self.files[split])

    def wanted(self, split: str) -> tuple[str, ...]:
        """The files that a split needs, those with the names of the classes last."""
        return self.files[split] + (self.names if self.meta is None else (self.meta,))


Files = dict[str, tuple[str, ...]]
TEN: Files = {"train": tuple(f"data_batch_{k}" for k in range(1, 6)), "test": ("test_batch",)}
HUNDRED: Files = {"train": ("train",), "test": ("test",)}
TEXT, NAMES = ("batches.meta.txt",), ("label_names",)
BOTH_TEXTS = ("fine_label_names.txt", "coarse_label_names.txt")
BOTH = ("fine_label_names", "coarse_label_names")
_binary = lambda files: {k: tuple(f"{file}.bin" for file in names) for k, names in files.items()}
LAYOUTS = {
    "cifar10": (
        Layout("cifar-10-batches-bin", "cifar-10-binary.tar.gz", _binary(TEN), TEXT),
        Layout("cifar-10-batches-py", "cifar-10-python.tar.gz", TEN, NAMES, "batches.meta"),
    ),
    "cifar100": (
        Layout("cifar-100-binary", "cifar-100-binary.tar.gz", _binary(HUNDRED), BOTH_TEXTS),
        Layout("cifar-100-python", "cifar-100-python.tar.gz", HUNDRED, BOTH, "meta"),
    ),
}
BY_NAME = {
    name: layout
    for pair in LAYOUTS.values()
    for layout in pair
    for name in (layout.folder, layout.archive)
}


def places(name: str, root: Path) -> list[Path]:
    """Folders and archives under `root` that are called as the publisher's, folders first."""
    around = [root, root / name, root / name.replace("cifar", "cifar-")]
    folders = [layout.folder for layout in LAYOUTS[name]]
    named = [*folders, *(layout.archive for layout in LAYOUTS[name])]
    found = [root.resolve()] if root.resolve().name in folders else []
    return found + [
        parent / child
        for child in named
        for parent in around
        if ((parent / child).is_dir() if child in folders else (parent / child).is_file())
    ]


def files(place: Path, split: str) -> list[Path]:
    """The files that a split is read from: the archive, or those of the folder."""
    if not place.is_dir():
        return [place]
    paths = [place / name for name in BY_NAME[place.name].wanted(split)]
    for path in paths:
        if not path.is_file():
            raise DataError(f"{path} is missing")
    return paths


def content(place: Path, wanted: tuple[str, ...]) -> dict[str, bytes]:
    """The bytes of some files of a folder or of an archive; nothing is unpacked to disk."""
    if place.is_dir():
        return {name: (place / name).read_bytes() for name in wanted}
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
