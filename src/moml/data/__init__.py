"""Data sets in their publishers' own files, split over clients; and tables of the user's own."""

from moml.data.images.arrays import Images as Images
from moml.data.images.arrays import by_group as by_group
from moml.data.images.arrays import counts as counts
from moml.data.images.arrays import shrunk as shrunk
from moml.data.images.arrays import stacked as stacked
from moml.data.images.catalog import SETS as SETS
from moml.data.images.sets import check as check
from moml.data.images.sets import data_folder as data_folder
from moml.data.images.sets import load as load
from moml.data.images.sets import pools as pools
from moml.data.split.owners import by_column as by_column
from moml.data.split.paired import paired_halves as paired_halves
from moml.data.split.paired import paired_shares as paired_shares
from moml.data.split.partition import dirichlet as dirichlet
from moml.data.split.partition import half_and_half as half_and_half
from moml.data.split.partition import pathological as pathological
from moml.data.split.partition import per_client as per_client
from moml.data.table.columns import learn_columns as learn_columns
from moml.data.table.frame import as_table as as_table
from moml.data.table.frame import read_table as read_table
from moml.data.table.write import extend_table as extend_table
from moml.data.table.write import write_table as write_table
