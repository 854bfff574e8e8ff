"""One-shot classification: the paper's settings, the images, the tasks and their two tests."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from moml.algorithms.parts.task_map import in_batches
from moml.data import pools
from moml.errors import ConfigError
from moml.models import Model, accuracy, cross_entropy, mlp
from moml.paper.protocols import Steps
from moml.tasks import episodes
from moml.tasks.episodes import disjoint, parted
from moml.types import Adapt, Batch, Hyper, Key, Loss, Meta, Params, Samples, Tasks

SPLIT = 7  # seed of the classes' split and of the tasks: all rows and seeds of a table share them


class Setting(NamedTuple):
    """A half of the table."""

    ways: int
    train: int  # tasks
    test: int
    test_steps: int  # of 0.05
    iterations: int
    images: str  # how they are given, see `images_of`
    named: dict[str, Steps]  # the step sizes of the released code


SETTINGS = {
    "omniglot": Setting(
        ways=20, train=25, test=10, test_steps=20, iterations=500, images="28",
        named={
            "maml": Steps(0.001), "reptile": Steps(0.001), "protonet": Steps(0.1),
            "nasa": Steps(0.05, 0.5, 0.9), "moml-v1": Steps(0.001, 0.3),
            "moml-v2": Steps(0.001, 0.5), "localmoml": Steps(0.001, 0.3),
        },
    ),
    "cifar100": Setting(
        ways=5, train=17, test=3, test_steps=1, iterations=2000, images="32",
        named={
            "maml": Steps(0.001), "reptile": Steps(0.01), "protonet": Steps(0.05),
            "nasa": Steps(0.1, 0.3, 0.9), "moml-v1": Steps(0.001, 0.3),
            "moml-v2": Steps(0.001, 0.5), "localmoml": Steps(0.001, 0.7),
        },
    ),
}  # fmt: skip

Look = Callable[[Array], Array]
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
        allowed = f"a side from 1 to 105, or side-look ({looks})"
        raise ConfigError(f"images must be {allowed}; got {images!r}")
    return int(found[1]), look


def images_of(dataset: str, side: int, folder: Path | None = None) -> np.ndarray:
    """All classes of a data set as bytes, [classes, each, side, side, channels]; ink is 255."""
    return np.concatenate(pools(dataset, side, folder))


def problem_of(
    pool: np.ndarray, setting: Setting, look: Look = LOOKS[""], fold: int | None = None,
    split: int = SPLIT,
) -> Problem:  # fmt: skip
    """The tasks of the table; with a `fold`, those that settings are chosen on.

    No class is in two tasks. With a fold the test classes are not touched. Where classes are left
    over, every fold is 10 tasks of these; else a fold holds out as many training tasks as there are
    test tasks, and the others are trained on.
    """
    ways, n = setting.ways, setting.test
    sizes = (ways * setting.train, ways * n)
    rest = max(0, len(pool) - sum(sizes))
    ours, unseen, spare = parted(pool, jax.random.key(split), (*sizes, rest))
    keys = jax.random.split(jax.random.key(split + 1))
    train, test = (  # the classes of every task, as numbers within their own part
        disjoint(key, size, ways, size // ways) for key, size in zip(keys, sizes, strict=True)
    )
    if fold is not None:
        if len(spare) >= ways * n:
            unseen, test = spare, disjoint(jax.random.key(split + 2 + fold), len(spare), ways, n)
        else:
            held = (np.arange(n) + n * fold) % setting.train
            unseen, test = ours, train[held]
            train = jnp.asarray(np.delete(np.asarray(train), held, axis=0))
    *_, high, wide, channels = pool.shape
    net = mlp(high * wide * channels, 40, 40, ways)
    tasks = (episodes(ours, ways, train), episodes(unseen, ways, test))
    seen = [replace(each, fetch_from=_looking(each, look)) for each in tasks]
    return Problem(net, cross_entropy(net.predict), accuracy(net.predict), *seen)


def _looking(tasks: Tasks, look: Look) -> Callable[[Array, Array, Samples], Samples]:
    def fetch(pixels: Array, ids: Int[Array, " tasks"], rows: Samples) -> Samples:
        batch = tasks.fetch_from(pixels, ids, rows)
        return batch._replace(x=look(batch.x))

    return fetch


EPISODES, TEST = 100, 31  # of a test task; seed of what they draw
Episode = tuple[Batch, Batch]
Id = Int[Array, ""]


def episode(tasks: Tasks, key: Key, task: Id) -> Episode:
    """One image a class to adapt on, another to classify."""
    drawn = tasks.draw(key, task[None], 2)
    part = lambda cut: jax.tree.map(
        lambda x: x[0], tasks.fetch(task[None], jax.tree.map(lambda x: x[:, cut], drawn))
    )
    return part(slice(1)), part(slice(1, None))


def _keys(task: Id, count: int) -> Key:
    return jax.random.split(jax.random.fold_in(jax.random.key(TEST), task), count)


def accuracies(
    problem: Problem, adapt: Adapt, *, keeps_learning: bool = False, count: int = EPISODES
) -> Callable[[Meta, Hyper], Float[Array, "tasks episodes"]]:
    """The accuracy of every episode of every test task, in percent.

    Strict: each episode starts from the meta-model. With `keeps_learning` each starts from where
    the one before ended, as in the released test; the meta-model is then plain parameters.
    """
    tasks, right = problem.test, problem.right

    def answer(meta: Meta, key: Key, task: Id, hyper: Hyper) -> tuple[Params, Float[Array, ""]]:
        support, query = episode(tasks, key, task)
        mine = adapt.merge(meta, adapt.apply(meta, support, hyper))
        return mine, right(mine, query)

    def of_task(meta: Meta, task: Id, hyper: Hyper) -> Float[Array, " episodes"]:
        keys = _keys(task, count)
        if keeps_learning:
            return jax.lax.scan(lambda now, key: answer(now, key, task, hyper), meta, keys)[1]
        alone = lambda key: answer(meta, key, task, hyper)[1]
        return in_batches(alone, keys, 10)

    def each(meta: Meta, hyper: Hyper) -> Float[Array, "tasks episodes"]:
        ids = jnp.arange(tasks.n or 0, dtype=jnp.int32)
        return jax.vmap(of_task, (None, 0, None))(meta, ids, hyper)

    return each


def nearest_image(problem: Problem) -> Callable[[], Float[Array, ""]]:
    """A control that learns nothing: every query gets the class of the nearest support image.

    Squared distance of the pixels, the strict test's episodes.
    """
    tasks = problem.test

    def one(key: Key, task: Id) -> Float[Array, ""]:
        support, query = episode(tasks, key, task)
        s, q = (batch.x.reshape(len(batch.x), -1) for batch in (support, query))
        near = jnp.argmin(jnp.sum(s**2, 1)[None] - 2 * q @ s.T, axis=1)
        right = support.y[near] == query.y
        return 100 * jnp.mean(right.astype(q.dtype))

    def whole() -> Float[Array, ""]:
        of_task = lambda i: jnp.mean(jax.lax.map(lambda key: one(key, i), _keys(i, EPISODES)))
        return jnp.mean(jax.vmap(of_task)(jnp.arange(tasks.n or 0, dtype=jnp.int32)))

    return jax.jit(whole)
