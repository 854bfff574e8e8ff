"""Image data sets in their publishers' files: find, read, check, cache and download them.

`SETS` has them by name; `load` gives one split as `Images`, sorted by class.
"""

from moml.data.images.arrays import Images, by_group, counts, shrunk, stacked
from moml.data.images.catalog import SETS
from moml.data.images.sets import check, data_folder, fetch, load, pools

__all__ = [
    "SETS", "Images", "by_group", "check", "counts", "data_folder", "fetch", "load", "pools",
    "shrunk", "stacked",
]  # fmt: skip
