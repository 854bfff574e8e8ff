"""Episodes: tasks of classifying `ways` classes from a few images of each."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, UInt8
from numpy.typing import ArrayLike

from moml.errors import DataError, check_count
from moml.kept import kept
from moml.tasks.parts import on_device
from moml.tasks.sampler import distinct, distinct_or_not
from moml.types import Batch, Key, Tasks

Table = Int[Array, "n ways"]
Pool = UInt8[np.ndarray, "_ each height width channels"]


def parted(images: Pool, key: Key, sizes: tuple[int, ...]) -> tuple[Pool, ...]:
    """The classes in disjoint random parts of the given sizes.

    >>> train, test = parted(np.zeros((5, 2, 4, 4, 1), np.uint8), jax.random.key(0), (3, 2))
    >>> len(train), len(test)
    (3, 2)
    """
    if sum(sizes) > len(images):
        raise DataError(f"parts must have {len(images)} classes in all at most; got {sizes}")
    order, ends = np.asarray(jax.random.permutation(key, len(images))), np.cumsum(sizes)
    return tuple(images[order[end - size : end]] for size, end in zip(sizes, ends, strict=True))


def rotated(images: Pool) -> Pool:
    """Four classes of each: the images as they are, and turned by 90, 180 and 270 degrees."""
    return np.concatenate([np.rot90(images, turns, axes=(2, 3)) for turns in range(4)])


def disjoint(key: Key, classes: int, ways: int, n: int) -> Int[Array, "n ways"]:
    """n tasks of `ways` classes each, no class in two of them, as in the paper."""
    if n * ways > classes:
        raise DataError(
            f"{n} disjoint tasks of {ways} classes need {n * ways} classes; got {classes}"
        )
    return jax.random.permutation(key, classes)[: n * ways].reshape(n, ways).astype(jnp.int32)


def overlapping(key: Key, classes: int, ways: int, n: int) -> Int[Array, "n ways"]:
    """n tasks of `ways` distinct classes each, drawn independently."""
    return jax.vmap(lambda key: distinct(key, classes, ways))(jax.random.split(key, n))


def episodes(images: ArrayLike | Array, ways: int, table: ArrayLike | Array | None = None) -> Tasks:
    """Tasks of classifying `ways` classes of images.

    A draw of size K is K images of each class, so a batch has K * ways images with labels
    0 .. ways - 1.

    Parameters
    ----------
    images
        Bytes [classes, each, height, width, channels], see `moml.data.stacked`.
    ways
        Classes of a task.
    table
        The classes of each of n tasks; by default the tasks are a stream, with random classes.

    Returns
    -------
    Tasks
        A family of n tasks, or a stream.

    >>> tasks = episodes(np.zeros((30, 20, 28, 28, 1), np.uint8), ways=5)
    >>> ids = jnp.array([7, 8], jnp.int32)
    >>> tasks.fetch(ids, tasks.draw(jax.random.key(0), ids, 3)).x.shape
    (2, 15, 28, 28, 1)
    """
    check_count("ways", ways, least=2)
    images = np.asarray(images)
    if images.ndim != 5 or images.dtype != np.uint8 or 0 in images.shape:
        raise DataError(
            "images must be bytes [classes, each, height, width, channels], see moml.data.stacked; "
            f"got {images.dtype} {list(images.shape)}"
        )
    classes, each = images.shape[:2]
    if ways > classes:
        raise DataError(f"ways must be at most the {classes} classes; got {ways}")
    if table is not None:
        table = on_device("table", table)
        whole = jnp.issubdtype(table.dtype, jnp.integer) and table.ndim == 2 and table.size
        if not whole or table.shape[1] != ways or table.min() < 0 or table.max() >= classes:
            shown = f"{table.dtype} {list(table.shape)}, such as {table.ravel()[:8].tolist()}"
            must = f"table must have {ways} classes of each task, from 0 to {classes - 1}"
            raise DataError(f"{must}; got {shown}")
    pixels = jnp.asarray(images.reshape(classes * each, *images.shape[2:]))
    return Tasks(
        None if table is None else len(table), _drawn(classes, each, ways), _fetch, table, pixels,
        least=each, ways=ways,
    )  # fmt: skip


@kept
def _drawn(classes: int, each: int, ways: int) -> Callable[..., Int[Array, "tasks size ways"]]:
    """The draw of images of each class of some tasks, as numbers among all images."""

    def draw(
        table: Table | None, key: Key, ids: Int[Array, " tasks"], size: int
    ) -> Int[Array, "tasks size ways"]:
        def classes_of(task: Int[Array, ""]) -> Int[Array, " ways"]:
            return distinct(jax.random.key(task), classes, ways) if table is None else table[task]

        def of_class(key: Key, which: Int[Array, ""]) -> Int[Array, " size"]:
            return which * each + distinct_or_not(key, each, size)

        def of_task(key: Key, task: Int[Array, ""]) -> Int[Array, "size ways"]:
            return jax.vmap(of_class, out_axes=1)(jax.random.split(key, ways), classes_of(task))

        return jax.vmap(of_task)(jax.random.split(key, len(ids)), ids)

    return draw


def _fetch(
    pixels: UInt8[Array, "_ height width channels"],
    ids: Int[Array, "*tasks"],
    rows: Int[Array, "*tasks_visits_size ways"],
) -> Batch:
    """The drawn images as floats 0 .. 1, with their labels."""
    *many, size, ways = rows.shape
    x = pixels[rows.reshape(*many, size * ways)].astype(float) / 255
    label = jnp.broadcast_to(jnp.arange(ways, dtype=jnp.int32), rows.shape)
    return Batch(x, label.reshape(*many, size * ways))
