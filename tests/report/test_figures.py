"""Pictures that are right: labels that do not meet, legends beside the panels, one style."""

import itertools

import numpy as np
import pytest

from moml.data import dirichlet
from moml.paper.federated.memory import memory_figure
from moml.paper.leaderboard.methods import ROWS
from moml.paper.leaderboard.pictures import accuracy_figure
from moml.paper.oneshot.figure import learned_in_the_test
from moml.paper.oneshot.table import cells
from moml.paper.shots.study import SHOTS, Place, Surface
from moml.paper.shots.verdict import shots_figure
from moml.paper.sine.figure import curves_and_fits
from moml.paper.theory.figure import theory_figure
from moml.paper.theory.study import LINES, Measured
from moml.report.figures import STYLE, _apart, panels, pyplot, save
from moml.report.split_figure import split_figure
from moml.types import Batch

RNG = np.random.default_rng(0)


@pytest.fixture
def drawn(monkeypatch):
    """Figures that were saved, still open."""
    seen = []
    monkeypatch.setattr(pyplot(), "close", seen.append)
    yield seen
    monkeypatch.undo()
    pyplot().close("all")


def labels_of(axis):
    """Boxes of the labels that are seen."""
    low, high = sorted(axis.get_view_interval())
    ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
    inside = [t for t in ticks if low <= t.get_loc() <= high and t.label1.get_text()]
    return [t.label1.get_window_extent() for t in inside if t.label1.get_visible()]


def check(figure):
    """No two labels of an axis meet; no legend lies on a panel, and there is at most one."""
    figure.canvas.draw()
    for axes in figure.axes:
        assert axes.get_legend() is None
        for axis in (axes.xaxis, axes.yaxis):
            for one, other in itertools.combinations(labels_of(axis), 2):
                assert not one.overlaps(other), axes.get_title()
    assert len(figure.legends) <= 1
    for legend in figure.legends:
        box = legend.get_window_extent()
        assert not [axes for axes in figure.axes if box.overlaps(axes.get_window_extent())]
        assert figure.bbox.count_contains(box.corners()) == 4


@pytest.mark.parametrize(
    "low, high", [(0.09, 5), (0.55, 0.9), (1e-6, 0.02), (900, 3e7), (0.999, 1.001), (1e-9, 1e9)]
)
def test_labels_of_a_logarithmic_axis(drawn, tmp_path, low, high):
    figure, ((axes,),) = panels(1, 1, (5.5, 4.2))
    axes.plot([low, high], [low, high])
    axes.set(xscale="log", yscale="log")
    save(figure, tmp_path / "log")
    check(figure)
    assert min(len(labels_of(axis)) for axis in (axes.xaxis, axes.yaxis)) >= 2


def sine(path):
    waves = Batch(np.linspace(-5, 5, 10)[None, :, None], np.ones((1, 10, 1)))
    curve = [(4000 * (i + 1), np.array([5.0, 4.0]) * 0.7**i) for i in range(10)]
    curves = dict.fromkeys(("maml", "moml-v1", "moml"), curve)
    fits = dict.fromkeys((*curves, "untrained"), np.ones((1, 10)))
    curves_and_fits(curves, {"untrained": 4.7}, fits, (waves, waves), path)


def theory(path):
    samples = np.geomspace(9e5, 3e7, 20)
    gap = lambda eta: eta * np.linspace(2, 1, 20)[:, None] * RNG.uniform(1e-3, 10)
    found = [
        Measured(line, s2, eta, {}, samples, gap(eta), {}, 100, 1.0)
        for line in LINES for s2 in ("independent", "shared") for eta in (0.002, 0.0005)
    ]  # fmt: skip
    theory_figure(found, path)


def shots(path):
    betas = np.array([1, 0.7, 0.335, 0.333, 0.1])
    error = lambda: RNG.uniform(1, 3, (5, 1, len(SHOTS), 1, 2))
    places = [Place("sine", 25, k, noise, 100) for k in (1, 5) for noise in (0.0, 1.0)]
    about = (100, 1.0, False)
    shots_figure([Surface(p, betas, np.array([0.01]), error(), *about) for p in places], path)


def memory(path):
    axes = itertools.product(("localmoml",), (1, 5), (1, 10), (1, 0.5, 0.1), (1, 5, 20))
    rows = [
        {"method": m, "mean": RNG.uniform(50, 70),
         "setting": {"k": k, "steps": steps, "beta": b, "shots": s, "rule": min(1, 2 / s)}}
        for m, k, steps, b, s in axes
    ]  # fmt: skip
    memory_figure(rows, path)


def ranks(path):
    row = lambda: {"mean": RNG.uniform(90, 99), "paper_mean": 95.0}
    accuracy_figure({title: {name: row() for name in ROWS} for title in ("dir", "pat")}, path)


def released(path):
    (cell,) = cells("released", "omniglot", ["maml"])
    methods = ("untrained", "maml", "reptile", "nasa", "moml-v1")
    learned_in_the_test({name: RNG.uniform(90, 99, (3, 100)) for name in methods}, cell, path)


def split(path):
    y = np.tile(np.arange(10), 60_000)
    split_figure(y, dirichlet(y, 20, 0.3, seed=0, least=0), path, title="20 clients")


@pytest.mark.parametrize("draw", [sine, theory, shots, memory, ranks, released, split])
def test_labels_and_legends_of_pictures(drawn, tmp_path, draw):
    draw(tmp_path / "picture")
    (figure,) = drawn
    check(figure)
    sizes = {axes.title.get_fontsize() for axes in figure.axes}
    assert sizes == {STYLE["axes.titlesize"]}
    assert figure.legends


def test_numbers_that_differ_look_different():
    assert _apart([1, 0.333, 0.33, 0.1]) == ["1", "0.333", "0.33", "0.1"]
