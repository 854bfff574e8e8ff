"""MNIST and Fashion-MNIST in idx files, gzipped or plain."""

import gzip
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from moml.data.images.arrays import Images, by_class
from moml.errors import DataError

FOLDERS = ("mnist", "MNIST", "MNIST/raw", ".")  # under the data folder; the third is torchvision's
FASHION = ("fashion-mnist", "FashionMNIST", "FashionMNIST/raw")
DIGITS = tuple(map(str, range(10)))
CLOTHES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag",
    "Ankle boot",
)  # fmt: skip
PREFIX = {"train": "train", "test": "t10k"}
IMAGES_FILE, LABELS_FILE = "{}-images-idx3-ubyte", "{}-labels-idx1-ubyte"
ROWS = {"train": 60_000, "test": 10_000}
IMAGES, LABELS = 2051, 2049  # the magic numbers: unsigned bytes in three and in one dimension


def places(root: Path, names: Sequence[str] = FOLDERS) -> list[Path]:
    """Folders with one of these names under `root` that have idx files."""
    folders = [root / name for name in names]
    return [f for f in folders if any(_paths(f, split) != [None, None] for split in PREFIX)]


def files(place: Path, split: str) -> list[Path]:
    """The images' and the labels' file of a split."""
    images, labels = _paths(place, split)
    if images and labels:
        return [images, labels]
    missing = IMAGES_FILE if images is None else LABELS_FILE
    raise DataError(f"{place / missing.format(PREFIX[split])}.gz is missing")


def read(place: Path, split: str, whole: bool = True, classes: Sequence[str] = DIGITS) -> Images:
    """Images [n, 28, 28, 1]; `whole` requires the publisher's number of them."""
    images, labels = files(place, split)
    x = read_idx(images, IMAGES, ROWS[split])
    y = read_idx(labels, LABELS, ROWS[split])
    if whole and len(x) != ROWS[split]:
        raise DataError(f"{images} must have {ROWS[split]:,} images; got {len(x):,}")
    if len(y) != len(x):
        raise DataError(f"{labels} must have {len(x):,} labels; got {len(y):,}")
    if y.size and y.max() > 9:
        raise DataError(f"{labels}: labels must be from 0 to 9; got {y.max()}")
    return by_class(x[..., None], y, classes, split)


def read_idx(path: Path, magic: int, most: int) -> np.ndarray:
    """The unsigned bytes of an idx file with at most so many rows, shaped as its header says."""
    axes = magic % 256
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
            head = file.read(4 + 4 * axes)
            if len(head) < 4 + 4 * axes:
                raise DataError(f"{path} is truncated: {len(head)} bytes")
            given, *shape = struct.unpack(f">{1 + axes}I", head)
            if given != magic:
                raise DataError(f"{path}: the magic number must be {magic}; got {given}")
            if axes == 3 and shape[1:] != [28, 28]:
                raise DataError(f"{path}: images must be 28 x 28; got {shape[1]} x {shape[2]}")
            if shape[0] > most:
                raise DataError(f"{path} must have at most {most:,} rows; got {shape[0]:,}")
            size = int(np.prod(shape, dtype=np.int64))
            raw = file.read(size + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} is truncated or damaged: {error}") from error
    if len(raw) != size:
        more = "more" if len(raw) > size else f"{len(raw):,}"
        raise DataError(f"{path} must have {size:,} bytes after its header; got {more}")
    return np.frombuffer(raw, np.uint8).reshape(shape)


def _paths(place: Path, split: str) -> list[Path | None]:
    """The images' file and the labels' file, under any of the names they may have."""
    names = [name.format(PREFIX[split]) for name in (IMAGES_FILE, LABELS_FILE)]
    spelt = lambda name: (f"{name}.gz", name, name.replace("-idx", ".idx"))
    exists = lambda name: (place / each for each in spelt(name) if (place / each).is_file())
    return [next(exists(name), None) for name in names]
