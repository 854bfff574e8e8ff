"""Splits of a data set over clients: which client owns which rows."""

from moml.data.split.owners import by_column
from moml.data.split.paired import Paired, paired_halves, paired_shares
from moml.data.split.partition import dirichlet, half_and_half, pathological, per_client

__all__ = [
    "Paired", "by_column", "dirichlet", "half_and_half", "paired_halves", "paired_shares",
    "pathological", "per_client",
]  # fmt: skip
