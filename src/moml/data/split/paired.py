"""Clients with rows to train on and rows to be tested on, both of the same classes."""

from typing import Any, NamedTuple

import numpy as np

from moml.data.split.owners import Rows
from moml.data.split.partition import Counts, Seed, classes_in, deal, generator_of, half_counts
from moml.errors import DataError, check_count


class Paired(NamedTuple):
    """Row numbers of every client: `train` of the training part, the others of the test part."""

    train: Rows
    test: Rows  # of the same clients
    unseen: Rows  # of clients that never take part


def most_of_each(have: np.ndarray, *clients: int) -> int:
    """The largest `a` of `half_and_half` that classes of these sizes bear, for some groups at once.

    >>> most_of_each(np.full(10, 1000), 50), most_of_each(np.full(10, 1000), 50, 10)
    (36, 30)
    """
    low, high = 1, int(have.max()) + 1  # 1 is always too few; found by halving
    while high - low > 1:
        a = (low + high) // 2
        fits = (_halves(clients, len(have), a).sum(axis=0) <= have).all()
        low, high = (a, high) if fits else (low, a)
    return low


def paired_halves(
    train: Any,
    test: Any,
    clients: int,
    unseen: int,
    seed: Seed,
    *,
    a: int | None = None,
    test_a: int | None = None,
) -> Paired:
    """The paper's split of both parts, from their labels; the unseen clients are split like it.

    `a` and `test_a` are those of `half_and_half`; by default the most that the labels bear.

    >>> y, z = np.repeat(np.arange(4), 50), np.repeat(np.arange(4), 20)
    >>> split = paired_halves(y, z, clients=4, unseen=2, seed=0, a=4)
    >>> [len(mine) for mine in split.train], [len(mine) for mine in split.unseen]
    ([8, 8, 10, 10], [10, 12])
    """
    check_count("clients", clients, least=2)
    check_count("unseen", unseen, least=0)
    names, code, have = classes_in(train)
    test_code, test_have = _same_classes(names, test)
    if len(have) < 2:
        raise DataError(f"half and half needs two classes; all labels are {names[0]}")
    generator = generator_of(seed)
    mine = _filled("training", names, have, (clients,), a)
    theirs = _filled("test", names, test_have, (clients, unseen), test_a)
    rows = deal(test_code, theirs, generator)
    return Paired(deal(code, mine, generator), rows[:clients], rows[clients:])


def paired_shares(train: Any, test: Any, rows: Rows, unseen: int, seed: Seed) -> Paired:
    """A split of the training part, and the same share of each class for everyone in the test part.

    The last `unseen` clients of `rows` never take part. Shares are rounded so that no row is dealt
    twice: a client with few rows of a class may have none of it to be tested on.

    >>> y, z = np.repeat(np.arange(2), 50), np.repeat(np.arange(2), 10)
    >>> split = paired_shares(y, z, [np.arange(25), np.arange(25, 100)], unseen=1, seed=0)
    >>> [len(mine) for mine in split.train + split.test + split.unseen]
    [25, 5, 15]
    """
    check_count("unseen", unseen, least=0, below=len(rows))
    names, code, have = classes_in(train)
    test_code, test_have = _same_classes(names, test)
    counts = np.stack([np.bincount(code[mine], minlength=len(have)) for mine in rows])
    ends = np.rint(np.cumsum(counts, axis=0) * (test_have / have)).astype(int)
    theirs = np.diff(ends, axis=0, prepend=0)
    for client in np.flatnonzero(theirs.sum(axis=1) == 0)[:1]:
        raise DataError(
            f"client {client} has {counts[client].sum()} training rows, and so no test rows at "
            "all; take fewer clients, or larger ones"
        )
    tested = deal(test_code, theirs, generator_of(seed))
    n = len(rows) - unseen
    return Paired(rows[:n], tested[:n], tested[n:])


def _halves(clients: tuple[int, ...], classes: int, a: int) -> Counts:
    return np.concatenate([half_counts(each, classes, a) for each in clients])


def _filled(
    part: str, names: np.ndarray, have: np.ndarray, clients: tuple[int, ...], a: int | None
) -> Counts:
    """The table of so many clients, if there are rows enough."""
    most, many = most_of_each(have, *clients), " and ".join(str(each) for each in clients if each)
    if most < 2:
        raise DataError(
            f"{many} clients are too many for the {part} part: its smallest class has "
            f"{have.min():,} rows, too few for a = 2"
        )
    counts = _halves(clients, len(have), most if a is None else check_count("a", a, least=2))
    need = counts.sum(axis=0)
    for k in np.flatnonzero(need > have)[:1]:
        raise DataError(
            f"{part} part: a = {a} for {many} clients needs {need[k]:,} rows of class {names[k]}, "
            f"which has {have[k]:,}; at most a = {most}"
        )
    return counts


def _same_classes(names: np.ndarray, test: Any) -> tuple[np.ndarray, np.ndarray]:
    """The test rows' classes, by number, and how many rows each has."""
    others, code, have = classes_in(test)
    if not np.array_equal(names, others):
        raise DataError(
            f"training rows are of {len(names)} classes, test rows of {len(others)}: "
            "both parts must have the same"
        )
    return code, have
