"""From the words of a configuration to what is trained: loss, network, tasks, and unseen ones."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, assert_never

import jax
import numpy as np
from jaxtyping import Array

from moml.config.config import Config
from moml.config.problems import CLASSES, Clients, Episodes, Sine, Synthetic, Table
from moml.config.table_tasks import Held, table_tasks
from moml.data import Images, by_group, dirichlet, load, pathological, pools
from moml.data.split.paired import Paired, paired_halves, paired_shares
from moml.errors import ConfigError
from moml.models import (
    Model,
    accuracy,
    accuracy_alone,
    conv4,
    cross_entropy,
    mlp,
    mse,
    shifted,
)
from moml.tasks import episodes, from_rows, sine, synthetic, unseen_sine
from moml.tasks.episodes import overlapping, parted, rotated
from moml.types import Key, Loss, Params, Samples, Tasks

TRAINING, UNSEEN = 7, 1000  # seeds of the tasks themselves: all runs of a configuration share them
USUAL = {"omniglot": (1200, 423), "cifar100": (80, 20)}  # classes to train on, to test on
SIDE = {"omniglot": 28, "cifar100": 32}  # of the images
PIXELS = {"mnist": 28 * 28, "cifar10": 32 * 32 * 3, "cifar100": 32 * 32 * 3}


class Own(NamedTuple):
    """What the training tasks themselves are scored by, on samples that they do not train on."""

    tasks: Tasks
    # accuracy where there are classes, else the error
    score: Callable[[Params, Samples, Samples], Array]
    queries: int | None


class Built(NamedTuple):
    """A problem, ready to be trained on."""

    loss: Loss
    init: Callable[[Key], Params]
    features: Callable[..., Array] | None  # what the network's head is given
    tasks: Tasks
    unseen: Tasks  # what a score is the mean of
    metric: str  # what the scores on unseen tasks are
    score: Callable[[Params, Samples, Samples], Array]  # personal parameters, support, query
    queries: int | None  # samples, or samples a class, that a score asks about; None: all others
    higher: bool = False  # whether a higher score is better
    at_once: int = 256  # tasks scored side by side
    strangers: Tasks | None = None  # of clients: those that never take part
    own: Callable[[], Own] | None = None  # of tasks that a federated run can have


def build(config: Config, held: Held = lambda task: True) -> Built:
    """The problem of a configuration; of a table, with the rows of the tasks `held` here."""
    p, unseen = config.problem, jax.random.key(UNSEEN)
    match p:
        case Sine():
            net = mlp(1, *p.hidden, 1)
            drawn = lambda: unseen_sine(jax.random.key(TRAINING), p.n, noise=p.noise)
            tasks = sine(noise=p.noise) if p.n == 25 else drawn()
            test = unseen_sine(unseen, config.test_tasks, noise=p.noise)
            built = _by_loss(net, mse(net.predict), tasks, test, "test_error", 100)
            return built._replace(own=lambda: Own(tasks, built.score, 100))
        case Synthetic():
            net = mlp(p.features, *p.hidden, p.classes)
            like = partial(
                synthetic, samples=p.samples, a=p.a, b=p.b, features=p.features, classes=p.classes
            )
            tasks = like(jax.random.key(TRAINING), p.n, unequal=p.unequal)
            test = like(unseen, config.test_tasks)
            queries = p.samples - config.shots
            built = _by_loss(net, cross_entropy(net.predict), tasks, test, "test_loss", queries)
            right = accuracy(net.predict)
            on_query = lambda mine, support, query: right(mine, query)
            others = lambda: like(jax.random.key(TRAINING), p.n, fresh=True)
            own = lambda: Own(others(), on_query, queries)
            return built._replace(own=own)
        case Episodes():
            return _episodes(p, config.test_tasks, unseen)
        case Clients():
            return _clients(p, config.shots)
        case Table():
            return _table(p, held)
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
                f"{len(train)}; got {p.validation}"
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


def images_of(p: Clients) -> tuple[Images, Images]:
    """The publisher's training and test images, CIFAR-100's by superclass unless fine."""
    parts = load(p.dataset, "train"), load(p.dataset, "test")
    grouped = p.dataset == "cifar100" and not p.fine
    return (by_group(parts[0]), by_group(parts[1])) if grouped else parts


def split_of(p: Clients, train: np.ndarray, test: np.ndarray) -> Paired:
    """Who owns which images, from their labels."""
    if p.partition == "half-and-half":
        return paired_halves(train, test, p.n, p.unseen, TRAINING, a=p.a, test_a=p.test_a)
    everybody = p.n + p.unseen
    if p.partition == "dirichlet":
        rows = dirichlet(train, everybody, p.concentration, TRAINING, p.smallest)
    else:
        rows = pathological(train, everybody, p.classes, TRAINING)
    return paired_shares(train, test, rows, p.unseen, TRAINING)


def shift_of(train: Images, split: Paired) -> tuple[float, float]:
    """Mean and standard deviation of the clients' pixels: numbers that they agree on once."""
    own = train.x[np.concatenate(split.train)] / np.float32(255)
    return float(own.mean()), float(own.std())


def client_net(p: Clients) -> Model:
    """The clients' network; to have its parameters, no image is needed."""
    return mlp(PIXELS[p.dataset], *p.hidden, CLASSES[p.dataset][p.fine])


def table_net(p: Table) -> Model:
    """The network of a table's tasks."""
    return mlp(len(p.inputs), *p.hidden, p.classes or 1)


def _table(p: Table, held: Held) -> Built:
    net, (train, test) = table_net(p), table_tasks(p, held)
    loss = (cross_entropy if p.classes else mse)(net.predict)
    value = accuracy(net.predict) if p.classes else loss
    on_query = lambda mine, support, query: value(mine, query)
    metric, higher = ("test_accuracy", True) if p.classes else ("test_error", False)
    built = Built(
        loss, net.init, net.features, train, test, metric, on_query, queries=None, higher=higher
    )
    return built._replace(own=lambda: Own(test, on_query, None))


def _clients(p: Clients, shots: int) -> Built:
    train, test = images_of(p)
    split = split_of(p, train.y, test.y)
    sizes = [len(mine) for mine in split.test + split.unseen]
    if shots >= min(sizes):
        raise ConfigError(
            f"shots must leave some of every client's test images to score on; the smallest has "
            f"{min(sizes)}; got {shots}"
        )
    pixels = PIXELS[p.dataset]
    net = shifted(client_net(p), *shift_of(train, split))
    right = accuracy(net.predict)
    on_query = lambda mine, support, query: right(mine, query)
    some = lambda part, rows: from_rows(part.x, np.asarray(part.y, np.int32), rows)
    tested = some(test, split.test)
    return Built(
        cross_entropy(net.predict),
        net.init,
        net.features,
        some(train, split.train),
        tested,
        "test_accuracy",
        on_query,
        queries=None,
        higher=True,
        at_once=max(1, 2**24 // (max(sizes) * pixels)),
        strangers=some(test, split.unseen) if split.unseen else None,
        own=lambda: Own(tested, on_query, None),
    )
