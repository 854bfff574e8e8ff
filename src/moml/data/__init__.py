"""Image data sets in their publishers' files, splits over clients, and users' tables.

`images` finds, reads and downloads data sets, `split` divides their rows over clients, `table`
reads, encodes and writes tables.
"""

from moml.data.images.arrays import Images, by_group, counts, shrunk, stacked
from moml.data.images.catalog import SETS
from moml.data.images.sets import check, data_folder, load, pools
from moml.data.split.owners import by_column
from moml.data.split.paired import paired_halves, paired_shares
from moml.data.split.partition import dirichlet, half_and_half, pathological, per_client
from moml.data.table.columns import learn_columns
from moml.data.table.frame import as_table, read_table
from moml.data.table.write import extend_table, write_table

__all__ = [
    "SETS", "Images", "as_table", "by_column", "by_group", "check", "counts", "data_folder",
    "dirichlet", "extend_table", "half_and_half", "learn_columns", "load", "paired_halves",
    "paired_shares", "pathological", "per_client", "pools", "read_table", "shrunk", "stacked",
    "write_table",
]  # fmt: skip
