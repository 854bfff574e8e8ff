"""The problem `episodes`: classes of images, from a few of each."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax
import numpy as np

from moml.config.problems.problem import (
    HELD_OUT,
    TRAINING,
    UNSEEN,
    VALIDATION,
    Built,
    Held,
    Problem,
    classifier,
    one_of,
)
from moml.data import pools
from moml.errors import ConfigError, check_count
from moml.models import accuracy_alone, conv4, mlp
from moml.models.conv4 import NORMS
from moml.tasks import episodes
from moml.tasks.episodes import overlapping, parted, rotated

if TYPE_CHECKING:
    from moml.config.config import Config

USUAL = {"omniglot": (1200, 423), "cifar100": (80, 20)}  # classes to train on, to test on
SIDE = {"omniglot": 28, "cifar100": 32}  # of the images
IMAGES = {"omniglot": 20, "cifar100": 600}  # of each class


@dataclass(frozen=True)
class Episodes(Problem):
    """Telling classes of images apart, from a few of each that are shown."""

    dataset: str = "omniglot"
    """omniglot (28 x 28, one channel) or cifar100 (32 x 32, three)."""
    split: str = "usual"
    """Classes to train on and to test on, never shared: usual (random; omniglot 1,200 and 423,
    cifar100 80 and 20) or publisher (omniglot alone: its background and evaluation alphabets)."""
    validation: int = 0
    """Training classes set aside and scored on instead of the test classes, to choose by; from 0.
    """
    ways: int = 20
    """Classes of a task; from 2."""
    n: int | None = None
    """Training tasks, a fixed set of random ones; from 1. By default fresh ones at every step."""
    rotations: bool = True
    """Whether training images turned by 90, 180 and 270 degrees are further classes."""
    queries: int = 1
    """Images of each class that a score asks about; from 1."""
    alone: bool = False
    """Whether scores ask about one image at a time. Else about all of a task together, which
    matters where norm is batch: an answer then depends on what else is asked (transductive)."""
    model: str = "conv4"
    """conv4 or mlp."""
    filters: int = 64
    """conv4: channels of each block; from 1."""
    norm: str = "batch"
    """conv4: outputs standardised over the batch given, each sample by itself, or none."""
    hidden: tuple[int, ...] = (40, 40)
    """mlp: widths of the hidden layers; from 1 each."""

    federated = False

    @property
    def least(self) -> int | None:
        """Images of a class."""
        return IMAGES[self.dataset]

    def check(self) -> None:
        """Refuse what cannot be, beyond types and counts."""
        one_of("problem.dataset", self.dataset, IMAGES)
        one_of("problem.split", self.split, ("usual", "publisher"))
        one_of("problem.model", self.model, ("conv4", "mlp"))
        one_of("problem.norm", self.norm, NORMS)
        check_count("problem.ways", self.ways, least=2)
        if self.split == "publisher" and self.dataset != "omniglot":
            raise ConfigError(f"problem.split: {self.dataset} has no publisher's split of classes")

    def build(self, config: "Config", held: Held = lambda task: True) -> Built:
        """What is trained."""
        train, test = classes_of(self)
        *_, high, wide, channels = train.shape
        if self.model == "conv4":
            net = conv4(channels, self.ways, filters=self.filters, norm=self.norm)
        else:
            net = mlp(high * wide * channels, *self.hidden, self.ways)
        some = lambda key, pool, n: overlapping(key, len(pool), self.ways, n)
        table = None if self.n is None else some(jax.random.key(TRAINING), train, self.n)
        unseen = some(jax.random.key(UNSEEN), test, config.test_tasks)
        built = classifier(
            net, episodes(train, self.ways, table), episodes(test, self.ways, unseen),
            self.queries, at_once=16,
        )  # fmt: skip
        if self.validation:  # of classes to choose by; `unseen` has other tasks of them
            others = some(jax.random.key(HELD_OUT), test, VALIDATION)
            built = built._replace(validation=lambda: episodes(test, self.ways, others))
        return built._replace(score=accuracy_alone(net.predict)) if self.alone else built


def classes_of(p: Episodes) -> tuple[np.ndarray, np.ndarray]:
    """The images of the classes to train on and of those to score on, [classes, each, ...]."""
    key = jax.random.key(TRAINING)
    parts = pools(p.dataset, SIDE[p.dataset])
    usual = lambda: parted(np.concatenate(parts), key, USUAL[p.dataset])
    train, test = parts if p.split == "publisher" else usual()
    if p.validation:
        left = len(train) - p.validation
        if min(left, p.validation) < p.ways:
            raise ConfigError(
                f"problem.validation must leave {p.ways} classes or more on both sides, of "
                f"{len(train)}; got {p.validation}"
            )
        train, test = parted(train, jax.random.fold_in(key, 1), (left, p.validation))
    return (rotated(train) if p.rotations else train), test
