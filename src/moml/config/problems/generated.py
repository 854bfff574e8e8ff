"""Problems of generated data: `sine` and `synthetic`."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import jax

from moml.config.problems.problem import (
    HELD_OUT,
    TRAINING,
    UNSEEN,
    VALIDATION,
    Built,
    Held,
    Own,
    Problem,
    classifier,
    not_negative,
    regressor,
)
from moml.errors import check_count
from moml.models import Model, cross_entropy, mlp
from moml.tasks import sine, synthetic, unseen_sine
from moml.training.evaluate import on_query

if TYPE_CHECKING:
    from moml.config.config import Config


@dataclass(frozen=True)
class Sine(Problem):
    """Waves A sin(phi + x), learned by a network from x to y."""

    n: int = 25
    """Training tasks: 25 is the paper's grid, any other number is drawn from its ranges; from 1."""
    noise: float = 0.0
    """Standard deviation of the noise on y; from 0."""
    hidden: tuple[int, ...] = (40, 40)
    """Widths of the hidden layers; from 1 each, none for a linear model."""

    classifies = False
    sized = False  # there is no end of samples

    def check(self) -> None:
        """Refuse what cannot be, beyond types and counts."""
        not_negative("problem.noise", self.noise)

    def network(self) -> Model:
        """The network from x to y."""
        return mlp(1, *self.hidden, 1)

    def build(self, config: "Config", held: Held = lambda task: True) -> Built:
        """What is trained."""
        drawn = lambda seed, n: unseen_sine(jax.random.key(seed), n, noise=self.noise)
        tasks = sine(noise=self.noise) if self.n == 25 else drawn(TRAINING, self.n)
        test, others = drawn(UNSEEN, config.test_tasks), lambda: drawn(HELD_OUT, VALIDATION)
        return regressor(self.network(), tasks, test, queries=100, own=tasks, validation=others)


@dataclass(frozen=True)
class Synthetic(Problem):
    """Synthetic(a, b): unlike classification tasks, as usual in federated learning."""

    n: int = 30
    """Training tasks; from 1."""
    samples: int = 100
    """Samples of a task; from 1, and more than shots."""
    a: float = 1.0
    """How much the tasks' true models differ; from 0."""
    b: float = 1.0
    """How much the tasks' inputs differ; from 0."""
    features: int = 60
    """Numbers in an input; from 1."""
    classes: int = 10
    """Labels; from 2."""
    unequal: bool = False
    """Whether the training tasks have unequal sizes, log-normal from 10 up to samples; as an
    option, a flag without a value."""
    hidden: tuple[int, ...] = ()
    """Widths of the hidden layers; from 1 each, none for logistic regression."""

    @property
    def least(self) -> int | None:
        """Samples of the smallest task to score on; those have all their samples."""
        return self.samples

    def check(self) -> None:
        """Refuse what cannot be, beyond types and counts."""
        not_negative("problem.a", self.a)
        not_negative("problem.b", self.b)
        check_count("problem.classes", self.classes, least=2)

    def network(self) -> Model:
        """The network from an input to logits."""
        return mlp(self.features, *self.hidden, self.classes)

    def build(self, config: "Config", held: Held = lambda task: True) -> Built:
        """What is trained."""
        like = partial(
            synthetic, samples=self.samples, a=self.a, b=self.b, features=self.features,
            classes=self.classes,
        )  # fmt: skip
        net, queries = self.network(), self.samples - config.shots
        tasks = like(jax.random.key(TRAINING), self.n, unequal=self.unequal)
        test = like(jax.random.key(UNSEEN), config.test_tasks)
        built = classifier(net, tasks, test, queries)
        others = lambda: like(jax.random.key(TRAINING), self.n, fresh=True)
        loss = cross_entropy(net.predict)
        return built._replace(
            loss=loss,
            metric="test_loss",
            score=on_query(loss),
            higher=False,
            own=lambda: Own(others(), built.score, queries),
            validation=lambda: like(jax.random.key(HELD_OUT), VALIDATION),
        )
