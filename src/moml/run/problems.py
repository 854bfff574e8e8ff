"""What can be learned: a frozen dataclass each. The words under a field are its help."""

from collections.abc import Iterable
from dataclasses import dataclass

from moml.errors import ConfigError, check_count
from moml.models.conv4 import NORMS


@dataclass(frozen=True)
class Sine:
    """Waves A sin(phi + x), learned by a network from x to y."""

    n: int = 25
    """Training tasks: 25 is the paper's grid, any other number is drawn from its ranges; from 1."""
    noise: float = 0.0
    """Standard deviation of the noise on y; from 0."""
    hidden: tuple[int, ...] = (40, 40)
    """Widths of the hidden layers; from 1 each, none for a linear model."""

    @property
    def least(self) -> int | None:
        """Samples of the smallest task; None where there is no end of them."""
        return None

    def check(self) -> None:
        """Refuse what cannot be, beyond types and counts."""
        not_negative("problem.noise", self.noise)


@dataclass(frozen=True)
class Synthetic:
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
    """Whether the training tasks have unequal sizes, log-normal from 10 up to samples."""
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


@dataclass(frozen=True)
class Episodes:
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


IMAGES = {"omniglot": 20, "cifar100": 600}  # of each class
Problem = Sine | Synthetic | Episodes
PROBLEMS: dict[str, type[Problem]] = {
    "sine": Sine,
    "synthetic": Synthetic,
    "episodes": Episodes,
}


def not_negative(name: str, value: float) -> None:
    """Refuse a number below 0."""
    if value < 0:
        raise ConfigError(f"{name} must be a number from 0; given {value:g}")


def one_of(name: str, value: str, allowed: Iterable[str]) -> None:
    """Refuse a word that is none of these."""
    if value not in allowed:
        raise ConfigError(f"{name} must be one of {', '.join(allowed)}; given {value!r}")
