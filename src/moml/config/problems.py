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


@dataclass(frozen=True)
class Clients:
    """Clients that own images of a public data set, each of classes of its own."""

    dataset: str = "cifar10"
    """mnist, cifar10 or cifar100."""
    fine: bool = False
    """cifar100: its 100 classes instead of its 20 superclasses: true or false; as an option, a
    flag without a value."""
    n: int = 50
    """Clients that take part; from 1, for half-and-half from 2."""
    unseen: int = 10
    """Further clients of the same kind that never take part and are only scored; from 0."""
    partition: str = "half-and-half"
    """Who owns what: half-and-half (the paper's: half of the clients have the first half of the
    classes, the others two classes each), dirichlet (random mixtures) or pathological (few classes
    each). A client's test images are of the publisher's test part, and of its own classes."""
    a: int | None = None
    """half-and-half: training images of each class of a client of the first half; from 2. By
    default the most that there are."""
    test_a: int | None = None
    """half-and-half: the same of the test images; from 2. By default the most that there are."""
    concentration: float = 0.3
    """dirichlet: the smaller, the more unlike the clients; above 0, up to 1e9."""
    smallest: int = 50
    """dirichlet: training images of the smallest client, drawn anew until all have as many; from 1.
    """
    classes: int = 2
    """pathological: classes of a client; from 1 to those of the data set."""
    hidden: tuple[int, ...] = (40, 40)
    """Widths of the hidden layers; from 1 each, none for logistic regression."""

    @property
    def least(self) -> int | None:
        """Test images of the smallest client: known when the data is read."""
        return None

    def check(self) -> None:
        """Refuse what cannot be, beyond types and counts."""
        one_of("problem.dataset", self.dataset, CLASSES)
        one_of("problem.partition", self.partition, PARTITIONS)
        if self.fine and self.dataset != "cifar100":
            raise ConfigError(f"problem.fine is for cifar100: {self.dataset} has no superclasses")
        if not 0 < self.concentration <= 1e9:
            raise ConfigError(
                f"problem.concentration must be above 0, up to 1e9; got {self.concentration:g}"
            )
        check_count("problem.classes", self.classes, below=CLASSES[self.dataset][self.fine] + 1)
        for name in ("a", "test_a"):
            if getattr(self, name) is not None:
                check_count(f"problem.{name}", getattr(self, name), least=2)
        for name, kind in OF_PARTITION.items():
            if self.partition != kind and getattr(self, name) != getattr(Clients, name):
                raise ConfigError(
                    f"problem.{name} is for {kind}; the partition is {self.partition}"
                )
        if self.partition == "half-and-half":
            check_count("problem.n", self.n, least=2)


@dataclass(frozen=True)
class Table:
    """Tasks that own rows of a table of numbers."""

    path: str = "table.csv"
    """Parquet, CSV or Arrow, a file or a folder of them. A node of Flower may have its own."""
    n: int = 10
    """Tasks of all rows, of all nodes together; from 1."""
    task: str = "task"
    """Column with a row's task: a whole number, from 0 to n - 1."""
    features: str = "x"
    """Columns that are the input, with commas between: numbers of about the size of 1."""
    target: str = "y"
    """Column that is learned."""
    classes: int | None = None
    """Labels in the target, which are numbered from 0; from 2. By default it is a number."""
    tested: int | None = None
    """Rows of each task that are only scored on, its last; from 1. By default a fifth of them."""
    hidden: tuple[int, ...] = (40, 40)
    """Widths of the hidden layers; from 1 each, none for a linear model."""

    @property
    def least(self) -> int | None:
        """Rows of the smallest task: known when the data is read."""
        return None

    @property
    def inputs(self) -> list[str]:
        """The columns of the input."""
        return [name.strip() for name in self.features.split(",")]

    def check(self) -> None:
        """Refuse what cannot be, beyond types and counts."""
        for name in ("path", "task", "features", "target"):
            text = getattr(self, name)
            if not text.strip() or not text.isprintable():
                raise ConfigError(f"problem.{name} must be a name in one line; got {text!r}")
        names = [*self.inputs, self.task, self.target]
        if "" in names or len(set(names)) < len(names):
            raise ConfigError(
                "problem.features must be different columns, neither task nor target; "
                f"got {self.features!r}"
            )
        if self.classes is not None:
            check_count("problem.classes", self.classes, least=2)


IMAGES = {"omniglot": 20, "cifar100": 600}  # of each class
CLASSES = {"mnist": (10, 10), "cifar10": (10, 10), "cifar100": (20, 100)}  # and if fine
PARTITIONS = ("half-and-half", "dirichlet", "pathological")
OF_PARTITION = {
    "test_a": "half-and-half",
    "concentration": "dirichlet",
    "smallest": "dirichlet",
    "classes": "pathological",
}
Problem = Sine | Synthetic | Episodes | Clients | Table
PROBLEMS: dict[str, type[Problem]] = {
    "sine": Sine,
    "synthetic": Synthetic,
    "episodes": Episodes,
    "clients": Clients,
    "table": Table,
}


def not_negative(name: str, value: float) -> None:
    """Refuse a number below 0."""
    if value < 0:
        raise ConfigError(f"{name} must be a number from 0; got {value:g}")


def one_of(name: str, value: str, allowed: Iterable[str]) -> None:
    """Refuse a word that is none of these."""
    if value not in allowed:
        raise ConfigError(f"{name} must be one of {', '.join(allowed)}; got {value!r}")
