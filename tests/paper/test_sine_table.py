import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import moml
from moml.algorithms.parts import memory as memories
from moml.algorithms.parts.adapt import gradient_steps
from moml.algorithms.parts.curvature import first_order
from moml.paper import protocols as released
from moml.paper.cells import iterations_of
from moml.paper.protocols import PROTOCOLS
from moml.paper.search import read_settings, write_settings
from moml.paper.sine.score import LOSS, NET, five_waves
from moml.paper.sine.search import KEYS, Variant, add_to, best, search
from moml.paper.sine.table import (
    NAMED,
    SETTINGS,
    cells,
    compose,
    names_of,
    recorded_init,
    run_cell,
)
from moml.types import Hyper, SampleSpec, Task, TaskBatch

HYPER = jax.tree.map(jnp.asarray, Hyper(eta=0.01, beta=0.1, alpha=0.01, gamma=1.0))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_cell_composes(protocol):
    table = cells(protocol, [1, 3], None)
    assert len(table) == 2 * len(names_of(protocol))
    for cell in table:
        assert compose(cell).n == 25


def test_iterations_are_those_of_the_released_code():
    given = {name: iterations_of(name, 40_000, tasks=3, n=25) for name in NAMED}
    assert given == {
        "maml": 40_000, "reptile": 40_000, "nasa": 4_800, "bspiderboost": 22_499,
        "moml-v1": 40_000, "moml-v2": 40_000, "localmoml": 5_714 * 5,
    }  # fmt: skip


def test_the_recorded_network_is_torchs():
    net = recorded_init()
    assert [leaf.shape for leaf in jax.tree.leaves(net)] == [
        leaf.shape for leaf in jax.tree.leaves(NET.init(jax.random.key(0)))
    ]
    # torch.manual_seed(1234); torch.nn.Linear(1, 40).weight[0, 0] is -0.94204...
    assert float(net.body[0].weight[0, 0]) == pytest.approx(-0.9420415163, abs=1e-9)
    assert float(jnp.abs(net.body[1].weight).max()) <= 1 / np.sqrt(40)


def test_the_released_support_is_among_the_scored_points():
    few, many = five_waves()
    assert few.x.shape == (5, 10, 1)
    np.testing.assert_array_equal(few.x, many.x[:, :10])
    np.testing.assert_array_equal(many.x[0], many.x[4])


def one_visit(ids, key):
    tasks = moml.sine()
    samples = tasks.draw(key, jnp.asarray(ids), 2)
    part = lambda i: jax.tree.map(lambda x: x[:, i : i + 1], samples)
    return TaskBatch(jnp.asarray(ids, jnp.int32), Task(part(0), part(1)))


def test_in_turn_without_repeats_is_the_method():
    adapt = gradient_steps(LOSS, curvature=first_order)
    need = SampleSpec(3, support=1, query=1)
    kept = memories.ema(25)
    turns = released.in_turn(LOSS, adapt, kept, need, once=False)
    method = moml.methods.method("moml-v1", LOSS, n=25, curvature="first-order").algorithm
    states = [a.init(NET.init(jax.random.key(0)), HYPER) for a in (turns, method)]
    for i, ids in enumerate([[1, 2, 3], [3, 4, 1], [2, 3, 4]]):
        visit = one_visit(ids, jax.random.key(i))
        states = [a.step(s, visit, HYPER)[0] for a, s in zip((turns, method), states, strict=True)]
    for x, y in zip(*(jax.tree.leaves(s.meta) for s in states), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-15)


def test_a_repeated_task_moves_twice_or_is_passed_over():
    adapt = gradient_steps(LOSS, curvature=first_order)
    need = SampleSpec(2, support=1, query=1)
    visit = one_visit([5, 5], jax.random.key(0))
    single = jax.tree.map(lambda x: x[:1], visit)
    w = NET.init(jax.random.key(0))
    for once in (False, True):
        kept = memories.debiased_ema(25, 0.12)
        turns = released.in_turn(LOSS, adapt, kept, need, once=once)
        twice, _ = turns.step(turns.init(w, HYPER), visit, HYPER)
        alone, _ = turns.step(turns.init(w, HYPER), single, HYPER)
        u, v = (kept.recall(s.memory, jnp.array([5]))[0].head.bias for s in (twice, alone))
        assert bool(jnp.array_equal(u, v)) == once
    moved = lambda state: state.meta.head.bias - w.head.bias
    np.testing.assert_allclose(moved(twice), moved(alone) / 2, rtol=1e-10)  # still divided by B


def test_the_leak_is_what_autograd_sees():
    """Differentiate v2's memories through w over idle steps, as the released graph does."""
    beta = float(HYPER.beta)
    kept = memories.debiased_ema(3, 1 / 3)
    store = kept.init(jnp.zeros(2))
    derivative = 0.0
    for step in range(6):
        store = kept.tick(store, jnp.ones(2) * step, HYPER)
        derivative = (1 - beta) * derivative + beta
        assert float(released.leak(store, jnp.array(1))) == pytest.approx(derivative, rel=1e-12)
    store = kept.write(store, jnp.array([1]), jnp.ones((1, 2)))
    store = kept.tick(store, jnp.ones(2), HYPER)
    assert float(released.leak(store, jnp.array(1))) == pytest.approx(beta, rel=1e-12)


@pytest.mark.parametrize("name", ["moml-v2", "bspiderboost", "joint"])
def test_a_cell_runs_and_tells(name):
    [cell] = cells("released", [1], [name])
    outcome = run_cell(cell, seeds=2, budget=60, progress=False, points=3)
    [row] = outcome.rows
    assert row["seeds"] == 2
    assert np.isfinite(row["mean"])
    assert outcome.curve[-1][0] == row["samples"]
    assert (row["paper_mean"] is None) == (name == "joint")


def test_strict_step_sizes_are_recorded_with_their_command():
    content = json.loads(SETTINGS.read_text())
    assert all(table["command"].startswith("moml reproduce search") for table in content["tables"])
    assert set(NAMED) | {"moml", "moml-searched"} <= set(content["steps"])


def test_a_search_finds_the_best_that_lost_nobody(tmp_path):
    variant = Variant("joint", "fo-maml", {}, {"eta": [1e8, 0.001, 0.01], "alpha": [0.0]})
    found = search(variant, 1, seeds=2, budget=200)
    assert found.rows[-1]["eta"] == 1e8
    assert found.rows[-1]["mean"] is None
    assert found.rows[0]["mean"] <= found.rows[1]["mean"]
    assert best(found)["eta"] == found.rows[0]["eta"]
    path = tmp_path / "steps.json"
    older = {"steps": {"maml": {"1": {"eta": 0.5}}, "joint": {"1": {"eta": 9.0}}}}
    write_settings(add_to(older, found, "moml reproduce search"), path)
    kept = read_settings(path, KEYS)["steps"]
    assert kept["joint"]["1"] == best(found)
    assert kept["maml"] == older["steps"]["maml"]
    for other in ("[]", '{"rows": 1}', ""):
        path.write_text(other)
        with pytest.raises(moml.errors.DataError, match=r"steps\.json"):
            read_settings(path, KEYS)


def test_unknown_rows_are_refused():
    with pytest.raises(moml.errors.ConfigError, match="nosuch"):
        cells("strict", [1], ["nosuch"])
    for protocol in ("strict", "released"):
        with pytest.raises(moml.errors.ConfigError, match="k = 7"):
            cells(protocol, [7], ["maml"])


@pytest.mark.slow
def test_the_printed_table_is_met():
    """Each of the 14 printed cells within the larger of 3 printed std and 20 % of its mean."""
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        for cell in cells("released", [1, 3], list(NAMED)):
            [row] = run_cell(cell, seeds=5, budget=40_000, progress=False).rows
            mean = row["mean"]
            printed, std = row["paper_mean"], row["paper_std"]
            assert abs(mean - printed) <= max(3 * std, 0.2 * printed), (cell, mean)
