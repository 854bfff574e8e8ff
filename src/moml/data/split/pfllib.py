"""The splits of PFLlib's benchmark, regenerated: which of 20 clients has which images.

Its scripts merge a publisher's training and test images and draw from numpy's legacy generator with
seed 1. The same draws in the same order give the same clients.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from moml.data.split.owners import Rows
from moml.errors import ConfigError, check_count

Labels = Int[np.ndarray, " rows"]
TRAINED = 0.75  # share of a client's images
BATCH = 10  # a client has at least one test batch


class Shares(NamedTuple):
    """Rows of each client to train on and to test on."""

    train: Rows
    test: Rows


def pfllib_split(
    y: Labels,
    kind: str,
    *,
    clients: int = 20,
    classes: int = 2,
    concentration: float = 0.1,
    seed: int = 1,
) -> Shares:
    """The split `dir` or `pat` of images with these labels, in the publisher's order.

    Parameters
    ----------
    y
        Labels of the training images, then of the test images.
    kind
        `dir`: every class is dealt out by a Dirichlet distribution. `pat`: every client has a few
        classes, in unequal parts.
    clients
        Number of clients.
    classes
        `pat`: classes of a client; PFLlib has 2 of 10, 10 of 100.
    concentration
        `dir`: of the Dirichlet distribution.
    seed
        Of the generator.

    Returns
    -------
    Shares
        Of each client three quarters of its rows to train on, the others to test on.

    >>> shares = pfllib_split(np.repeat(np.arange(10), 100), "pat")
    >>> len(shares.train), sum(map(len, shares.train)) + sum(map(len, shares.test))
    (20, 1000)
    """
    check_count("clients", clients, least=2)
    random = np.random.RandomState(seed)
    least = int(min(BATCH / (1 - TRAINED), len(y) / clients / 2))
    if kind == "dir":
        rows = _dirichlet(y, clients, concentration, least, random)
    elif kind == "pat":
        rows = _pathological(y, clients, classes, least, random)
    else:
        raise ConfigError(f"split must be dir or pat; got {kind!r}")
    train, test = [], []
    for mine in rows:
        order = random.permutation(len(mine))
        tested = len(mine) - int(TRAINED * len(mine))
        test.append(mine[order[:tested]])
        train.append(mine[order[tested:]])
    return Shares(train, test)


def _dirichlet(
    y: Labels, clients: int, concentration: float, least: int, random: np.random.RandomState
) -> Rows:
    """Deal out class after class; who has its equal share already gets no more."""
    while True:
        dealt: list[list[np.ndarray]] = [[] for _ in range(clients)]
        sizes = np.zeros(clients, int)
        for label in np.unique(y):
            own = np.flatnonzero(y == label)
            random.shuffle(own)
            share = random.dirichlet(np.repeat(concentration, clients))
            share = share * (sizes < len(y) / clients)
            share = share / share.sum()
            ends = (np.cumsum(share) * len(own)).astype(int)[:-1]
            for i, part in enumerate(np.split(own, ends)):
                dealt[i].append(part)
                sizes[i] += len(part)
        if sizes.min() >= least:
            return [np.concatenate(parts) for parts in dealt]


def _pathological(
    y: Labels, clients: int, classes: int, least: int, random: np.random.RandomState
) -> Rows:
    """Class after class goes to the first clients that still want one, in random parts."""
    names = np.unique(y)
    check_count("classes", classes, below=len(names) + 1)
    rows: Rows = [np.zeros(0, int) for _ in range(clients)]
    wanted = np.full(clients, classes)
    for label in names:
        own = np.flatnonzero(y == label)
        takers = np.flatnonzero(wanted)[: int(np.ceil(clients / len(names) * classes))]
        if not len(takers):
            break
        each = len(own) / len(takers)
        low = int(max(each / 10, least / len(names)))
        sizes = random.randint(low, int(each), len(takers) - 1)
        for client, part in zip(takers, np.split(own, np.cumsum(sizes)), strict=True):
            rows[client] = np.append(rows[client], part)
        wanted[takers] -= 1
    return rows
