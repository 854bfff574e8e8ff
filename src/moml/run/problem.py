"""From the words of a configuration to what is trained: loss, network, tasks, and unseen ones."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, assert_never

import jax
import numpy as np

from moml.data import pools
from moml.errors import ConfigError
from moml.models import Model, accuracy, accuracy_alone, conv4, cross_entropy, mlp, mse
from moml.run.config import Config
from moml.run.problems import Episodes, Sine, Synthetic
from moml.tasks import episodes, sine, synthetic, unseen_sine
from moml.tasks.episodes import overlapping, parted, rotated
from moml.types import Key, Loss, Params, Tasks

TRAINING, UNSEEN = 7, 1000  # seeds of the tasks themselves: all runs of a configuration share them
USUAL = {"omniglot": (1200, 423), "cifar100": (80, 20)}  # classes to train on, to test on
SIDE = {"omniglot": 28, "cifar100": 32}  # of the images


class Built(NamedTuple):
    """A problem, ready to be trained on."""

    loss: Loss
    init: Callable[[Key], Params]
    features: Any  # what the network's head is given
    tasks: Tasks
    unseen: Tasks
    metric: str  # what the scores on unseen tasks are
    score: Callable[[Params, Any, Any], Any]  # personal parameters, support, query
    queries: int  # samples, or samples a class, that a score asks about
    higher: bool = False  # whether a higher score is better
    at_once: int = 256  # tasks scored side by side


def build(config: Config) -> Built:
    """The problem of a configuration."""
    p, unseen = config.problem, jax.random.key(UNSEEN)
    match p:
        case Sine():
            net = mlp(1, *p.hidden, 1)
            drawn = lambda: unseen_sine(jax.random.key(TRAINING), p.n, noise=p.noise)
            tasks = sine(noise=p.noise) if p.n == 25 else drawn()
            test = unseen_sine(unseen, config.test_tasks, noise=p.noise)
            return _by_loss(net, mse(net.predict), tasks, test, "test_error", 100)
        case Synthetic():
            net = mlp(p.features, *p.hidden, p.classes)
            like = partial(
                synthetic, samples=p.samples, a=p.a, b=p.b, features=p.features, classes=p.classes
            )
            tasks = like(jax.random.key(TRAINING), p.n, unequal=p.unequal)
            test = like(unseen, config.test_tasks)
            queries = p.samples - config.shots
            return _by_loss(net, cross_entropy(net.predict), tasks, test, "test_loss", queries)
        case Episodes():
            return _episodes(p, config.test_tasks, unseen)
        case _:
            assert_never(p)


def _by_loss(net: Model, loss: Loss, tasks: Tasks, test: Tasks, metric: str, queries: int) -> Built:
    score = lambda mine, support, query: loss(mine, query)
    return Built(loss, net.init, net.features, tasks, test, metric, score, queries)


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
                f"{len(train)}; given {p.validation}"
            )
        train, test = parted(train, jax.random.fold_in(key, 1), (left, p.validation))
    return (rotated(train) if p.rotations else train), test


def _episodes(p: Episodes, test_tasks: int, unseen: Key) -> Built:
    train, test = classes_of(p)
    *_, high, wide, channels = train.shape
    if p.model == "conv4":
        net = conv4(channels, p.ways, filters=p.filters, norm=p.norm)
    else:
        net = mlp(high * wide * channels, *p.hidden, p.ways)
    some = lambda key, pool, n: overlapping(key, len(pool), p.ways, n)
    table = None if p.n is None else some(jax.random.key(TRAINING), train, p.n)
    alone = accuracy_alone(net.predict)
    together = accuracy(net.predict)
    return Built(
        cross_entropy(net.predict),
        net.init,
        net.features,
        episodes(train, p.ways, table),
        episodes(test, p.ways, some(unseen, test, test_tasks)),
        "test_accuracy",
        alone if p.alone else lambda mine, support, query: together(mine, query),
        p.queries,
        higher=True,
        at_once=16,
    )
