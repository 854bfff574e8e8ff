"""The publishers' own data, where MOML_DATA says it is; skipped only where that is not set."""

import hashlib
import os
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest

from moml.cli import main
from moml.data import SETS, counts, load, stacked
from moml.data.images.cifar import read as read_cifar
from moml.data.images.sets import _place


@pytest.fixture(scope="module")
def root():
    place = os.environ.get("MOML_DATA")
    if not place:
        pytest.skip("MOML_DATA is not set")
    return Path(place)


def present(root):
    """The data sets there: all but Fashion-MNIST must be."""
    return [name for name, one in SETS.items() if name != "fmnist" or one.places(root)]


def in_order(images):
    """Labels and pixels as they are in the publisher's files."""
    back = np.argsort(images.row)
    return images.y[back], images.x[back]


@pytest.mark.parametrize(
    "name, split", [(name, split) for name, one in SETS.items() for split in one.counts]
)
def test_counts_shapes_and_the_cache(root, name, split):
    if name not in present(root):
        pytest.skip("Fashion-MNIST is in a package of Debian's, where there is one")
    images = load(name, split)
    grey = {"mnist": (28, 1), "fmnist": (28, 1), "omniglot": (105, 1)}
    side, channels = grey.get(name, (32, 3))
    total = sum(SETS[name].counts[split])
    assert images.x.shape == (total, side, side, channels) and images.x.dtype == np.uint8
    assert images.y.shape == images.row.shape == (total,) and images.y.dtype == np.int32
    assert (np.diff(images.y) >= 0).all() and images.split == split
    assert sorted(images.row) == list(range(total))
    assert tuple(counts(images)) == SETS[name].counts[split]
    place, _ = _place(name, root, split)
    if split in ("test", "evaluation"):  # read anew, past the cache, and by now from it
        for other in (SETS[name].read(place, split, True), load(name, split)):
            np.testing.assert_array_equal(images.x, other.x)
            np.testing.assert_array_equal(images.row, other.row)
            assert images.names == other.names and images.groups == other.groups


def test_mnist(root):
    y, x = in_order(load("mnist", "train"))
    assert y[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert np.bincount(y)[0] == 5923
    assert x[0, 5, 12:18, 0].tolist() == [3, 18, 18, 18, 126, 136]
    assert x.mean() / 255 == pytest.approx(0.1306604762738429, abs=1e-12)
    assert x.std() / 255 == pytest.approx(0.3081078, abs=1e-6)
    assert hashlib.md5(b"\0\0\x08\x03\0\0\xea`\0\0\0\x1c\0\0\0\x1c" + x.tobytes()).hexdigest() == (
        "6bbc9ace898e44ae57da46a324031adb"  # of the publisher's idx file
    )
    y, x = in_order(load("mnist", "test"))
    assert y[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]


def test_cifar10(root):
    images = load("cifar10", "train")
    y, x = in_order(images)
    assert [images.names[k] for k in y[:5]] == ["frog", "truck", "truck", "deer", "automobile"]
    assert x[0, 0, 0].tolist() == [59, 62, 63] and x[0, 31, 31].tolist() == [123, 92, 72]
    published = [0.49139968, 0.48215841, 0.44653091]
    np.testing.assert_allclose(x.mean((0, 1, 2)) / 255, published, atol=1e-7)
    images = load("cifar10", "test")
    y, x = in_order(images)
    assert [images.names[k] for k in y[:4]] == ["cat", "ship", "ship", "airplane"]
    assert x[0, 0, 0].tolist() == [158, 112, 49]


def test_cifar100(root):
    images = load("cifar100", "train")
    assert stacked(images).shape == (100, 500, 32, 32, 3)
    assert images.names[:3] == ("apple", "aquarium_fish", "baby") and images.names[-1] == "worm"
    groups = list(zip(images.names, images.groups, strict=True))
    assert ("apple", "fruit_and_vegetables") in groups and ("wolf", "large_carnivores") in groups
    assert {images.groups.count(group) for group in images.groups} == {5}
    published = [129.30416561, 124.0699627, 112.43405006]
    np.testing.assert_allclose(images.x.mean((0, 1, 2)), published, atol=1e-7)
    test = load("cifar100", "test")
    assert test.names == images.names and test.groups == images.groups


def test_omniglot(root):
    background, evaluation = load("omniglot", "background"), load("omniglot", "evaluation")
    assert stacked(background).shape == (964, 20, 105, 105, 1)
    assert stacked(evaluation).shape == (659, 20, 105, 105, 1)
    assert len(set(background.groups)) == 30 and len(set(evaluation.groups)) == 20
    assert not set(background.groups) & set(evaluation.groups)
    assert {"Greek", "Latin", "Korean"} <= set(background.groups)
    assert {"Angelic", "Tibetan", "ULOG"} <= set(evaluation.groups)
    assert background.groups.count("Greek") == 24 and background.groups.count("Latin") == 26
    for images in (background, evaluation):
        assert np.unique(images.x[::97]).tolist() == [0, 255]
        ink = 1 - images.x.mean() / 255
        assert 0.07 < ink < 0.09  # thin strokes on white paper
        pixels = stacked(images).reshape(len(images.names), 20, -1)
        means = pixels[:, ::7].mean(2)
        assert means.max() < 255  # no drawing is empty


def test_the_python_version_of_real_rows_is_the_same(root, tmp_path):
    """What the publisher's python archive would have, packed by Python 3 in protocol 2."""
    images = load("cifar100", "test")
    y, x = in_order(images)
    planar = x.transpose(0, 3, 1, 2).reshape(len(x), -1)
    coarse = sorted(set(images.groups))
    group = [coarse.index(images.groups[k]) for k in y]
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    batch = {"data": planar, "fine_labels": y.tolist(), "coarse_labels": group}
    names = {"fine_label_names": list(images.names), "coarse_label_names": coarse}
    (folder / "test").write_bytes(pickle.dumps(batch, 2))
    (folder / "meta").write_bytes(pickle.dumps(names, 2))
    other = read_cifar(folder, "test")
    np.testing.assert_array_equal(images.x, other.x)
    assert images.names == other.names and images.groups == other.groups


def test_check_passes(root, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["moml", "data", "check", *present(root)])
    main()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(present(root)) and all("ok:" in line for line in lines)
    assert "background 19,280 images of 964 classes" in lines[-1]
