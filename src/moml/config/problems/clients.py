"""The problem `clients`: owners of images of a public data set."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from moml.config.models import MODELS, network
from moml.config.problems.problem import TRAINING, Built, Held, Problem, classifier, one_of
from moml.data import Images, by_group, dirichlet, load, pathological
from moml.data.split.paired import Paired, paired_halves, paired_shares
from moml.errors import ConfigError, check_count
from moml.models import Model, mlp, shifted
from moml.tasks import from_rows

if TYPE_CHECKING:
    from moml.config.config import Config

GREY, COLOUR = (28, 28, 1), (32, 32, 3)
SHAPES = {"mnist": GREY, "fmnist": GREY, "cifar10": COLOUR, "cifar100": COLOUR}
CLASSES = dict.fromkeys(SHAPES, (10, 10)) | {"cifar100": (20, 100)}  # and if fine
PARTITIONS = ("half-and-half", "dirichlet", "pathological")
OF_PARTITION = {
    "test_a": "half-and-half",
    "concentration": "dirichlet",
    "smallest": "dirichlet",
    "classes": "pathological",
}


@dataclass(frozen=True)
class Clients(Problem):
    """Clients that own images of a public data set, each of classes of its own."""

    dataset: str = "cifar10"
    """mnist, fmnist, cifar10 or cifar100."""
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
    model: str = "mlp"
    """mlp, cnn, resnet18 (group norm), conv4 (each image normalised by itself), or the name of a
    registered model."""
    hidden: tuple[int, ...] = (40, 40)
    """mlp: widths of the hidden layers; from 1 each, none for logistic regression."""

    all_scored = True
    by_client = True

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
        MODELS.find(self.model)
        if self.model != "mlp" and self.hidden != Clients.hidden:
            raise ConfigError(f"problem.hidden is for mlp; the model is {self.model}")

    def network(self) -> Model:
        """The clients' network; to have its parameters, no image is needed."""
        shape, outputs = SHAPES[self.dataset], CLASSES[self.dataset][self.fine]
        if self.model == "mlp":
            return mlp(math.prod(shape), *self.hidden, outputs)
        return network(self.model, shape, outputs)

    def build(self, config: "Config", held: Held = lambda task: True) -> Built:
        """What is trained."""
        train, test = images_of(self)
        split = split_of(self, train.y, test.y)
        sizes = [len(mine) for mine in split.test + split.unseen]
        if config.shots >= min(sizes):
            raise ConfigError(
                f"shots must leave some of every client's test images to score on; the smallest "
                f"has {min(sizes)}; got {config.shots}"
            )
        some = lambda part, rows: from_rows(part.x, np.asarray(part.y, np.int32), rows)
        tested = some(test, split.test)
        some_pixels = 2**24 if self.model == "mlp" else 2**18  # convolutions need many times more
        return classifier(
            shifted(self.network(), *shift_of(train, split)),
            some(train, split.train),
            tested,
            own=tested,
            strangers=some(test, split.unseen) if split.unseen else None,
            at_once=max(1, some_pixels // (max(sizes) * math.prod(SHAPES[self.dataset]))),
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
