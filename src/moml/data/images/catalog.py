"""The data sets by name: files, addresses, checksums, numbers of images and readers.

Sizes and SHA-256 are those of the publishers' files as TensorFlow Datasets records them.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from moml.data.images import cifar, mnist, omniglot
from moml.data.images.arrays import Images


class Archive(NamedTuple):
    """A publisher's file: its path under the data folder, and its addresses."""

    file: str
    size: int
    sha256: str
    addresses: tuple[str, ...]


class Set(NamedTuple):
    """A data set; `places` takes the data folder, `files` and `read` one of its places."""

    title: str
    archives: tuple[Archive, ...]
    counts: dict[str, tuple[int, ...]]  # by split: images of each class
    places: Callable[[Path], list[Path]]  # folders and archives that have it
    files: Callable[[Path, str], list[Path]]  # that a split is read from
    read: Callable[[Path, str, bool], Images]


def _archives(folder: str, mirrors: Sequence[str], lines: str) -> tuple[Archive, ...]:
    """One archive a line: its name, size and SHA-256."""
    rows = [line.split() for line in lines.splitlines() if line]
    return tuple(
        Archive(folder + file, int(size), sha256, tuple(mirror + file for mirror in mirrors))
        for file, size, sha256 in rows
    )


MNIST = _archives(
    "mnist/",
    (  # the original page refuses downloads
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
    """
train-images-idx3-ubyte.gz 9912422 440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609
train-labels-idx1-ubyte.gz 28881 3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c
t10k-images-idx3-ubyte.gz 1648877 8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6
t10k-labels-idx1-ubyte.gz 4542 f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6
""",
)
FASHION = _archives(
    "fashion-mnist/",
    (
        "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
        "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
    ),
    """
train-images-idx3-ubyte.gz 26421880 3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84
train-labels-idx1-ubyte.gz 29515 a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845
t10k-images-idx3-ubyte.gz 4422102 346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073
t10k-labels-idx1-ubyte.gz 5148 67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5
""",
)
CIFAR10, CIFAR100 = _archives(
    "",
    ("https://www.cs.toronto.edu/~kriz/",),
    """
cifar-10-binary.tar.gz 170052171 c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd
cifar-100-binary.tar.gz 168513733 58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec
""",
)
OMNIGLOT = _archives(
    "omniglot/",
    (
        "https://github.com/brendenlake/omniglot/raw/master/python/",
        "https://raw.githubusercontent.com/brendenlake/omniglot/master/python/",
    ),
    """
images_background.zip 9464212 ad41ab679c8b5d90b271ef46be6987cc81211774a695c29dcc5367b2b26ee640
images_evaluation.zip 6462886 1f61a8f3366785b057fc117d9228e78a16e3d976c8953b2a10fcc74cf0609cee
""",
)


def _cifar(name: str, title: str, archive: Archive, classes: int) -> Set:
    counts = {"train": (50_000 // classes,) * classes, "test": (10_000 // classes,) * classes}
    places = partial(cifar.places, name)
    title = f"{title}, photographs, 32 x 32 in colour"
    return Set(title, (archive,), counts, places, cifar.files, cifar.read)


SETS = {
    "mnist": Set(
        "MNIST, handwritten digits, 28 x 28 grey",
        MNIST,
        {
            "train": (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
            "test": (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
        },
        mnist.places,
        mnist.files,
        mnist.read,
    ),
    "fmnist": Set(
        "Fashion-MNIST, clothes, 28 x 28 grey",
        FASHION,
        {"train": (6000,) * 10, "test": (1000,) * 10},
        partial(mnist.places, names=mnist.FASHION),
        mnist.files,
        partial(mnist.read, classes=mnist.CLOTHES),
    ),
    "cifar10": _cifar("cifar10", "CIFAR-10", CIFAR10, 10),
    "cifar100": _cifar("cifar100", "CIFAR-100", CIFAR100, 100),
    "omniglot": Set(
        "Omniglot, characters of 50 alphabets, 105 x 105 black and white",
        OMNIGLOT,
        {"background": (20,) * 964, "evaluation": (20,) * 659},
        omniglot.places,
        omniglot.files,
        omniglot.read,
    ),
}
