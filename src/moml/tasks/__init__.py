"""Families of tasks: arrays and streams, and the draw of tasks and samples from a key."""

from moml.tasks.arrays import from_arrays
from moml.tasks.clients import buckets, from_lists, from_rows
from moml.tasks.episodes import episodes
from moml.tasks.files import from_files
from moml.tasks.groups import from_groups
from moml.tasks.keyed import keyed
from moml.tasks.sine import sine, unseen_sine
from moml.tasks.synthetic import synthetic

__all__ = [
    "buckets", "episodes", "from_arrays", "from_files", "from_groups", "from_lists", "from_rows",
    "keyed", "sine", "synthetic", "unseen_sine",
]  # fmt: skip
