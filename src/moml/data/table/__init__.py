"""Users' tables: read files, learn and encode columns, group rows into tasks, write columns."""

from moml.data.table.columns import Columns, learn_columns
from moml.data.table.frame import Table, as_table, read_table
from moml.data.table.groups import Groups, group, split, weights
from moml.data.table.write import extend_table, write_table

__all__ = [
    "Columns", "Groups", "Table", "as_table", "extend_table", "group", "learn_columns",
    "read_table", "split", "weights", "write_table",
]  # fmt: skip
