"""One-shot classification: the paper's settings and printed figures, the images and the tasks."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from moml.data import pools
from moml.errors import ConfigError
from moml.models import Model, accuracy, cross_entropy, mlp
from moml.paper.sine.protocols import Steps
from moml.tasks import episodes
from moml.tasks.episodes import disjoint, parted
from moml.types import Loss, Tasks

SPLIT = 7  # seed of the classes' split and of the tasks: all rows and seeds of a table share them


@dataclass(frozen=True)
class Setting:
    """A half of the table."""

    ways: int
    train: int  # tasks
    test: int
    test_steps: int  # of 0.05
    iterations: int
    images: str  # how they are given, see `images_of`
    printed: dict[str, tuple[float, float]]  # mean and std
    named: dict[str, Steps]  # the step sizes of the released code


SETTINGS = {
    "omniglot": Setting(
        ways=20, train=25, test=10, test_steps=20, iterations=500, images="28",
        printed={
            "maml": (44.31, 1.29), "reptile": (46.02, 1.08), "protonet": (45.67, 3.30),
            "nasa": (46.15, 0.82), "moml-v1": (46.35, 1.38), "moml-v2": (45.81, 0.32),
            "localmoml": (46.24, 1.70),
        },
        named={
            "maml": Steps(0.001), "reptile": Steps(0.001), "protonet": Steps(0.1),
            "nasa": Steps(0.05, 0.5, 0.9), "moml-v1": Steps(0.001, 0.3),
            "moml-v2": Steps(0.001, 0.5), "localmoml": Steps(0.001, 0.3),
        },
    ),
    "cifar100": Setting(
        ways=5, train=17, test=3, test_steps=1, iterations=2000, images="32",
        printed={
            "maml": (40.18, 0.49), "reptile": (40.09, 0.11), "protonet": (31.11, 6.29),
            "nasa": (40.60, 0.33), "moml-v1": (40.49, 0.21), "moml-v2": (40.82, 0.25),
            "localmoml": (40.38, 0.74),
        },
        named={
            "maml": Steps(0.001), "reptile": Steps(0.01), "protonet": Steps(0.05),
            "nasa": Steps(0.1, 0.3, 0.9), "moml-v1": Steps(0.001, 0.3),
            "moml-v2": Steps(0.001, 0.5), "localmoml": Steps(0.001, 0.7),
        },
    ),
}  # fmt: skip

Look = Callable[[Any], Any]
LOOKS: dict[str, Look] = {  # of Omniglot's pixels, ink 1 and paper 0
    "": lambda x: x,
    "paper": lambda x: 1 - x,  # as the publisher's files have it: paper 1, ink 0
    "bytes": lambda x: 255 * x,  # not scaled to 0 .. 1
    "centred": lambda x: 2 * x - 1,
}


class Problem(NamedTuple):
    """What a half of the table is trained on and tested by."""

    net: Model
    loss: Loss
    right: Loss  # how many answers are right, in percent
    train: Tasks
    test: Tasks


def look_of(images: str) -> tuple[int, Look]:
    """Side and look, from words like 28, 28-paper, 105-bytes."""
    found = re.fullmatch(r"(\d{1,3})(?:-(\w+))?", images)
    look = None if found is None else LOOKS.get(found[2] or "")
    if found is None or look is None or not 1 <= int(found[1]) <= 105:
        looks = ", ".join(filter(None, LOOKS))
        raise ConfigError(f"images: a side from 1 to 105, or side-look ({looks}); given {images!r}")
    return int(found[1]), look


def images_of(dataset: str, side: int, folder: Path | None = None) -> np.ndarray:
    """All classes of a data set as bytes, [classes, each, side, side, channels]; ink is 255."""
    return np.concatenate(pools(dataset, side, folder))


def classes_of(pool: np.ndarray, setting: Setting, split: int = SPLIT) -> tuple[np.ndarray, ...]:
    """Classes to train on, to test on, and the others: no class is in two of the three."""
    train, test = setting.ways * setting.train, setting.ways * setting.test
    sizes = (train, test, max(0, len(pool) - train - test))
    return parted(pool, jax.random.key(split), sizes)


def tables_of(setting: Setting, split: int = SPLIT) -> tuple[Any, Any]:
    """The classes of every training and every test task, in the numbers of their own part."""
    keys = jax.random.split(jax.random.key(split + 1))
    sizes = (setting.train, setting.test)
    ways = setting.ways
    train, test = (disjoint(key, ways * n, ways, n) for key, n in zip(keys, sizes, strict=True))
    return train, test


def problem_of(
    pool: np.ndarray,
    setting: Setting,
    look: Look = LOOKS[""],
    fold: int | None = None,
    split: int = SPLIT,
) -> Problem:
    """The tasks of the table; with a `fold`, those that settings are chosen on.

    Then the test classes are not touched. Where classes are left over, every fold is 10 tasks of
    these; else a fold holds out as many training tasks as there are test tasks, and training has
    the others.
    """
    ours, unseen, spare = classes_of(pool, setting, split)
    train, test = tables_of(setting, split)
    if fold is not None:
        n = setting.test
        if len(spare) >= setting.ways * n:
            table = disjoint(jax.random.key(split + 2 + fold), len(spare), setting.ways, n)
            unseen, test = spare, table
        else:
            held = (np.arange(n) + n * fold) % setting.train
            unseen, test = ours, train[held]
            train = jnp.asarray(np.delete(np.asarray(train), held, axis=0))
    *_, high, wide, channels = pool.shape
    net = mlp(high * wide * channels, 40, 40, setting.ways)
    tasks = (episodes(ours, setting.ways, train), episodes(unseen, setting.ways, test))
    seen = [each._replace(fetch=_looking(each, look)) for each in tasks]
    return Problem(net, cross_entropy(net.predict), accuracy(net.predict), *seen)


def _looking(tasks: Tasks, look: Look) -> Any:
    def fetch(ids: Any, rows: Any) -> Any:
        batch = tasks.fetch(ids, rows)
        return batch._replace(x=look(batch.x))

    return fetch
