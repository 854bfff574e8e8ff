"""FedProx, FedRep and SCAFFOLD as a user's plugins: runs, sweeps, and under Flower."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from flwr.app import Context, RecordDict

import moml
from moml.cli import run
from moml.config.config import check
from moml.config.plugins import import_plugins
from moml.config.problems import Synthetic
from moml.config.toml import dump, load
from moml.flower.app.client_app import settings_of
from moml.methods import METHODS as registered
from moml.runs.job import single
from moml.storage.metrics import read
from tests.flower.common import nodes, serve, settings, simulated
from tests.flower.federation import equal_to_the_simulator, federation
from tests.flower.grid import InProcess
from tests.plugins.code import code_lines
from tests.support.often import often

METHODS = ("my-fedprox", "my-fedrep", "my-scaffold")
MINE = """
method = "METHOD"
rounds = 6
decay_after = 1.0
eta = 0.1
k = 2
local_steps = 2
tasks_per_step = 3
test_tasks = 4
test_steps = 1
shots = 3

[problem]
kind = "synthetic"
n = 5
samples = 12
features = 3
classes = 2
hidden = [4]
"""


def module_of(method):
    return method.replace("-", "_")


def rows_in(file):
    return json.loads(file.read_text())


def unload(method):
    """As in a new process."""
    sys.modules.pop(module_of(method), None)
    registered.pop(method, None)


def mine(folder, method):
    (folder / "mine.toml").write_text(MINE.replace("METHOD", method))
    return "mine.toml"


def config_of(folder, method, **changes):
    import_plugins([module_of(method)])
    made = replace(load(mine(folder, method)), plugin=(module_of(method),), **changes)
    return check(made)


@pytest.mark.parametrize("method", METHODS)
def test_a_plugin_has_at_most_25_lines(method):
    text = (Path(__file__).parent / f"{module_of(method)}.py").read_text()
    assert 10 < len(code_lines(text)) <= 25


@pytest.mark.parametrize("method", often(METHODS, ["my-scaffold"]))
def test_train_resume_score_load_and_report(method, folder, moml_):
    plugin = ("--plugin", module_of(method))
    assert moml_("train", mine(folder, method), *plugin, "--out", "whole")[0] == 0
    short = ("--rounds", 3, "--out", "run")
    assert moml_("train", mine(folder, method), *plugin, *short)[0] == 0
    file = folder / "run" / "config.toml"
    file.write_text(file.read_text().replace("iterations = 6", "rounds = 6"))
    code, _, wrong = moml_("resume", "run", *plugin)
    assert code == 2 and "go on with --allow-change iterations" in wrong
    assert moml_("resume", *plugin, "run", "--allow-change", "iterations")[0] == 0
    rows = [read(folder / name / "metrics.jsonl") for name in ("run", "whole")]
    assert len(rows[0]) == 6 and [row["loss"] for row in rows[0]] == [r["loss"] for r in rows[1]]
    ends = [moml.load(folder / name, plugins=[plugin[1]]).params for name in ("run", "whole")]
    for one, two in zip(*map(jax.tree.leaves, ends), strict=True):
        np.testing.assert_array_equal(one, two)
    assert moml_("score", "run", *plugin, "--json", "rows.json")[0] == 0
    assert rows_in(folder / "rows.json")[0]["mean"] == rows[0][-1]["score"]
    assert moml_("report", "run", "whole", *plugin)[0] == 0
    page = (folder / "report.html").read_text()
    assert f"--out run-again --plugin {plugin[1]}" in page and "5 tasks of Synthetic" in page


@pytest.mark.parametrize("method", often(METHODS, ["my-fedrep"]))
def test_a_sweep_has_the_scores_of_single_runs(method, folder, moml_):
    second = "mu" if method == "my-fedprox" else "alpha"
    plugin = ("--plugin", module_of(method))
    words = ("--grid", "eta=.05,.1", f"{second}=0,.5", "--seeds", 2, *plugin)
    assert moml_("sweep", mine(folder, method), *words, "--out", "all")[0] == 0
    rows = rows_in(folder / "all" / "rows.json")
    found = {(row["setting"]["eta"], row["setting"][second]): row["values"] for row in rows}
    assert sorted(found) == [(0.05, 0.0), (0.05, 0.5), (0.1, 0.0), (0.1, 0.5)]
    assert len({tuple(values) for values in found.values()}) > 1
    one = ("--eta", 0.05, f"--{second}", 0.5, "--seed", 1, "--out", "one")
    assert moml_("train", mine(folder, method), *plugin, *one)[0] == 0
    score = read(folder / "one" / "metrics.jsonl")[-1]["score"]
    assert found[0.05, 0.5][1] == pytest.approx(score, rel=1e-6)
    assert moml_("resume", "all", *plugin)[0] == 0


@pytest.mark.parametrize("method", often(METHODS, ["my-scaffold"]))
def test_without_the_plugin_one_line_says_what_to_repeat(method, folder, moml_):
    module = module_of(method)
    words = ("train", mine(folder, method), "--rounds", 2, "--out", "a run", "--plugin", module)
    assert moml_(*words)[0] == 0
    for words in (
        ["resume", "a run"],
        ["score", "a run", "--shots", "2"],
        ["report", "a run"],
        ["export", "a run", "--out", "x"],
        ["forget", "a run", "--task", "1"],
    ):
        unload(method)
        code, out, wrong = moml_(*words)
        quoted = " ".join("'a run'" if word == "a run" else word for word in words)
        assert (code, out) == (2, "")
        assert wrong.startswith("moml: ") and wrong.endswith(
            f"a run/run.json needs the plugin {module}, and no file's word imports a module; "
            f"repeat with: moml {quoted} --plugin {module}\n"
        )
        assert module not in sys.modules
    with pytest.raises(moml.errors.ConfigError, match=rf"plugins=\['{module}'\]"):
        moml.load("a run")
    assert moml.load("a run", plugins=[module]).method.name == method


def test_fedprox_without_pull_is_fedavg_and_with_it_stays_nearer(folder):
    ends = {}
    for mu in (None, 0.0, 2.0):
        name = "fedavg" if mu is None else "my-fedprox"
        config = config_of(folder, "my-fedprox")
        given = {} if mu is None else {"mu": mu}
        ends[mu] = simulated(check(replace(config, method=name, **given)))[0]
    first = jax.tree.leaves(config.problem.network().init(jax.random.key(0)))
    for one, two in zip(ends[None], ends[0.0], strict=True):
        np.testing.assert_array_equal(one, two)
    far = lambda end: sum(float(np.sum((a - b) ** 2)) for a, b in zip(end, first, strict=True))
    assert far(ends[2.0]) != far(ends[0.0])


def test_fedrep_keeps_the_servers_head(folder):
    config = config_of(folder, "my-fedrep")
    job = single(config)
    state = first = job.execution.first()
    start = jax.device_get(first.meta)
    for t in range(3):
        state, _ = job.execution.advance(state, t, 1)
    for one, two in zip(jax.tree.leaves(state.meta.head), jax.tree.leaves(start.head), strict=True):
        np.testing.assert_array_equal(one, two)
    assert np.abs(state.meta.body[0].weight - start.body[0].weight).max() > 1e-4
    heads = state.memory.u.leaves.head.weight
    assert heads.shape[0] == 5 and float(np.ptp(np.asarray(heads), axis=0).max()) > 1e-4


def test_scaffold_where_all_answer_keeps_the_mean_of_the_variates(folder):
    config = config_of(folder, "my-scaffold", tasks_per_step=5)
    job = single(config)
    state = job.execution.first()
    for t in range(4):
        state, _ = job.execution.advance(state, t, 1)
    own = jax.tree.map(lambda u: np.mean(np.asarray(u), axis=0), state.memory.u)
    for mean, c in zip(jax.tree.leaves(own), jax.tree.leaves(state.server), strict=True):
        np.testing.assert_allclose(mean, c, rtol=1e-9, atol=1e-12)
    assert np.abs(jax.tree.leaves(own)[0]).max() > 1e-3


@pytest.mark.parametrize("method", often(METHODS, ["my-scaffold"]))
def test_under_flower_it_is_the_simulator(method, folder):
    config = config_of(folder, method)
    asked = settings(config, folder / "out", plugin=module_of(method))
    there = {i: node | {"plugin": module_of(method)} for i, node in nodes(2, folder).items()}
    w, rows = serve(InProcess(asked, there), asked)
    expected, losses = simulated(config)
    for one, two in zip(w, expected, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose([row["loss"] for row in rows], losses, rtol=1e-10)
    assert [row["answered"] for row in rows] == [3] * 6


def test_a_node_imports_what_it_is_told_by_its_own_machine_alone(folder):
    config = config_of(folder, "my-scaffold", seed=77)
    run_config = settings(config, folder / "out", plugin="my_scaffold")
    unload("my-scaffold")
    node = {"partition-id": 0, "num-partitions": 1}
    with pytest.raises(moml.errors.ConfigError, match="config needs the plugin my_scaffold"):
        settings_of(Context(1, 1, node, RecordDict(), run_config))
    assert "my_scaffold" not in sys.modules
    own = Context(1, 1, node | {"plugin": "my_scaffold"}, RecordDict(), run_config)
    assert settings_of(own)[0].config.method == "my-scaffold" and "my_scaffold" in sys.modules


@pytest.mark.slow
def test_a_real_federation(folder):
    config = config_of(folder, "my-scaffold", rounds=3)
    plugin = ("--plugin", "my_scaffold")
    with federation(folder / "fed", config, "--nodes", 2, *plugin) as fed:
        code, wrong = fed.fails("run")
        assert code == 2 and f"moml flower run {folder / 'fed'} --plugin my_scaffold" in wrong
        fed.does("run", *plugin)
        equal_to_the_simulator(fed.out, config)
        assert [row["answered"] for row in fed.rounds] == [3, 3, 3]
    with federation(folder / "other", config, "--nodes", 1) as fed:
        code, wrong = fed.fails("run", *plugin)
        assert code == 2 and f"up {folder / 'other'} --plugin my_scaffold" in wrong


def test_the_folder_of_a_federation_keeps_the_plugin(folder):
    (folder / "mine.toml").write_text(dump(config_of(folder, "my-fedrep")))
    run(["flower", "init", "fed", "--config", "mine.toml", "--plugin", "my_fedrep"])
    assert load("fed/config.toml").plugin == ("my_fedrep",)
    assert isinstance(load("fed/config.toml").problem, Synthetic)
