"""The clients of the federated table: who trains on what, and what each is tested on."""

from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from moml.data.images.arrays import Images, by_group
from moml.data.images.sets import load
from moml.data.split.partition import half_and_half
from moml.errors import DataError
from moml.models import Model, cross_entropy, mlp, shifted
from moml.paper.federated.protocols import (
    CLIENTS,
    HIDDEN,
    MORE_MNIST,
    SETTINGS,
    SPLIT,
    TEST_QUERIES,
    K,
    Protocol,
)
from moml.paper.federated.released import bare_mlp
from moml.tasks.clients import from_rows
from moml.types import Loss, Tasks

TEST = 31  # seed of what a test draws
Rows = list[np.ndarray]


class Pool(NamedTuple):
    """Images with the rows of each client."""

    x: Array  # [rows, height, width, channels], bytes
    y: Int[Array, " rows"]
    rows: Rows


class Problem(NamedTuple):
    """All that the cells of one data set and protocol share."""

    train: Tasks
    test: Pool
    unseen: Pool | None  # clients that never take part
    net: Model
    loss: Loss


class Drawn(NamedTuple):
    """Rows that a test adapts on and is scored on, of every seed and client."""

    support: Int[np.ndarray, "seeds clients shots"]
    query: Int[np.ndarray, "seeds clients width"]
    mask: Bool[np.ndarray, "seeds clients width"]


def images_of(name: str, folder: Path | None) -> tuple[Images, Images]:
    """Training and test images, CIFAR-100's by superclass."""
    both = load(name, "train", folder), load(name, "test", folder)
    return (by_group(both[0]), by_group(both[1])) if SETTINGS[name].grouped else both


def problem_of(train: Images, test: Images, name: str, p: Protocol, split: int = SPLIT) -> Problem:
    """The paper's split of these images, drawn from a seed, under a protocol's switches."""
    setting = SETTINGS[name]
    a = MORE_MNIST if p.more_mnist and name == "mnist" else setting.train
    mine = half_and_half(train.y, CLIENTS, a, split)
    pool = lambda part, rows: Pool(jnp.asarray(part.x), jnp.asarray(part.y, jnp.int32), rows)
    unseen = None
    if p.unseen:  # other clients of the same kinds, of images that nobody trains on
        free = np.setdiff1d(np.arange(len(train.y)), np.concatenate(mine))
        others = half_and_half(train.y[free], CLIENTS, setting.test, split + 1)
        used = [free[rows] for rows in others]
        unseen = pool(*_kept(train, used))
    sizes = (int(np.prod(train.x.shape[1:])), HIDDEN, HIDDEN, len(train.names))
    net = bare_mlp(*sizes) if p.bare_elu else mlp(*sizes)
    if p.standardised:
        own = train.x[np.concatenate(mine)] / np.float32(255)
        net = shifted(net, float(own.mean()), float(own.std()))
    return Problem(
        train=from_rows(train.x, np.asarray(train.y, np.int32), mine),
        test=pool(test, half_and_half(test.y, CLIENTS, setting.test, split)),
        unseen=unseen,
        net=net,
        loss=cross_entropy(net.predict),
    )


def _kept(images: Images, rows: Rows) -> tuple[Images, Rows]:
    """Only the images that somebody owns."""
    used, at = np.unique(np.concatenate(rows), return_inverse=True)
    ends = np.cumsum([len(mine) for mine in rows])[:-1]
    return images._replace(x=images.x[used], y=images.y[used]), np.split(at, ends)


def half(rows: Rows, which: int) -> Rows:
    """Every other row of each client: both halves have the same classes."""
    return [mine[which::2] for mine in rows]


def drawn(rows: Rows, seeds: int, *, few: bool, salt: int = 0, shots: int = K) -> Drawn:
    """`shots` rows to adapt on and others to score: 10 of them if `few`, else all that are left.

    A seed's draw is the same for all methods, and stays the same over a run.
    """
    least = min(len(mine) for mine in rows)
    if least < shots + (TEST_QUERIES if few else 1):
        raise DataError(f"the smallest client has {least} test images, too few for {shots} shots")
    width = TEST_QUERIES if few else max(len(mine) for mine in rows) - shots
    support = np.zeros((seeds, len(rows), shots), np.int32)
    query = np.zeros((seeds, len(rows), width), np.int32)
    mask = np.zeros(query.shape, bool)
    for seed in range(seeds):
        generator = np.random.default_rng([TEST, salt, seed])
        for i, mine in enumerate(rows):
            order = generator.permutation(mine)
            asked = order[shots : shots + width]
            support[seed, i] = order[:shots]
            query[seed, i, : len(asked)] = asked
            mask[seed, i, : len(asked)] = True
    return Drawn(support, query, mask)
