"""Data sets in their publishers' own files, split over clients; and tables of the user's own."""

from moml.data.catalog import SETS as SETS
from moml.data.columns import learn_columns as learn_columns
from moml.data.images import Images as Images
from moml.data.images import by_group as by_group
from moml.data.images import counts as counts
from moml.data.images import shrunk as shrunk
from moml.data.images import stacked as stacked
from moml.data.owners import by_column as by_column
from moml.data.paired import paired_halves as paired_halves
from moml.data.paired import paired_shares as paired_shares
from moml.data.partition import dirichlet as dirichlet
from moml.data.partition import half_and_half as half_and_half
from moml.data.partition import pathological as pathological
from moml.data.partition import per_client as per_client
from moml.data.pools import pools as pools
from moml.data.sets import check as check
from moml.data.sets import data_folder as data_folder
from moml.data.sets import load as load
from moml.data.table import as_table as as_table
from moml.data.table import read_table as read_table
from moml.data.table_write import extend_table as extend_table
from moml.data.table_write import write_table as write_table
