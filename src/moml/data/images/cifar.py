"""CIFAR-10 and CIFAR-100, binary or python version, in archives or the folders that are in them."""

import gzip
import tarfile
import zlib
from collections.abc import Callable, Sequence
from io import BufferedIOBase
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np

from moml.data.exact import exact
from moml.data.images.arrays import Images, by_class
from moml.data.images.pickles import loads
from moml.errors import DataError

PIXELS = 3 * 32 * 32
ROW = PIXELS + 200  # bytes of an image with its labels and, pickled, its name
NAMED = 100_000  # bytes beside the images; theirs have at most 1,500
MEMBERS = 1000  # of an archive; theirs have at most 10


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

    def wanted(self, split: str) -> dict[str, int]:
        """The files that a split needs and their bytes at most, those with names last."""
        most = 2 * self.rows(split) * ROW + NAMED  # Python 3 packs bytes above 127 as two
        names = self.names if self.meta is None else (self.meta,)
        return dict.fromkeys(self.files[split], most) | dict.fromkeys(names, NAMED)


Files = dict[str, tuple[str, ...]]
TEN: Files = {"train": tuple(f"data_batch_{k}" for k in range(1, 6)), "test": ("test_batch",)}
HUNDRED: Files = {"train": ("train",), "test": ("test",)}
TEXT, NAMES = ("batches.meta.txt",), ("label_names",)
BOTH_TEXTS = ("fine_label_names.txt", "coarse_label_names.txt")
BOTH = ("fine_label_names", "coarse_label_names")
_bin = lambda files: {k: tuple(f"{file}.bin" for file in names) for k, names in files.items()}
LAYOUTS = {
    "cifar10": (
        Layout("cifar-10-batches-bin", "cifar-10-binary.tar.gz", _bin(TEN), TEXT),
        Layout("cifar-10-batches-py", "cifar-10-python.tar.gz", TEN, NAMES, "batches.meta"),
    ),
    "cifar100": (
        Layout("cifar-100-binary", "cifar-100-binary.tar.gz", _bin(HUNDRED), BOTH_TEXTS),
        Layout("cifar-100-python", "cifar-100-python.tar.gz", HUNDRED, BOTH, "meta"),
    ),
}
BY_NAME = {name: layout for pair in LAYOUTS.values() for layout in pair for name in layout[:2]}


def places(name: str, root: Path) -> list[Path]:
    """Folders and archives under `root` that are called as the publisher's, folders first."""
    around = [root, root / name, root / name.replace("cifar", "cifar-")]
    folders = [layout.folder for layout in LAYOUTS[name]]
    named = [*folders, *(layout.archive for layout in LAYOUTS[name])]
    found = [root.resolve()] if root.resolve().name in folders else []
    paths = [parent / child for child in named for parent in around]
    return found + [path for path in paths if path.exists()]


def files(place: Path, split: str) -> list[Path]:
    """The files that a split is read from: the archive, or those of the folder."""
    if not place.is_dir():
        return [place]
    paths = [place / name for name in BY_NAME[place.name].wanted(split)]
    for path in paths:
        if not path.is_file():
            raise DataError(f"{path} is missing")
    return paths


def read(place: Path, split: str, whole: bool = True) -> Images:
    """Images [n, 32, 32, 3]; `whole` requires the publisher's number of rows in each file."""
    layout = BY_NAME[place.name]
    raw = _content(place, layout.wanted(split))
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
                must = f"labels must be from 0 to {len(allowed) - 1}"
                raise DataError(f"{name_of(file)}: {must}; got {label.min()} to {label.max()}")
        pixels.append(x)
        labels.append(y)
    x = np.concatenate(pixels).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    y = np.concatenate(labels, 1)
    groups = _groups(y, names, name_of(layout.files[split][0])) if len(names) > 1 else None
    return by_class(np.ascontiguousarray(x), y[0], names[0], split, groups)


class _Metered:
    """A file of which tarfile reads no more than `left` bytes, whatever its headers say."""

    def __init__(self, file: BufferedIOBase):
        self.file, self.left, self.seek, self.tell = file, NAMED, file.seek, file.tell

    def read(self, size: int) -> bytes:
        """The next bytes."""
        self.left -= size
        if self.left < 0:
            raise tarfile.ReadError("a header is too large")
        return self.file.read(size)


def _content(place: Path, wanted: dict[str, int]) -> dict[str, bytes]:
    """The bytes of some files of a folder or of an archive; nothing is unpacked to disk."""

    def check_size(name: str, size: int) -> None:
        if size > wanted[name]:
            raise DataError(
                f"{place}: {name} must have at most {wanted[name]:,} bytes; got {size:,}"
            )

    if place.is_dir():
        for name in wanted:
            check_size(name, (place / name).stat().st_size)
        return {name: (place / name).read_bytes() for name in wanted}
    found: dict[str, bytes] = {}
    try:
        with open(place, "rb") as plain:
            zipped = plain.read(2) == b"\x1f\x8b"
        with gzip.open(place) if zipped else open(place, "rb") as file:
            meter = _Metered(file)
            archive = tarfile.TarFile(fileobj=meter)  # type: ignore[arg-type]
            for count, member in enumerate(archive):
                meter.left = NAMED
                if count == MEMBERS:
                    raise DataError(f"{place} must have at most {MEMBERS:,} files; got more")
                name = PurePosixPath(member.name).name
                if name not in wanted or not member.isfile():
                    continue
                check_size(name, member.size)
                meter.left += member.size
                content = archive.extractfile(member)
                found[name] = content.read() if content else b""
                meter.left = NAMED
                if len(found) == len(wanted):
                    break
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise DataError(f"{place} is truncated or damaged: {error}") from error
    for name in wanted:
        if name not in found:
            raise DataError(f"{place}: {name} is missing in it")
    return found


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
    return pixels, np.array([exact(f"{file}: labels", label) for label in labels])


def _names(layout: Layout, raw: dict[str, bytes], name_of: Callable[[str], str]) -> list[list[str]]:
    """Names of the classes, and of their groups where there are any."""
    if layout.meta is None:
        texts = [raw[file].decode("utf-8", "replace") for file in layout.names]
        return [[line.strip() for line in text.splitlines() if line.strip()] for text in texts]
    file, lists = name_of(layout.meta), []
    for key, names in zip(layout.names, _values(raw[layout.meta], layout.names, file), strict=True):
        if not isinstance(names, list) or not all(isinstance(n, bytes | str) for n in names):
            raise DataError(f"{file}: {key} must be a list of names")
        lists.append([n if isinstance(n, str) else n.decode("utf-8", "replace") for n in names])
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
