"""The benchmark's clients: images, network and loss."""

from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from moml.config.problems.problem import trained
from moml.data.images.sets import load
from moml.data.split.pfllib import pfllib_split
from moml.models import accuracy, cnn, cross_entropy
from moml.models.networks import Model, feature_dropout, shifted
from moml.tasks.clients import from_rows
from moml.tasks.keyed import keyed
from moml.types import Loss, Tasks

CLIENTS = 20
NEW = (4, 9, 14, 19)  # clients that take no part where new ones are scored
DATASETS = {"mnist": 10, "fmnist": 10, "cifar10": 10, "cifar100": 100}  # and their classes
SPLITS = ("dir", "pat")


class Benchmark(NamedTuple):
    """Clients of a data set; each has images to train on and to test on."""

    net: Model
    loss: Loss
    right: Loss  # accuracy in percent
    train: Tasks  # clients that take part
    own: Tasks  # training images of the clients that are scored: the same, or new ones
    test: Tasks  # their test images


def benchmark(
    dataset: str, split: str, folder: Path | None = None, *, new: bool = False
) -> Benchmark:
    """The 20 clients of a data set under the split `dir` or `pat`, and FedAvg's CNN."""
    parts = [load(dataset, part, folder) for part in ("train", "test")]
    x, y = (np.concatenate(both) for both in zip(*((p.x, p.y) for p in parts), strict=True))
    return of_images(x, y, DATASETS[dataset], split, new=new)


def of_images(
    x: np.ndarray, y: np.ndarray, classes: int, split: str, *, new: bool = False
) -> Benchmark:
    """The same of images [rows, side, side, channels] and their labels."""
    shares = pfllib_split(y, split, clients=CLIENTS, classes=max(2, classes // 10))
    net = shifted(cnn(x.shape[-1], classes, side=x.shape[1]), 0.5, 0.5)
    images, labels = jax.device_put(x), jnp.asarray(y, jnp.int32)  # all families share them
    family = lambda rows: from_rows(images, labels, rows, alike=False)
    if new:
        taking_part = [rows for i, rows in enumerate(shares.train) if i not in NEW]
        train = family(taking_part)
        own, test = (family([rows[i] for i in NEW]) for rows in shares)
    else:
        train, test = map(family, shares)
        own = train
    return Benchmark(net, cross_entropy(net.predict), accuracy(net.predict), train, own, test)


def with_dropout(bench: Benchmark, rate: float) -> Benchmark:
    """The same clients and network, trained with dropout of the features."""
    net, train = feature_dropout(bench.net, rate), keyed(bench.train)
    own = train if bench.own is bench.train else keyed(bench.own)
    return bench._replace(net=net, loss=cross_entropy(trained(net)), train=train, own=own)
