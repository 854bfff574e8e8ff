"""Families of tasks, and the draw of tasks and samples from them."""

from moml.tasks.arrays import from_arrays as from_arrays
from moml.tasks.clients import buckets as buckets
from moml.tasks.clients import from_rows as from_rows
from moml.tasks.episodes import episodes as episodes
from moml.tasks.groups import from_groups as from_groups
from moml.tasks.sine import sine as sine
from moml.tasks.sine import unseen_sine as unseen_sine
from moml.tasks.synthetic import synthetic as synthetic
