"""Omniglot: characters of 50 alphabets, drawn by 20 people each, in zips or unpacked."""

import io
import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from moml.data.images.arrays import Images, by_class
from moml.errors import DataError, MomlError

FOLDERS = ("omniglot", "omniglot-py", "omniglot/python", ".")  # the second is torchvision's
SPLITS = ("background", "evaluation")
SIDE, DRAWINGS = 105, 20
LARGEST = 100_000  # bytes of a drawing; theirs have some 300
_DRAWING = re.compile(r"\d+_\d+\.png")  # number of the character, number of the drawer


def places(root: Path) -> list[Path]:
    """Folders under `root` that have an archive of Omniglot, or what was in one."""
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

    The 20 drawings of a character are in the order of their drawers. `whole` wants all 20.
    """
    pillow = _pillow()
    classes: dict[tuple[str, str], dict[str, np.ndarray]] = {}
    for name, raw in _drawings(place, split):
        alphabet, character, file = PurePosixPath(name).parts[-3:]
        drawings = classes.setdefault((alphabet, character), {})
        if file in drawings:
            raise DataError(f"{name} is there twice")
        drawings[file] = _pixels(pillow, raw, name)
    part = _part(place, split)
    if not classes:
        raise DataError(f"{part} has no drawings alphabet/character/drawing.png")
    for (alphabet, character), drawings in classes.items():
        if whole and len(drawings) != DRAWINGS:
            raise DataError(
                f"{part}: {alphabet}/{character} has {len(drawings)} drawings; "
                f"the publisher's has {DRAWINGS}"
            )
    ordered = sorted(classes)
    x = [classes[each][file] for each in ordered for file in sorted(classes[each])]
    y = [k for k, each in enumerate(ordered) for _ in classes[each]]
    names = [f"{alphabet}/{character}" for alphabet, character in ordered]
    groups = [alphabet for alphabet, _ in ordered]
    return by_class(np.stack(x)[..., None], y, names, split, groups)


def _part(place: Path, split: str) -> Path | None:
    folder, archive = place / f"images_{split}", place / f"images_{split}.zip"
    return folder if folder.is_dir() else archive if archive.is_file() else None


def _drawings(place: Path, split: str) -> Iterator[tuple[str, bytes]]:
    """The path and the bytes of every drawing."""
    paths = files(place, split)
    if not paths or paths[0].suffix == ".png":
        yield from ((str(path), path.read_bytes()) for path in paths)
        return
    [archive] = paths
    try:
        with zipfile.ZipFile(archive) as opened:
            for entry in opened.infolist():
                parts = PurePosixPath(entry.filename).parts
                if len(parts) < 3 or not _DRAWING.fullmatch(parts[-1]):
                    continue  # a folder, or what a packer left there
                if entry.file_size > LARGEST:
                    raise DataError(f"{archive}: {entry.filename} is too large")
                yield f"{archive}/{entry.filename}", opened.read(entry)
    except (zipfile.BadZipFile, OSError, EOFError, zlib.error, RuntimeError) as error:
        raise DataError(f"{archive} is truncated or damaged: {error}") from error


def _pixels(pillow: Any, raw: bytes, name: str) -> np.ndarray:
    """A drawing as bytes 0 and 255."""
    try:
        with pillow.open(io.BytesIO(raw), formats=["PNG"]) as image:
            if image.size != (SIDE, SIDE) or image.mode not in ("1", "L"):
                wide, high = image.size
                raise DataError(
                    f"{name} is {wide} x {high}, mode {image.mode}; allowed is 105 x 105, 1 bit"
                )
            pixels = np.array(image.convert("L"))
    except MomlError:
        raise
    except (OSError, SyntaxError, ValueError, EOFError) as error:
        raise DataError(f"{name} is no PNG, or damaged: {error}") from error
    if ((pixels != 0) & (pixels != 255)).any():
        raise DataError(f"{name} has grey pixels; a drawing is black and white")
    return pixels


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise DataError("Omniglot's drawings need pillow: pip install 'moml[data]'") from error
    return Image
