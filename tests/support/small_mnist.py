"""MNIST in its publisher's form, but small: for runs on clients, here and in other processes."""

import os
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np

from moml.cli import main
from moml.config.problems import Clients
from moml.config.starts import STARTS
from moml.data import SETS
from moml.data.images import mnist
from tests.data.made import idx

LABELS = {"train": "train-labels-idx1-ubyte", "test": "t10k-labels-idx1-ubyte"}


def write(root, train, test):
    """The four files: so many images of each digit, whose bright pixels tell the digit."""
    folder = Path(root) / "mnist"
    folder.mkdir(parents=True)
    bright = np.random.default_rng(0).integers(0, 160, (10, 28, 28))
    for split, each in {"train": train, "test": test}.items():
        rng = np.random.default_rng(len(split))
        y = rng.permutation(np.repeat(np.arange(10), each)).astype(np.uint8)
        x = (bright[y] + rng.integers(0, 96, (len(y), 28, 28))).astype(np.uint8)
        (folder / LABELS[split]).write_bytes(idx(y))
        (folder / LABELS[split].replace("labels-idx1", "images-idx3")).write_bytes(idx(x))


def counts(root):
    """How many images of each digit there are."""
    found = {}
    for split, name in LABELS.items():
        raw = (Path(root) / "mnist" / name).read_bytes()
        assert struct.unpack(">2I", raw[:8]) == (2049, len(raw) - 8)
        y = np.frombuffer(raw[8:], np.uint8)
        found[split] = tuple(np.bincount(y, minlength=10).tolist())
    return found


def count_as_whole(root, setitem):
    """Let the files under `root` be the publisher's."""
    each = counts(root)
    setitem(SETS, "mnist", SETS["mnist"]._replace(counts=each))
    for split, numbers in each.items():
        setitem(mnist.ROWS, split, sum(numbers))


SMALL = Clients("mnist", n=6, unseen=2, a=8, hidden=(3,))
TINY = replace(
    STARTS["mnist-clients"], problem=SMALL, method="localmoml", iterations=12, k=2, shots=3,
    tasks_per_step=3, eta=0.005, test_steps=2, log_every=4, score_every=4, alpha=0.1, local_steps=2,
)  # fmt: skip
LATE = replace(TINY, carried=True, dropout=0.4, straggle=0.5, save_seconds=0.0, keep=9)
DITTO = replace(TINY, method="ditto", eta=0.01, alpha=0.02, k=3, iterations=24, save_seconds=0.0)
SIZE = 8 * (784 * 3 + 3 + 3 * 10 + 10)  # bytes of the model, in double precision


SCRIPT = "from tests.support.small_mnist import run; run()"


def run():
    """`moml`, in a process of its own."""
    setitem = lambda mapping, name, value: mapping.update({name: value})
    count_as_whole(os.environ["MOML_DATA"], setitem)
    main()
