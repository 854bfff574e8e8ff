"""Target statistics of rare categories: each level's shrunken mean of the target over groups.

A text column has a feature for each of its 32 most frequent categories. All others, its levels,
share features: with m_g the mean of the target among the rows of group g that have the level,

    value of a level = sum_g m_g / (n + k),   n groups with the level,   k = σ² / τ²

where τ² is the variance between levels and σ² that of groups within them, by moments. Training rows
get the value by the groups of the other folds (`cross_fitted`), so that no row has a part in its
own input; a level of one group only has the value 0, as an unknown one.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from moml.data.table.columns import Columns
from moml.data.table.frame import Column, Table
from moml.data.table.groups import Groups
from moml.data.table.inputs import Features, Input
from moml.data.table.target import Rows, Target

FOLDS = 5  # of groups
CLASSES = 10  # with more there are no statistics: a feature for each would be too many
MOST = 10_000  # levels of a column that are kept, those of the most groups


class Statistics(NamedTuple):
    """Values of the levels, by all groups and by those outside each fold."""

    values: Float[np.ndarray, "levels outputs"]
    outside: Float[np.ndarray, "folds levels outputs"]
    groups: Int[np.ndarray, " levels"]  # that have each level


def with_levels(
    columns: Columns, table: Table, groups: Groups, rows: Int[np.ndarray, " n"]
) -> Columns:
    """The columns with statistics of the levels of text columns, by these rows.

    >>> from moml.data.table.columns import learn_columns
    >>> from moml.data.table.frame import as_table
    >>> from moml.data.table.groups import group
    >>> rng = np.random.default_rng(0)
    >>> city, effect = rng.integers(0, 60, 2000), rng.normal(size=60)
    >>> user = np.repeat(np.arange(200), 10)
    >>> names = np.char.add("c", city.astype(str))
    >>> table = as_table({"user": user, "city": names, "y": effect[city]})
    >>> columns, groups = learn_columns(table, "y", exclude=["user"]), group(table, "user")
    >>> made = with_levels(columns, table, groups, np.arange(2000))
    >>> made.features[-1], len(made.inputs[0].levels), bool(np.ptp(made.encode(table)[:, -1]) > 1)
    ('city mean', 28, True)
    """
    if len(columns.target.classes) > CLASSES or not any(given.other for given in columns.inputs):
        return columns
    y, owner, inputs = _outputs(columns.target, table, rows), _owner(groups)[rows], []
    for given in columns.inputs:
        if given.kind == "text" and given.other:
            column = table.column(given.name)
            codes = _codes(given, column)[rows]
            found = _statistics(codes, y, owner, len(column.words))
            if found is not None:
                given = _kept(given, column, found)
        inputs.append(given)
    return columns._replace(inputs=tuple(inputs))


def cross_fitted(
    columns: Columns, table: Table, groups: Groups, rows: Int[np.ndarray, " n"], x: Features
) -> Features:
    """The features x of a table, those of levels in `rows` by the groups of other folds.

    `rows` are those by which the statistics were learned; x is changed in place.
    """
    at = 0
    for given in columns.inputs:
        width, first = len(given.features), len(given.words)
        if given.levels:
            column, owner = table.column(given.name), _owner(groups)[rows]
            codes = _codes(given, column)[rows]
            y = _outputs(columns.target, table, rows)
            found = _statistics(codes, y, owner, len(column.words))
            kept = np.isin(column.words.to_pylist(), given.levels)
            outside = np.where(kept[:, None], found.outside, 0)  # type: ignore[union-attr]
            mine = np.where(codes[:, None] >= 0, outside[owner % FOLDS, codes], 0)
            x[rows, at + first : at + first + y.shape[1]] = mine
        at += width
    return x


def _statistics(
    codes: Int[np.ndarray, " n"],
    y: Float[np.ndarray, "n outputs"],
    owner: Int[np.ndarray, " n"],
    size: int,
) -> Statistics | None:
    """The statistics of `size` levels; None if they tell nothing of the target."""
    some, most = codes >= 0, int(owner.max()) + 1
    keys: np.ndarray = codes[some].astype(np.int64) * most + owner[some]
    key, cell = np.unique(keys, return_inverse=True)
    level, group = key // most, key % most
    count = np.bincount(cell)
    sums = lambda at, values, n: np.stack([np.bincount(at, v, n) for v in values.T], axis=1)
    means = sums(cell, y[some], len(key)) / count[:, None]  # m_g of each level and group
    n, total = np.bincount(level, minlength=size), sums(level, means, size)
    several = n > 1
    if several.sum() < 2:
        return None
    average = total / np.maximum(n, 1)[:, None]
    inside = (((means - average[level]) ** 2)[several[level]]).sum() / (n[several] - 1).sum()
    between = average[several].var(axis=0).sum() - inside * (1 / n[several]).mean()
    if between <= 0:
        return None
    k = max(inside / between, 1e-6)
    apart = (level + size * (group % FOLDS)).astype(np.int64)
    n_of = np.bincount(apart, minlength=FOLDS * size).reshape(FOLDS, size)
    total_of = sums(apart, means, FOLDS * size).reshape(FOLDS, size, -1)
    value = lambda total, n: total / (n + k)[..., None] * (n > 0)[..., None]
    return Statistics(value(total, n), value(total - total_of, n - n_of), n)


def _kept(given: Input, column: Column, found: Statistics) -> Input:
    """The input with the levels of two groups or more."""
    able = np.flatnonzero(found.groups > 1)
    able = able[np.argsort(-found.groups[able], kind="stable")][:MOST]
    levels = tuple(column.words.take(able).to_pylist())
    means = tuple(float(value) for value in found.values[able].ravel())
    return given._replace(other=False, levels=levels, means=means)


def _codes(given: Input, column: Column) -> Int[np.ndarray, " rows"]:
    """The codes of levels; -1 where there is none, or a category with a feature of its own."""
    own = np.isin(np.array(column.words.to_pylist(), object), list(given.words))
    return np.where(np.append(own, True)[column.values], -1, column.values)


def _outputs(target: Target, table: Table, rows: Rows) -> Float[np.ndarray, "n outputs"]:
    """The target as numbers about 0: itself, or of each class (of two, the second)."""
    y = target(table, rows)
    if not target.classes:
        return np.asarray(y, float)[:, None]
    each = range(len(target.classes)) if len(target.classes) > 2 else (1,)
    hot = np.stack([y == i for i in each], axis=1).astype(float)
    return hot - hot.mean(axis=0)


def _owner(groups: Groups) -> Int[np.ndarray, " rows"]:
    owner = np.empty(len(groups.order), int)
    owner[groups.order] = np.repeat(np.arange(len(groups.ids)), groups.sizes)
    return owner
