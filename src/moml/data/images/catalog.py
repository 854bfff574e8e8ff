"""The data sets by name: files, addresses, checksums, numbers of images, readers.

Sizes and SHA-256 are those of the publishers' files as TensorFlow Datasets records them.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from moml.data.images import cifar, cifar_files, mnist, omniglot
from moml.data.images.arrays import Images


class Archive(NamedTuple):
    """A publisher's file: its place under the data folder, and where it comes from."""

    file: str
    size: int
    sha256: str
    addresses: tuple[str, ...]


class Set(NamedTuple):
    """A data set; the functions are given the data folder, or one of its places."""

    title: str
    archives: tuple[Archive, ...]
    counts: dict[str, tuple[int, ...]]  # by split: images of each class
    places: Callable[[Path], list[Path]]  # what there is of it under the data folder
    files: Callable[[Path, str], list[Path]]  # what a split is read from
    read: Callable[[Path, str, bool], Images]


def _mnist(file: str, size: int, sha256: str) -> Archive:
    mirrors = (  # the original page refuses downloads
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    )
    return Archive(f"mnist/{file}", size, sha256, tuple(mirror + file for mirror in mirrors))


def _cifar(file: str, size: int, sha256: str) -> Archive:
    return Archive(file, size, sha256, (f"https://www.cs.toronto.edu/~kriz/{file}",))


def _omniglot(file: str, size: int, sha256: str) -> Archive:
    addresses = (
        f"https://github.com/brendenlake/omniglot/raw/master/python/{file}",
        f"https://raw.githubusercontent.com/brendenlake/omniglot/master/python/{file}",
    )
    return Archive(f"omniglot/{file}", size, sha256, addresses)


SETS = {
    "mnist": Set(
        title="MNIST, handwritten digits, 28 x 28 grey",
        archives=(
            _mnist(
                "train-images-idx3-ubyte.gz",
                9_912_422,
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            ),
            _mnist(
                "train-labels-idx1-ubyte.gz",
                28_881,
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            ),
            _mnist(
                "t10k-images-idx3-ubyte.gz",
                1_648_877,
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            ),
            _mnist(
                "t10k-labels-idx1-ubyte.gz",
                4_542,
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            ),
        ),
        counts={
            "train": (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
            "test": (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
        },
        places=mnist.places,
        files=mnist.files,
        read=mnist.read,
    ),
    "cifar10": Set(
        title="CIFAR-10, photographs, 32 x 32 in colour",
        archives=(
            _cifar(
                "cifar-10-binary.tar.gz",
                170_052_171,
                "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            ),
        ),
        counts={"train": (5000,) * 10, "test": (1000,) * 10},
        places=partial(cifar_files.places, "cifar10"),
        files=cifar_files.files,
        read=cifar.read,
    ),
    "cifar100": Set(
        title="CIFAR-100, photographs, 32 x 32 in colour",
        archives=(
            _cifar(
                "cifar-100-binary.tar.gz",
                168_513_733,
                "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
            ),
        ),
        counts={"train": (500,) * 100, "test": (100,) * 100},
        places=partial(cifar_files.places, "cifar100"),
        files=cifar_files.files,
        read=cifar.read,
    ),
    "omniglot": Set(
        title="Omniglot, characters of 50 alphabets, 105 x 105 black and white",
        archives=(
            _omniglot(
                "images_background.zip",
                9_464_212,
                "ad41ab679c8b5d90b271ef46be6987cc81211774a695c29dcc5367b2b26ee640",
            ),
            _omniglot(
                "images_evaluation.zip",
                6_462_886,
                "1f61a8f3366785b057fc117d9228e78a16e3d976c8953b2a10fcc74cf0609cee",
            ),
        ),
        counts={"background": (20,) * 964, "evaluation": (20,) * 659},
        places=omniglot.places,
        files=omniglot.files,
        read=omniglot.read,
    ),
}
