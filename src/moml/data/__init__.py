"""Data sets in their publishers' own files: find, read, check, fetch."""

from moml.data.catalog import SETS as SETS
from moml.data.images import Images as Images
from moml.data.images import counts as counts
from moml.data.images import shrunk as shrunk
from moml.data.images import stacked as stacked
from moml.data.sets import check as check
from moml.data.sets import data_folder as data_folder
from moml.data.sets import load as load
