"""Fixtures of runs on clients: a small MNIST, and one run on it."""

import pytest

from moml.runs.runs import train
from tests.support.small_mnist import DITTO, LATE, count_as_whole, write


@pytest.fixture(scope="session")
def root(tmp_path_factory):
    """A folder with the files."""
    root = tmp_path_factory.mktemp("data")
    write(root, train=60, test=30)
    return root


@pytest.fixture
def data(root, monkeypatch):
    """That folder, as MOML_DATA."""
    monkeypatch.setenv("MOML_DATA", str(root))
    count_as_whole(root, monkeypatch.setitem)


@pytest.fixture(scope="session")
def done(root, tmp_path_factory):
    """A run with clients that are lost or late, and carried memories."""
    folder = tmp_path_factory.mktemp("runs") / "done"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MOML_DATA", str(root))
        count_as_whole(root, patch.setitem)
        return folder, *train(LATE, folder)


@pytest.fixture(scope="session")
def ditto(root, tmp_path_factory):
    """A run whose clients keep models."""
    folder = tmp_path_factory.mktemp("runs") / "ditto"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MOML_DATA", str(root))
        count_as_whole(root, patch.setitem)
        return folder, *train(DITTO, folder)
