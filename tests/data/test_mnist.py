import gzip

import numpy as np
import pytest

from moml.data.images import mnist
from moml.errors import DataError
from tests.data import made


@pytest.mark.parametrize("zipped", [True, False])
def test_the_files_bytes_come_out_by_class(tmp_path, zipped):
    content = made.mnist(tmp_path / "mnist", zipped=zipped)
    [place] = mnist.places(tmp_path)
    for split, (x, y) in content.items():
        images = mnist.read(place, split, whole=False)
        assert images.x.shape == (len(y), 28, 28, 1) and images.x.dtype == np.uint8
        assert (np.diff(images.y) >= 0).all() and images.y.dtype == np.int32
        assert images.names == tuple("0123456789") and images.split == split
        np.testing.assert_array_equal(images.y, y[images.row])
        np.testing.assert_array_equal(images.x[np.argsort(images.row)][..., 0], x)


def test_names_with_a_dot_and_torchvisions_folder(tmp_path):
    made.mnist(tmp_path / "MNIST" / "raw", zipped=False)
    for path in (tmp_path / "MNIST" / "raw").iterdir():
        path.rename(path.with_name(path.name.replace("-idx", ".idx")))
    [place] = mnist.places(tmp_path)
    assert len(mnist.read(place, "test", whole=False).y) == 4


def test_a_copy_that_was_cut_is_not_whole(tmp_path):
    made.mnist(tmp_path)
    with pytest.raises(DataError, match=r"ubyte.gz must have 60,000 images; got 6"):
        mnist.read(tmp_path, "train")


def broken(name, change):
    """A maker of one broken file among good ones."""
    return lambda folder: (folder / name).write_bytes(change((folder / name).read_bytes()))


IMAGES, LABELS = "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"
again = lambda change: lambda raw: gzip.compress(change(gzip.decompress(raw)))


@pytest.mark.parametrize(
    "name, change, words",
    [
        (IMAGES, lambda raw: raw[:-9], "truncated or damaged"),
        (IMAGES, lambda raw: raw[:300] + b"\0\0\0\0" + raw[304:], "truncated or damaged"),
        (IMAGES, lambda raw: b"<html>not found</html>", "truncated or damaged"),
        (IMAGES, lambda raw: b"", "truncated"),
        (IMAGES, again(lambda raw: raw[:-1]), "must have 4,704 bytes .*; got 4,703"),
        (IMAGES, again(lambda raw: raw + b"x"), "got more"),
        (IMAGES, again(lambda raw: raw[:7]), "truncated: 7 bytes"),
        (
            IMAGES,
            again(lambda raw: made.idx(np.zeros(6, np.uint8)) + raw),
            "2051; got 2049",
        ),
        (IMAGES, again(lambda raw: made.idx(np.zeros((6, 8, 8), np.uint8))), "8 x 8"),
        (LABELS, again(lambda raw: raw[:-1] + b"\x0b"), "must be from 0 to 9; got 11"),
        (LABELS, again(lambda raw: made.idx(np.zeros(5, np.uint8))), "must have 6 labels; got 5"),
    ],
)
def test_a_wrong_file_is_named(tmp_path, name, change, words):
    made.mnist(tmp_path)
    broken(name, change)(tmp_path)
    with pytest.raises(DataError, match=words) as raised:
        mnist.read(tmp_path, "train", whole=False)
    assert str(tmp_path / name) in str(raised.value)
    mnist.read(tmp_path, "test", whole=False)


def test_a_missing_file_is_named(tmp_path):
    made.mnist(tmp_path)
    (tmp_path / LABELS).unlink()
    with pytest.raises(DataError, match=f"{LABELS} is missing"):
        mnist.files(tmp_path, "train")
