"""What every image set becomes: arrays in the order of the classes."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int32, UInt8

from moml.errors import DataError


class Images(NamedTuple):
    """One part of a labelled image set, its rows sorted by class.

    Within a class the rows keep the publisher's order; `row` says where a row stood there, so that
    `x[np.argsort(row)]` is that order again. Pixels are the publisher's, from 0 to 255.
    """

    x: UInt8[np.ndarray, "n height width channels"]
    y: Int32[np.ndarray, " n"]  # from 0, ascending
    names: tuple[str, ...]  # of the classes: names[y]
    split: str  # train, test, background, evaluation
    row: Int32[np.ndarray, " n"]
    groups: tuple[str, ...] | None = None  # of the classes: superclass (CIFAR-100), alphabet


def by_class(
    x: UInt8[np.ndarray, "n height width channels"],
    y: Sequence[int] | np.ndarray,
    names: Sequence[str],
    split: str,
    groups: Sequence[str] | None = None,
) -> Images:
    """Images from rows in the publisher's order."""
    labels = np.asarray(y, np.int32)
    row = np.argsort(labels, kind="stable").astype(np.int32)
    moved = bool((np.diff(row) < 0).any())
    return Images(
        x=x[row] if moved else x,
        y=labels[row],
        names=tuple(names),
        split=split,
        row=row,
        groups=None if groups is None else tuple(groups),
    )


def counts(images: Images) -> np.ndarray:
    """How many images each class has.

    >>> x = np.zeros((3, 2, 2, 1), np.uint8)
    >>> counts(by_class(x, [1, 0, 1], ["a", "b"], "train")).tolist()
    [1, 2]
    """
    return np.bincount(images.y, minlength=len(images.names))


def stacked(images: Images) -> np.ndarray:
    """The pixels as [classes, images of a class, height, width, channels]; no copy is made.

    >>> x = np.zeros((4, 2, 2, 1), np.uint8)
    >>> stacked(by_class(x, [1, 0, 1, 0], ["a", "b"], "train")).shape
    (2, 2, 2, 2, 1)
    """
    each = counts(images)
    least, most = each.min(), each.max()
    if least != most:
        raise DataError(
            f"split {images.split}: classes have {least:,} to {most:,} images; "
            "to be stacked all must have as many"
        )
    return images.x.reshape(len(each), each[0], *images.x.shape[1:])


def shrunk(x: UInt8[np.ndarray, "n height width 1"], side: int) -> UInt8[np.ndarray, "n s s 1"]:
    """Square pictures made smaller, every new pixel the mean of the area that it covers.

    >>> shrunk(np.array([0, 0, 0, 100, 0, 0, 0, 0, 0], np.uint8).reshape(1, 3, 3, 1), 1).item()
    11
    """
    old = x.shape[1]
    edges = np.arange(side + 1) * old / side  # of the new pixels, in old ones
    inside = lambda at: np.clip(at[:, None] - np.arange(old), 0, 1)  # part of old pixels before
    area = ((inside(edges[1:]) - inside(edges[:-1])) * side / old).astype(np.float32)
    parts = np.array_split(x[..., 0], max(1, len(x) // 1000))
    means = [area @ part.astype(np.float32) @ area.T for part in parts]
    return np.rint(np.concatenate(means)).astype(np.uint8)[..., None]


def by_group(images: Images) -> Images:
    """The same images with their groups as classes: CIFAR-100's 20 superclasses, alphabets.

    Groups are in alphabetical order, which for CIFAR-100 is the publisher's.

    >>> x = np.zeros((3, 2, 2, 1), np.uint8)
    >>> given = by_class(x, [1, 0, 2], ["apple", "bee", "pear"], "train", ["fruit", "bug", "fruit"])
    >>> by_group(given).names, by_group(given).y.tolist(), by_group(given).row.tolist()
    (('bug', 'fruit'), [0, 1, 1], [0, 1, 2])
    """
    if images.groups is None:
        raise DataError(f"the classes of split {images.split} have no groups")
    names, group = np.unique(images.groups, return_inverse=True)
    y = group.astype(np.int32)[images.y]
    order = np.lexsort((images.row, y))
    return Images(images.x[order], y[order], tuple(names.tolist()), images.split, images.row[order])
