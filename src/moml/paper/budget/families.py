"""What is trained at equal samples: tasks to train on, to choose by and to test on."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from moml.config.problems.episodes import Episodes, classes_of
from moml.errors import ConfigError
from moml.models import accuracy, conv4, cross_entropy
from moml.paper.federated.cells import PROTOCOLS
from moml.paper.federated.data import images_of, problem_of
from moml.paper.sine.score import LOSS, NET
from moml.paper.theory import logistic as theory
from moml.tasks import episodes, from_arrays, from_rows, sine, unseen_sine
from moml.tasks.episodes import overlapping
from moml.training.evaluate import Score, on_query
from moml.types import Key, Loss, Params, Tasks

TRAINING, TUNING, TESTING = 7, 4242, 6174  # seeds of tasks
LETTERS = Episodes(ways=5, filters=16, validation=100)


class Family(NamedTuple):
    """A family of tasks, with its network."""

    name: str
    init: Callable[[Key], Params]
    loss: Loss
    score: Score  # of personal parameters
    train: Tasks
    tuning: Tasks  # eta is chosen on these, and auto's beta
    test: Tasks
    queries: int | None  # that a score asks about; None: all others
    alpha: float
    etas: tuple[float, ...]
    budget: int  # K T
    higher: bool = False  # whether a higher score is better
    at_once: int = 256  # tasks scored side by side

    @property
    def metric(self) -> str:
        """What the scores are."""
        return "test_accuracy" if self.higher else "test_error"


def _sine(n: int) -> Family:
    train = sine() if n == 25 else unseen_sine(jax.random.key(TRAINING), n)
    tuning, test = (unseen_sine(jax.random.key(seed), 300) for seed in (TUNING, TESTING))
    etas = (0.001, 0.002, 0.005, 0.01)
    return Family(
        f"sine-{n}", NET.init, LOSS, on_query(LOSS), train, tuning, test, 100, 0.01, etas, 40_000
    )


def _logistic() -> Family:
    """The tasks of `moml reproduce theory`; those of a test are drawn without replacement."""

    def others(seed: int) -> Tasks:
        parts = [theory.logistic(jax.random.key(seed + i)).data for i in range(10)]
        return from_arrays(*jax.tree.map(lambda *each: jnp.concatenate(each), *parts))

    train = theory.logistic(jax.random.key(TRAINING))
    init = lambda key: 0.1 * jax.random.normal(key, (theory.D,))
    etas = (0.002, 0.005, 0.01, 0.02)
    return Family(
        "logistic", init, theory.LOSS, on_query(theory.LOSS), train, others(TUNING),
        others(TESTING), 50, 1.0, etas, 40_000,
    )  # fmt: skip


def _clients(folder: Path | None) -> Family:
    """The paper's 50 clients of CIFAR-10; tuned on training images of theirs that are not used."""
    switches = PROTOCOLS["strict"]
    problem = problem_of(*images_of("cifar10", folder), "cifar10", switches)
    pools, right = (problem.unseen, problem.test), accuracy(problem.net.predict)
    tuning, test = (from_rows(pool.x, pool.y, pool.rows) for pool in pools if pool is not None)
    score = lambda mine, support, query: right(mine, query)
    etas = (0.0005, 0.001, 0.002)
    return Family(
        "cifar10-clients", problem.net.init, problem.loss, score, problem.train, tuning, test, None,
        0.03, etas, 48_000, higher=True, at_once=50,
    )  # fmt: skip


def _letters(folder: Path | None) -> Family:
    """100 fixed tasks of five Omniglot classes; Conv4. Test classes are never trained on."""
    if folder is not None:
        raise ConfigError("omniglot is read from MOML_DATA; data_dir must be left out")
    train, tuning = classes_of(LETTERS)
    _, test = classes_of(replace(LETTERS, validation=0))
    net = conv4(1, LETTERS.ways, filters=LETTERS.filters)
    right = accuracy(net.predict)
    fixed = lambda pool, seed, n: episodes(
        pool, LETTERS.ways, overlapping(jax.random.key(seed), len(pool), LETTERS.ways, n)
    )
    tasks = fixed(train, TRAINING, 100), fixed(tuning, TUNING, 200), fixed(test, TESTING, 400)
    score = lambda mine, support, query: right(mine, query)
    etas = (0.001, 0.002, 0.005)
    return Family(
        "omniglot", net.init, cross_entropy(net.predict), score, *tasks, 5, 0.1, etas, 10_000,
        higher=True, at_once=16,
    )  # fmt: skip


FAMILIES: dict[str, Callable[[Path | None], Family]] = {
    "sine-25": lambda folder: _sine(25),
    "sine-400": lambda folder: _sine(400),
    "logistic": lambda folder: _logistic(),
    "cifar10-clients": _clients,
    "omniglot": _letters,
}


def shots_of(family: Family, shots: tuple[int, ...]) -> list[int]:
    """Those numbers of shots that leave every task enough samples to be scored on."""
    least = min(np.inf if t.least is None else t.least for t in (family.tuning, family.test))
    return [each for each in shots if each + (family.queries or 1) <= least]
