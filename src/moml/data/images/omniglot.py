"""Omniglot: characters of 50 alphabets, drawn by 20 people each, in zips or unpacked."""

import io
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import numpy as np

from moml.data.images.arrays import Images, by_class
from moml.errors import DataError

FOLDERS = ("omniglot", "omniglot-py", "omniglot/python", ".")  # the second is torchvision's
SPLITS = ("background", "evaluation")
SIDE, DRAWINGS = 105, 20
LARGEST = 100_000  # bytes of a drawing; theirs have some 300
MOST = 20_000  # drawings of a split; theirs have 19,280 and 13,180
_DRAWING = re.compile(r"\d+_\d+\.png")  # number of the character, number of the drawer


def places(root: Path) -> list[Path]:
    """Folders under `root` that have an archive of Omniglot, or its content."""
    folders = [root / name for name in FOLDERS]
    return [folder for folder in folders if any(_part(folder, split) for split in SPLITS)]


def files(place: Path, split: str) -> list[Path]:
    """The split's archive, or all its drawings."""
    part = _part(place, split)
    if part is None:
        raise DataError(f"{place / f'images_{split}.zip'} is missing")
    if part.is_file():
        return [part]
    return sorted(path for path in part.glob("*/*/*.png") if _DRAWING.fullmatch(path.name))


def read(place: Path, split: str, whole: bool = True) -> Images:
    """Images [n, 105, 105, 1], ink 0 and paper 255; a class is a character, its group an alphabet.

    The 20 drawings of a character are in the order of their drawers. `whole` requires all 20.
    """
    classes: dict[tuple[str, str], dict[str, np.ndarray]] = {}
    for count, (name, raw) in enumerate(_drawings(place, split)):
        if count == MOST:
            raise DataError(f"{_part(place, split)} must have at most {MOST:,} drawings; got more")
        alphabet, character, file = PurePosixPath(name).parts[-3:]
        drawings = classes.setdefault((alphabet, character), {})
        if file in drawings:
            raise DataError(f"{name} occurs twice")
        drawings[file] = _pixels(raw, name)
    part = _part(place, split)
    if not classes:
        raise DataError(f"{part} has no drawings alphabet/character/drawing.png")
    for each, drawings in classes.items():
        if whole and len(drawings) != DRAWINGS:
            must = f"{'/'.join(each)} must have {DRAWINGS} drawings"
            raise DataError(f"{part}: {must}; got {len(drawings)}")
    ordered = sorted(classes)
    x = [classes[each][file] for each in ordered for file in sorted(classes[each])]
    y = [k for k, each in enumerate(ordered) for _ in classes[each]]
    groups = [alphabet for alphabet, _ in ordered]
    return by_class(np.stack(x)[..., None], y, ["/".join(each) for each in ordered], split, groups)


def _part(place: Path, split: str) -> Path | None:
    folder, archive = place / f"images_{split}", place / f"images_{split}.zip"
    return folder if folder.is_dir() else archive if archive.is_file() else None


def _drawings(place: Path, split: str) -> Iterator[tuple[str, bytes]]:
    """The path and the bytes of every drawing."""
    paths = files(place, split)
    if not paths or paths[0].suffix == ".png":
        for path in paths:
            if path.stat().st_size > LARGEST:
                raise DataError(f"{path} is too large")
            yield str(path), path.read_bytes()
        return
    [archive] = paths
    try:
        with zipfile.ZipFile(archive) as opened:
            for entry in opened.infolist():
                parts = PurePosixPath(entry.filename).parts
                if len(parts) < 3 or not _DRAWING.fullmatch(parts[-1]):
                    continue  # a folder, or a file of the packing program
                if entry.file_size > LARGEST:
                    raise DataError(f"{archive}: {entry.filename} is too large")
                yield f"{archive}/{entry.filename}", opened.read(entry)
    except (zipfile.BadZipFile, OSError, EOFError, zlib.error, RuntimeError) as error:
        raise DataError(f"{archive} is truncated or damaged: {error}") from error


def _pixels(raw: bytes, name: str) -> np.ndarray:
    """A drawing as bytes 0 and 255."""
    try:
        from PIL import Image
    except ImportError as error:
        raise DataError("Omniglot's drawings need pillow: pip install 'moml[data]'") from error
    try:
        wide, high = struct.unpack(">16x2I", raw[:24])  # of the header, before pillow decodes
        pixels, mode = None, "unknown"
        if (wide, high) == (SIDE, SIDE):
            with Image.open(io.BytesIO(raw), formats=["PNG"]) as image:
                fits, mode = image.size == (SIDE, SIDE) and image.mode in ("1", "L"), image.mode
                pixels = np.array(image.convert("L")) if fits else None
    except Exception as error:  # a damaged picture may fail in any way
        raise DataError(f"{name} is no PNG, or damaged: {error}") from error
    if pixels is None:
        raise DataError(f"{name} must be 105 x 105, 1 bit; got {wide} x {high}, mode {mode}")
    if ((pixels != 0) & (pixels != 255)).any():
        raise DataError(f"{name} must be black and white; got grey pixels")
    return pixels
