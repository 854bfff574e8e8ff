"""MNIST in idx files, gzipped or plain."""

import gzip
import struct
import zlib
from pathlib import Path

import numpy as np

from moml.data.images.arrays import Images, by_class
from moml.errors import DataError

FOLDERS = ("mnist", "MNIST", "MNIST/raw", ".")  # under the data folder; the third is torchvision's
PREFIX = {"train": "train", "test": "t10k"}
ROWS = {"train": 60_000, "test": 10_000}
IMAGES, LABELS = 2051, 2049  # the magic numbers: unsigned bytes in three and in one dimension


def places(root: Path) -> list[Path]:
    """Folders under `root` that have files of MNIST."""
    names = [names for split in PREFIX for names in _names(split)]
    folders = [root / name for name in FOLDERS]
    return [folder for folder in folders if any(_there(folder, each) for each in names)]


def files(place: Path, split: str) -> list[Path]:
    """The images' and the labels' file of a split."""
    found = []
    for names in _names(split):
        path = _there(place, names)
        if path is None:
            raise DataError(f"{place / names[0]} is missing")
        found.append(path)
    return found


def read(place: Path, split: str, whole: bool = True) -> Images:
    """Images [n, 28, 28, 1]; `whole` wants the publisher's number of them."""
    images, labels = files(place, split)
    x = read_idx(images, IMAGES)
    y = read_idx(labels, LABELS)
    if whole and len(x) != ROWS[split]:
        raise DataError(f"{images} has {len(x):,} images; the publisher's has {ROWS[split]:,}")
    if len(y) != len(x):
        raise DataError(f"{labels} has {len(y):,} labels for {len(x):,} images")
    if y.size and y.max() > 9:
        raise DataError(f"{labels}: a label is {y.max()}; allowed are 0 to 9")
    return by_class(x[..., None], y, [str(digit) for digit in range(10)], split)


def read_idx(path: Path, magic: int) -> np.ndarray:
    """The unsigned bytes of an idx file, shaped as its header says."""
    axes = magic % 256
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
            head = file.read(4 + 4 * axes)
            if len(head) < 4 + 4 * axes:
                raise DataError(f"{path} is truncated: {len(head)} bytes")
            given, *shape = struct.unpack(f">{1 + axes}I", head)
            if given != magic:
                raise DataError(f"{path}: the magic number is {given}; an idx file has {magic}")
            if axes == 3 and shape[1:] != [28, 28]:
                raise DataError(f"{path}: images of {shape[1]} x {shape[2]}; MNIST has 28 x 28")
            size = int(np.prod(shape, dtype=np.int64))
            raw = file.read(size + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} is truncated or damaged: {error}") from error
    if len(raw) != size:
        more = "more" if len(raw) > size else f"{len(raw):,}"
        raise DataError(f"{path}: the header promises {size:,} bytes; there are {more}")
    return np.frombuffer(raw, np.uint8).reshape(shape)


def _names(split: str) -> list[tuple[str, ...]]:
    """What the images' file and the labels' file may be called."""
    names = (f"{PREFIX[split]}-images-idx3-ubyte", f"{PREFIX[split]}-labels-idx1-ubyte")
    return [(f"{name}.gz", name, name.replace("-idx", ".idx")) for name in names]


def _there(place: Path, names: tuple[str, ...]) -> Path | None:
    return next((place / name for name in names if (place / name).is_file()), None)
