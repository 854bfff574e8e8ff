"""Tiny files in the publishers' true formats."""

import gzip
import io
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np


def idx(array: np.ndarray) -> bytes:
    """An idx file of unsigned bytes."""
    return struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape) + array.tobytes()


def mnist(folder: Path, n: dict[str, int] | None = None, zipped: bool = True) -> dict:
    """The four files, with random pixels; what is in them by split."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {}
    for split, prefix in (("train", "train"), ("test", "t10k")):
        rng = np.random.default_rng(len(split))
        size = (n or {"train": 6, "test": 4})[split]
        x = rng.integers(0, 256, (size, 28, 28), np.uint8)
        y = rng.integers(0, 10, size).astype(np.uint8)
        for kind, array in (("images-idx3", x), ("labels-idx1", y)):
            path = folder / f"{prefix}-{kind}-ubyte"
            if zipped:
                path.with_name(path.name + ".gz").write_bytes(gzip.compress(idx(array)))
            else:
                path.write_bytes(idx(array))
        content[split] = (x, y)
    return content


def rows(n: int, classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Pixels in CIFAR's planar order, and labels of which every class has some."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (n, 3072), np.uint8), rng.permutation(np.arange(n) % classes)


def binary(x: np.ndarray, *labels: np.ndarray) -> bytes:
    """A file of the binary version: label bytes, then the pixels, row after row."""
    return np.concatenate([np.stack(labels, 1).astype(np.uint8), x], 1).tobytes()


def python2(value) -> bytes:
    """A pickle as Python 2's cPickle wrote it in protocol 2, with byte strings."""
    return b"\x80\x02" + _pickled(value) + b"."


def _pickled(value) -> bytes:
    if isinstance(value, dict):
        pairs = b"".join(_pickled(key) + _pickled(each) for key, each in value.items())
        return b"}(" + pairs + b"u"
    if isinstance(value, list):
        return b"](" + b"".join(map(_pickled, value)) + b"e"
    if isinstance(value, bytes):
        return b"T" + struct.pack("<i", len(value)) + value
    if isinstance(value, np.ndarray):
        kind = value.dtype.str[1:].encode()
        made = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        dtype = b"cnumpy\ndtype\nU\x02" + kind + b"K\x00K\x01\x87R"
        dtype += (
            b"(K\x03U\x01"
            + value.dtype.str[:1].encode()
            + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        )
        shape = b"(" + b"".join(map(_pickled, value.shape)) + b"t"
        return made + b"(K\x01" + shape + dtype + b"\x89" + _pickled(value.tobytes()) + b"tb"
    return b"J" + struct.pack("<i", value)


def tar(path: Path, content: dict[str, bytes], folder: str) -> Path:
    """A tar.gz with the files in a folder."""
    with tarfile.open(path, "w:gz") as archive:
        for name, raw in content.items():
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size = len(raw)
            archive.addfile(entry, io.BytesIO(raw))
    return path


def png(bits: np.ndarray, mode: str = "1") -> bytes:
    """A drawing: ink where `bits` is 0."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray((bits * 255).astype(np.uint8)).convert(mode).save(file, "PNG")
    return file.getvalue()


def drawings(characters: dict[str, int], each: int = 20, seed: int = 0) -> dict[str, np.ndarray]:
    """Bits [105, 105] by path: alphabets with so many characters, `each` drawings of them."""
    rng, content, number = np.random.default_rng(seed), {}, 0
    for alphabet, count in characters.items():
        for character in range(1, count + 1):
            number += 1
            for drawer in range(1, each + 1):
                path = f"{alphabet}/character{character:02d}/{number:04d}_{drawer:02d}.png"
                content[path] = rng.integers(0, 2, (105, 105), np.uint8)
    return content


def omniglot(folder: Path, split: str, content: dict[str, np.ndarray]) -> Path:
    """The archive of a part."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"images_{split}.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, bits in content.items():
            archive.writestr(f"images_{split}/{name}", png(bits))
    return path
