"""Small runs of every kind, for the tests of the page."""

from dataclasses import replace

import jax
import pytest

from moml.config.config import Config
from moml.config.problems import Sine
from moml.errors import Diverged
from moml.report.page.runs import read_run
from moml.runs import runs, sweeps
from moml.runs.model_scores import look
from moml.tabular.train import train_table
from tests.support.small_mnist import LATE, count_as_whole, write
from tests.support.small_table import users

SINE = Config(
    Sine(hidden=(8,)), method="moml-v1", iterations=60, log_every=10, score_every=20, k=2, shots=2,
    test_tasks=20, test_steps=2,
)  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder for runs; their programs are compiled once."""
    return tmp_path_factory.mktemp("report")


@pytest.fixture(scope="module")
def sine(place):
    runs.train(SINE, place / "memory")
    return place / "memory"


@pytest.fixture(scope="module")
def looked(sine):
    """What is computed of it for the page."""
    return look(sine, read_run(sine, sine.name).config, lambda: None)


@pytest.fixture(scope="module")
def plain(place):
    """The same without a memory."""
    runs.train(replace(SINE, method="maml"), place / "plain")
    return place / "plain"


@pytest.fixture(scope="module")
def diverged(place):
    with pytest.raises(Diverged):
        runs.train(replace(SINE, method="maml", eta=1e30), place / "wild")
    return place / "wild"


@pytest.fixture(scope="module")
def swept(place):
    grid = {"eta": [0.002, 1e30, 0.01], "beta": [0.2, 0.5]}
    sweeps.sweep_run(SINE, place / "grid", grid, 2)
    return place / "grid"


@pytest.fixture(scope="module")
def images(place):
    """A folder with a small MNIST."""
    write(place / "data", train=60, test=30)
    return place / "data"


@pytest.fixture
def data(images, monkeypatch):
    """That folder, as MOML_DATA."""
    monkeypatch.setenv("MOML_DATA", str(images))
    count_as_whole(images, monkeypatch.setitem)


@pytest.fixture(scope="module")
def clients(place, images):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MOML_DATA", str(images))
        count_as_whole(images, patch.setitem)
        runs.train(replace(LATE, shots=1), place / "clients")
    return place / "clients"


@pytest.fixture(scope="module")
def table(place):
    """The run of a table with few tasks."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    given = {"task": "user", "target": "y", "order": "day", "exclude": ["x"], "shots": 2}
    train_table(users(24, 0), place / "table", **given, iterations=10, members=1)
    jax.config.update("jax_disable_most_optimizations", before)
    return place / "table"
