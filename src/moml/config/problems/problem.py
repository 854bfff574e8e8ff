"""What a problem is: a frozen dataclass of options that builds what is trained."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from jaxtyping import Array

from moml.errors import ConfigError
from moml.models import Model, accuracy, cross_entropy, mse
from moml.training.evaluate import on_query
from moml.types import Key, Loss, Params, Samples, Tasks

if TYPE_CHECKING:
    from moml.config.config import Config

TRAINING, UNSEEN, HELD_OUT = 7, 1000, 2000  # seeds of the tasks themselves: all runs share them
VALIDATION = 200  # tasks to choose beta on
Held = Callable[[int], bool]  # whether the rows of a task are here
Score = Callable[[Params, Samples, Samples], Array]  # personal parameters, support, query


class Own(NamedTuple):
    """What the training tasks themselves are scored by, on samples that they do not train on."""

    tasks: Tasks
    score: Score  # accuracy where there are classes, else the error
    queries: int | None


class Built(NamedTuple):
    """A problem, ready to be trained on; `classifier` and `regressor` make one of a network."""

    loss: Loss
    init: Callable[[Key], Params]
    features: Callable[..., Array] | None  # what the network's head is given
    tasks: Tasks
    unseen: Tasks  # what a score is the mean of
    metric: str  # what the scores on unseen tasks are
    score: Score
    queries: int | None  # samples, or samples a class, that a score asks about; None: all others
    higher: bool = False  # whether a higher score is better
    at_once: int = 256  # tasks scored side by side
    strangers: Tasks | None = None  # of clients: those that never take part
    own: Callable[[], Own] | None = None  # of tasks that a federated run can have
    validation: Callable[[], Tasks] | None = None  # neither trained on nor scored: beta is chosen


class Problem:
    """Base of all problems: a frozen dataclass whose fields are options, with help below them.

    A field is an int, float, bool, str, tuple of ints, or one of them or None, and has a default.
    A whole number is from 1, or from its default where that is less; `check` may ask for more.
    `build` is all that must be there; the rest says more about the problem where it differs.
    """

    sized = True
    """Whether every task has a known number of samples, which weights need."""
    all_scored = False
    """Whether the unseen tasks are all there are: `test_tasks` chooses none of them."""
    by_client = False
    """Whether the unseen tasks are the training tasks with test samples of theirs, in their order:
    `moml score` has figures of each."""
    federated = True
    """Whether the tasks can be clients: `own` is built."""
    parted = False
    """Under Flower, whether a node has the data of its own tasks alone."""

    @property
    def classifies(self) -> bool:
        """Whether it classifies, and scores are accuracies; else scores are errors."""
        return True

    @property
    def n(self) -> int | None:
        """Training tasks; None where fresh ones are drawn at every step."""
        return None

    @property
    def least(self) -> int | None:
        """Samples of the smallest task to score on; None where that is not known, or endless."""
        return None

    def check(self) -> None:
        """Refuse what cannot be, beyond types and counts."""

    def build(self, config: "Config", held: Held = lambda task: True) -> Built:
        """What is trained; where it is `parted`, with the data of the tasks that are `held`."""
        raise NotImplementedError(f"{type(self).__name__} must have a method build(config, held)")

    def network(self) -> Model | None:
        """The network where it can be had without any data; Flower's server asks for it."""
        return None

    def at_node(self, data: str | None) -> "Problem":
        """The problem as a node of Flower has it, whose own `data` is a file or a folder."""
        return self


def classifier(
    net: Model,
    tasks: Tasks,
    unseen: Tasks,
    queries: int | None = None,
    own: Tasks | None = None,
    **more: Any,
) -> Built:
    """A network that tells classes apart: trained by cross-entropy, scored by accuracy in percent.

    Parameters
    ----------
    net
        Its outputs are logits.
    tasks, unseen
        What is trained on, and what is scored on.
    queries
        Samples of a task that a score asks about; None: all but those that it adapts to.
    own
        The training tasks with samples that they are not trained on, where the tasks are clients.
    **more
        Further fields of `Built`.

    Returns
    -------
    What `Problem.build` returns.
    """
    built = Built(
        cross_entropy(trained(net)), net.init, net.features, tasks, unseen, "test_accuracy",
        on_query(accuracy(net.predict)), queries, higher=True,
    )  # fmt: skip
    return _with_own(built, own, more)


def regressor(
    net: Model,
    tasks: Tasks,
    unseen: Tasks,
    queries: int | None = None,
    own: Tasks | None = None,
    **more: Any,
) -> Built:
    """A network that predicts numbers: trained and scored by the mean squared error.

    Parameters
    ----------
    net
        Its outputs are the predictions.
    tasks, unseen, queries, own, **more
        As of `classifier`.

    Returns
    -------
    What `Problem.build` returns.
    """
    loss, score = mse(trained(net)), on_query(mse(net.predict))
    built = Built(loss, net.init, net.features, tasks, unseen, "test_error", score, queries)
    return _with_own(built, own, more)


def trained(net: Model) -> Any:
    """What the loss of a network is made of: its `training` where it has dropout or statistics."""
    return net.predict if net.training is None else net.training


def _with_own(built: Built, own: Tasks | None, more: dict[str, Any]) -> Built:
    scored = None if own is None else lambda: Own(own, built.score, built.queries)
    return built._replace(**{"own": scored} | more)


def not_negative(name: str, value: float) -> None:
    """Refuse a number below 0."""
    if value < 0:
        raise ConfigError(f"{name} must be a number from 0; got {value:g}")


def one_of(name: str, value: str, allowed: Iterable[str]) -> None:
    """Refuse a word that is none of these."""
    if value not in allowed:
        raise ConfigError(f"{name} must be one of {', '.join(allowed)}; got {value!r}")
