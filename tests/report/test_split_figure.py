import numpy as np
import pytest

from moml.data import dirichlet, half_and_half
from moml.errors import DataError
from moml.report.split_figure import _by_largest, split_figure

Y = np.tile(np.arange(10), 200)


@pytest.mark.parametrize("clients", [1, 2, 50, 500])
def test_written_as_png_and_svg(tmp_path, clients):
    path = split_figure(Y, dirichlet(Y, clients, 1.0, seed=0, least=0), tmp_path / "split")
    assert path.name == "split.png" and path.stat().st_size > 5_000
    svg = (tmp_path / "split.svg").read_text()
    assert ("clients, in the order" in svg) == (clients > 100)


def test_one_class_and_a_hundred(tmp_path):
    for y in (np.zeros(300, int), np.tile(np.arange(100), 3)):
        rows = np.array_split(np.arange(300), 150)
        assert split_figure(y, rows, tmp_path / "split", title="odd").exists()


def test_names_are_those_of_the_classes(tmp_path):
    rows = half_and_half(Y, 4, 10, seed=0)
    names = [f"kind {i}" for i in range(10)]
    split_figure(Y, rows, tmp_path / "split", names)
    assert "kind 9" in (tmp_path / "split.svg").read_text()
    with pytest.raises(DataError, match="as many as the 10 classes that occur; got 9"):
        split_figure(Y, rows, tmp_path / "split", names[:9])


def test_columns_are_a_staircase():
    counts = np.array([[0, 5], [9, 1], [2, 7], [3, 3]])
    assert _by_largest(counts).tolist() == [1, 3, 2, 0]
