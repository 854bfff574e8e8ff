"""Splits by labels: from labels and a seed to one array of row numbers a client.

A split is a table of counts [clients, classes]; which rows of a class a client gets is random, and
no row belongs to two clients. A client's rows ascend. The classes are the labels that occur,
sorted.
"""

from bisect import bisect_left

import numpy as np
from jaxtyping import Int
from numpy.typing import ArrayLike

from moml.data.split.owners import Rows, owned
from moml.errors import ConfigError, DataError, check_count

Counts = Int[np.ndarray, " clients classes"]
Seed = int | np.random.Generator
DRAWS = 1000  # how often `dirichlet` tries to give every client its least


def half_and_half(y: ArrayLike, clients: int, a: int, seed: Seed) -> Rows:
    """The paper's split, from labels y [rows]; further rows of a class stay unused.

    Half of the clients get `a` rows of each of the first half of the classes. The others get
    a // 2 rows of one class of the first half and 2 a of one of the second, round-robin: the j-th
    of them has the j-th class of either half. An odd number of clients or classes is halved
    downwards. The classes of a client do not depend on the seed, so a training and a test split
    belong to the same clients.

    >>> rows = half_and_half(np.repeat(np.arange(4), 20), clients=4, a=4, seed=0)
    >>> per_client(np.repeat(np.arange(4), 20), rows).tolist()
    [[4, 4, 0, 0], [4, 4, 0, 0], [2, 0, 8, 0], [0, 2, 0, 8]]
    """
    names, code, have = classes_in(y)
    return deal(code, half_counts(names, have, (clients,), a), generator_of(seed))


def half_counts(
    names: np.ndarray, have: np.ndarray, clients: tuple[int, ...], a: int | None, part: str = ""
) -> Counts:
    """The table of `half_and_half` for some groups of clients; a = None is the most possible."""
    check_count("clients", clients[0], least=2)
    many = " and ".join(str(group) for group in clients if group) + " clients"
    if len(have) < 2:
        raise DataError(f"half_and_half needs two classes; all labels are {names[0]}")
    most = most_of_each(have, *clients)
    if most < 2:
        raise DataError(
            f"{part}{many} are too many: the smallest class has {have.min():,} rows, "
            "too few for a = 2"
        )
    counts = _halves(clients, len(have), most if a is None else check_count("a", a, least=2))
    need = counts.sum(axis=0)
    for k in np.flatnonzero(need > have)[:1]:
        raise DataError(
            f"{part}class {names[k]} has {have[k]:,} rows; {many} with a = {a} need {need[k]:,} "
            f"of it; a must be at most {most}"
        )
    return counts


def most_of_each(have: np.ndarray, *clients: int) -> int:
    """The largest `a` of `half_and_half` for classes of these sizes and some groups of clients.

    >>> most_of_each(np.full(10, 1000), 50), most_of_each(np.full(10, 1000), 50, 10)
    (36, 30)
    """
    fails = lambda a: (_halves(clients, len(have), a).sum(axis=0) > have).any()
    return 1 + bisect_left(range(2, int(have.max()) + 1), True, key=fails)


def _halves(clients: tuple[int, ...], classes: int, a: int) -> Counts:
    tables = []
    for n in clients:
        few, half = n // 2, classes // 2
        other = np.arange(n - few)
        counts = np.zeros((n, classes), int)
        counts[:few, :half] = a
        counts[few + other, other % half] = a // 2
        counts[few + other, half + other % (classes - half)] = 2 * a
        tables.append(counts)
    return np.concatenate(tables)


def dirichlet(y: ArrayLike, clients: int, alpha: float, seed: Seed, least: int = 1) -> Rows:
    """Every row to one client: a class is divided by proportions p ~ Dirichlet(alpha).

    A small alpha gives each client few classes, a large one the same mixture to all. Proportions
    are drawn until every client has `least` rows, at most 1,000 times. With `least` 0 one seed
    gives a training and a test split the same proportions.

    >>> rows = dirichlet(np.repeat(np.arange(2), 50), clients=3, alpha=0.5, seed=0)
    >>> sum(len(mine) for mine in rows)
    100
    """
    _, code, have = classes_in(y)
    _enough_rows(clients, len(code))
    check_count("least", least, least=0)
    if not 0 < alpha <= 1e9:
        raise ConfigError(f"alpha must be above 0 and at most 1e9; got {alpha!r}")
    if clients * least > len(code):
        raise DataError(f"{clients} clients with {least} rows each, but there are {len(code):,}")
    generator = generator_of(seed)
    best = 0
    for _ in range(DRAWS):
        share = generator.dirichlet(np.full(clients, float(alpha)), len(have))
        ends = np.rint(np.cumsum(share, axis=1) * have[:, None]).astype(int)
        ends[:, -1] = have
        counts = np.diff(np.minimum(ends, have[:, None]), axis=1, prepend=0).T
        smallest = int(counts.sum(axis=1).min())
        if smallest >= least:
            return deal(code, counts, generator)
        best = max(best, smallest)
    raise DataError(
        f"{DRAWS:,} draws at concentration (alpha) {alpha:g}: the smallest of {clients} clients "
        f"must have {least} rows; got {best} at best; take a larger alpha or fewer clients"
    )


def pathological(y: ArrayLike, clients: int, c: int, seed: Seed) -> Rows:
    """Every row to one client, and to every client rows of exactly `c` classes.

    As in McMahan et al. (2017) the classes are cut into clients * c shards of about equal size, c a
    client. Theirs may straddle two classes, or fall to one client twice; here each is of one class,
    and a client's are of different ones.

    >>> y = np.repeat(np.arange(4), 10)
    >>> (per_client(y, pathological(y, clients=6, c=2, seed=0)) > 0).sum(axis=1).tolist()
    [2, 2, 2, 2, 2, 2]
    """
    _, code, have = classes_in(y)
    _enough_rows(clients, len(code))
    check_count("c", c, below=len(have) + 1)
    most = np.minimum(have, clients)  # shards of a class: one a client, none empty
    if clients * c < len(have):
        raise DataError(f"{clients} clients of c = {c} classes cannot own all {len(have)} classes")
    if clients * c > most.sum():
        raise DataError(
            f"{clients} clients of c = {c} classes need {clients * c:,} shards; these labels give "
            f"{most.sum():,} (of each class one a client, at most as many as rows)"
        )
    shards = np.ones(len(have), int)
    for _ in range(clients * c - len(have)):  # one more where they are largest
        shards[np.argmax(np.where(shards < most, have / shards, 0))] += 1
    generator = generator_of(seed)
    left, counts = shards.copy(), np.zeros((clients, len(have)), int)
    for client in generator.permutation(clients):
        # the c classes with most shards left: none is left with more shards than clients
        mine = np.lexsort((generator.random(len(have)), -left))[:c]
        counts[client, mine] = 1
        left[mine] -= 1
    nth = np.cumsum(counts, axis=0)  # which of its class's shards it is, from 1
    counts *= have // shards + (nth <= have % shards)
    return deal(code, counts, generator)


def per_client(y: ArrayLike, rows: Rows) -> Counts:
    """How many rows of each class every client has.

    >>> per_client(["a", "b", "a"], [np.array([0, 2]), np.array([1])]).tolist()
    [[2, 0], [0, 1]]
    """
    _, code, have = classes_in(y)
    return np.stack([np.bincount(code[mine], minlength=len(have)) for mine in rows])


def classes_in(y: ArrayLike) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The labels that occur, the place of each row's among them, and the rows of each."""
    y = np.asarray(y)
    if y.dtype == object and all(isinstance(label, str) for label in y.flat):
        y = y.astype(str)  # a column of pandas
    if y.ndim != 1 or not len(y) or y.dtype.kind not in "biuU":
        raise DataError(
            f"labels must be [rows] whole numbers or texts; got {y.dtype} of shape {y.shape}"
        )
    return np.unique(y, return_inverse=True, return_counts=True)


def _enough_rows(clients: int, rows: int) -> None:
    if check_count("clients", clients) > rows:
        raise DataError(f"{clients:,} clients, but there are only {rows:,} rows")


def generator_of(seed: Seed) -> np.random.Generator:
    """A generator from a seed; a generator is used as it is."""
    if not isinstance(seed, np.random.Generator):
        check_count("seed", seed, least=0)
    return np.random.default_rng(seed)


def deal(code: np.ndarray, counts: Counts, generator: np.random.Generator) -> Rows:
    """Random rows of every class for each client, as many as `counts` says."""
    clients = np.arange(len(counts))
    owner = np.full(len(code), -1)
    for rows, each in zip(owned(code, counts.shape[1]), counts.T, strict=True):
        owner[generator.permutation(rows)[: each.sum()]] = np.repeat(clients, each)
    return owned(owner, len(counts))
