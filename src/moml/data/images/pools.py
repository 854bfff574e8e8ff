"""Image sets as pools of classes, for tasks of telling classes apart."""

from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from moml.data.images.arrays import shrunk, stacked
from moml.data.images.sets import load
from moml.errors import ConfigError

Pool = UInt8[np.ndarray, "_ each height width channels"]


def pools(name: str, side: int, folder: Path | None = None) -> list[Pool]:
    """All images by class, in the publisher's parts that share no class.

    Omniglot has two, background and evaluation; its ink is 255 here and its pictures are shrunk to
    `side`. Of the others a class has all its images, training and test, and there is one part.
    """
    if name == "omniglot":
        parts = [load(name, split, folder) for split in ("background", "evaluation")]
        return [stacked(part._replace(x=shrunk(255 - part.x, side))) for part in parts]
    both = [stacked(load(name, split, folder)) for split in ("train", "test")]
    if side != both[0].shape[2]:
        raise ConfigError(f"{name} has images of side {both[0].shape[2]}; given {side}")
    return [np.concatenate(both, axis=1)]
