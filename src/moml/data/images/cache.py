"""A cache of images that were read once, in one file each.

The file is an uncompressed npz: each array carries a checksum, so damage shows when it is opened.
Its key is made of the paths, sizes and modification times of the files that were read.
"""

import hashlib
import json
import os
import zipfile
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from moml.atomic import SHARED, atomic_write
from moml.data.images.arrays import Images

VERSION = 1  # of the format below; files of another are ignored
FOLDER = ".moml-cache"
DAMAGE = (OSError, ValueError, LookupError, TypeError, EOFError, MemoryError)


def cached(
    root: Path, name: str, split: str, sources: Sequence[Path], read: Callable[[], Images]
) -> Images:
    """The images of a split: from the cache if it was made from `sources`, else read and cached.

    The cache is in the data folder, or where that cannot be written in the user's cache folder.
    Where neither can be written, nothing is cached.
    """
    key = key_of(sources)
    mark = hashlib.sha256(str(root.absolute()).encode()).hexdigest()[:16]
    home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "moml" / mark
    places = [folder / f"{name}-{split}.npz" for folder in (root / FOLDER, home)]
    for place in places:
        found = open_cache(place, key)
        if found is not None:
            return found
    images = read()
    for place in places:
        with suppress(OSError):
            write_cache(images, place, key)
            break
    return images


def key_of(sources: Sequence[Path]) -> str:
    """A digest of the paths, sizes and modification times of some files."""
    stats = [(path.absolute(), path.stat()) for path in sources]
    facts = [(str(path), stat.st_size, stat.st_mtime_ns) for path, stat in stats]
    return hashlib.sha256(json.dumps([VERSION, facts]).encode()).hexdigest()


def open_cache(path: Path, key: str) -> Images | None:
    """The images cached under this key; None if the file has another key, is damaged or missing."""
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
            if any(entry.compress_type for entry in stored.zip.infolist()):  # never by us
                return None
            head = json.loads(str(stored["head"]))
            if head["key"] != key:
                return None
            x, y, row = stored["x"], stored["y"], stored["row"]
        if head["bits"]:
            x = np.unpackbits(x)[: int(np.prod(head["shape"]))] * np.uint8(255)
        groups = None if head["groups"] is None else tuple(head["groups"])
        return Images(x.reshape(head["shape"]), y, tuple(head["names"]), head["split"], row, groups)
    except (*DAMAGE, zipfile.BadZipFile, zlib.error):
        return None


def write_cache(images: Images, path: Path, key: str) -> None:
    """Cache images under a key; the file is renamed into place when it is complete."""
    x = images.x
    bits = bool(((x == 0) | (x == 255)).all())  # black and white: an eighth of the bytes
    head = {"key": key, "bits": bits, "shape": x.shape, "split": images.split}
    head |= {"names": images.names, "groups": images.groups}
    pixels = np.packbits(x == 255) if bits else x
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path, SHARED) as file:
        np.savez(file, head=np.array(json.dumps(head)), x=pixels, y=images.y, row=images.row)
