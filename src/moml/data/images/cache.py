"""What was read once, in one file that opens at once.

The file is an uncompressed npz: each array carries a checksum, so damage shows when it is opened.
It belongs to the files it was made from by their paths, sizes and times of change.
"""

import hashlib
import json
import os
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from moml.atomic import atomic_write
from moml.data.images.arrays import Images

VERSION = 1  # of the form below; another one is read anew
FOLDER = ".moml-cache"


def cached(
    root: Path, name: str, split: str, sources: Sequence[Path], read: Callable[[], Images]
) -> Images:
    """The images of a split: from the cache if it fits `sources`, else read and kept.

    The cache is in the data folder, or where that cannot be written in the user's own cache.
    Where neither can be written, nothing is kept.
    """
    key = key_of(sources)
    places = [root / FOLDER / f"{name}-{split}.npz", _users(root) / f"{name}-{split}.npz"]
    for place in places:
        found = open_cache(place, key)
        if found is not None:
            return found
    images = read()
    for place in places:
        try:
            write_cache(images, place, key)
            break
        except OSError:
            continue
    return images


def key_of(sources: Sequence[Path]) -> str:
    """A digest of the paths, sizes and times of change of some files."""
    facts = []
    for path in sources:
        stat = path.stat()
        facts.append((str(path.absolute()), stat.st_size, stat.st_mtime_ns))
    return hashlib.sha256(json.dumps([VERSION, facts]).encode()).hexdigest()


def open_cache(path: Path, key: str) -> Images | None:
    """What was kept under this key; None if it is another's, damaged or not there."""
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
            head = json.loads(str(stored["head"]))
            if head["key"] != key:
                return None
            x, y, row = stored["x"], stored["y"], stored["row"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
        return None
    if head["bits"]:
        x = np.unpackbits(x, count=int(np.prod(head["shape"]))) * np.uint8(255)
    groups = None if head["groups"] is None else tuple(head["groups"])
    shape = tuple(head["shape"])
    return Images(x.reshape(shape), y, tuple(head["names"]), head["split"], row, groups)


def write_cache(images: Images, path: Path, key: str) -> None:
    """Keep images under a key; the file appears whole or not at all."""
    x = images.x
    bits = bool(((x == 0) | (x == 255)).all())  # black and white: an eighth of the bytes
    head = {
        "key": key,
        "bits": bits,
        "shape": x.shape,
        "names": images.names,
        "groups": images.groups,
        "split": images.split,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        np.savez(
            file,
            head=np.array(json.dumps(head)),
            x=np.packbits(x == 255) if bits else x,
            y=images.y,
            row=images.row,
        )


def _users(root: Path) -> Path:
    """The user's own cache for a data folder."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    mark = hashlib.sha256(str(root.absolute()).encode()).hexdigest()[:16]
    return Path(base).expanduser() / "moml" / mark
