"""Clients with training rows and test rows of the same classes."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from moml.data.split.owners import Rows
from moml.data.split.partition import Seed, classes_in, deal, generator_of, half_counts, per_client
from moml.errors import DataError, check_count


class Paired(NamedTuple):
    """Row numbers of every client: `train` of the training part, the others of the test part."""

    train: Rows
    test: Rows  # of the same clients
    unseen: Rows  # of clients that never take part


def paired_halves(
    train: ArrayLike,
    test: ArrayLike,
    clients: int,
    unseen: int,
    seed: Seed,
    *,
    a: int | None = None,
    test_a: int | None = None,
) -> Paired:
    """The paper's split of both parts, from their labels; the unseen clients are split likewise.

    `a` and `test_a` are those of `half_and_half`; by default the largest possible.

    >>> y, z = np.repeat(np.arange(4), 50), np.repeat(np.arange(4), 20)
    >>> split = paired_halves(y, z, clients=4, unseen=2, seed=0, a=4)
    >>> [len(mine) for mine in split.train], [len(mine) for mine in split.unseen]
    ([8, 8, 10, 10], [10, 12])
    """
    check_count("unseen", unseen, least=0)
    names, code, have = classes_in(train)
    test_code, test_have = _same_classes(names, test)
    mine = half_counts(names, have, (clients,), a, "training part: ")
    theirs = half_counts(names, test_have, (clients, unseen), test_a, "test part: ")
    generator = generator_of(seed)
    rows = deal(test_code, theirs, generator)
    return Paired(deal(code, mine, generator), rows[:clients], rows[clients:])


def paired_shares(train: ArrayLike, test: ArrayLike, rows: Rows, unseen: int, seed: Seed) -> Paired:
    """A split of the training part, and the same share of each class in the test part.

    The last `unseen` clients of `rows` never take part. Shares are rounded so that no row is used
    twice: a client with few rows of a class may have no test rows of it.

    >>> y, z = np.repeat(np.arange(2), 50), np.repeat(np.arange(2), 10)
    >>> split = paired_shares(y, z, [np.arange(25), np.arange(25, 100)], unseen=1, seed=0)
    >>> [len(mine) for mine in split.train + split.test + split.unseen]
    [25, 5, 15]
    """
    check_count("unseen", unseen, least=0, below=len(rows))
    names, _, have = classes_in(train)
    test_code, test_have = _same_classes(names, test)
    counts = per_client(train, rows)
    ends = np.rint(np.cumsum(counts, axis=0) * (test_have / have)).astype(int)
    theirs = np.diff(ends, axis=0, prepend=0)
    for client in np.flatnonzero(theirs.sum(axis=1) == 0)[:1]:
        raise DataError(
            f"client {client} has {counts[client].sum()} training rows, and so no test rows; "
            "take fewer clients, or larger ones"
        )
    tested = deal(test_code, theirs, generator_of(seed))
    n = len(rows) - unseen
    return Paired(rows[:n], tested[:n], tested[n:])


def _same_classes(names: np.ndarray, test: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """The test rows' classes, by number, and how many rows each has."""
    others, code, have = classes_in(test)
    if not np.array_equal(names, others):
        given = f"got {len(names)} classes, test rows of {len(others)}"
        raise DataError(f"both parts must have the same classes; training rows {given}")
    return code, have
