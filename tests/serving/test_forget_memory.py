"""Runs by `moml train CONFIG`: a memory is forgotten by the number of its task."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import moml
from moml.algorithms.signature import keywords
from moml.config.starts import STARTS
from moml.errors import CheckpointError, ConfigError
from moml.methods import METHODS
from moml.runs import runs
from moml.runs.job import plan_of
from moml.runs.record import write_record
from moml.runs.score import score
from moml.serving.forget import forget
from moml.serving.forget_memory import cleared, task_rows
from moml.storage.checkpoint import Checkpoints
from moml.training.compose import hyper_of, init_key
from moml.training.fit import Learner, TrainingState
from tests.serving.test_forget import everything
from tests.support.program import call

MEMORIES = {
    "moml-v1": {},
    "moml-v2": {},
    "moml-v2, direct": {"direct": True},
    "ditto": {},
}


@pytest.mark.parametrize("name", MEMORIES)
def test_a_memory_goes_back_to_its_start_and_no_other(name):
    base = replace(STARTS["sine"], method=name.split(",")[0], test_tasks=2, **MEMORIES[name])
    config = replace(base, problem=replace(base.problem, hidden=(25,), n=25))  # as wide as many
    plan = plan_of(config)
    params = plan.built.init(init_key(0))
    start = plan.method.algorithm.init(params, hyper_of(plan.method, params, {}))
    chance = np.random.default_rng(0)
    moved = jax.tree.map(lambda leaf: np.asarray(leaf) + chance.integers(1, 9, leaf.shape), start)
    state = cleared(moved, start, task_rows(config, plan), [3, 7])
    leaves = lambda tree: jax.tree.leaves(tree)
    for new, old in zip(
        leaves((state.meta, state[2:])), leaves((moved.meta, moved[2:])), strict=True
    ):
        np.testing.assert_array_equal(new, old)
    ids = np.array([3, 7])
    rest = np.setdiff1d(np.arange(25), ids)
    recall = plan.method.memory.recall
    for which, wanted in ((ids, start), (rest, moved)):
        memory = wanted.memory
        if name == "moml-v2":  # what is common to all stays
            memory = memory._replace(m=moved.memory.m, now=moved.memory.now)
        stores = jax.tree.map(jnp.asarray, (state.memory, memory))
        given = [recall(store, jnp.asarray(which)) for store in stores]
        jax.tree.map(np.testing.assert_array_equal, *given)


ROUNDS = [name for name in METHODS if "local_steps" in keywords(METHODS[name])]
PRIVATE = {name: {"private": "head"} for name in ROUNDS if "private" in keywords(METHODS[name])}
PLAIN = [name for name in ROUNDS if name != "fedbn"]  # this network has no norm to keep


@pytest.mark.parametrize("name, given", [*((name, {}) for name in PLAIN), *PRIVATE.items()])
def test_all_that_a_client_keeps_is_forgotten(name, given):
    net = moml.mlp(3, 4, 2)
    loss = moml.cross_entropy(net.predict)
    if "features" in keywords(METHODS[name]):
        given = given | {"features": net.features}
    chosen = moml.methods.method(name, loss, n=7, **given)
    params = net.init(jax.random.key(0))
    start = chosen.algorithm.init(params, hyper_of(chosen, params, {}))
    rows = jax.tree.broadcast(chosen.algorithm.rows, start)
    assert all(jax.tree.leaves(rows.memory)) and not any(jax.tree.leaves(rows.meta))
    moved = jax.tree.map(lambda leaf: np.asarray(leaf) + 1, start)
    state = cleared(moved, start, rows, [2])
    for new, old, first in zip(
        *(jax.tree.leaves(each.memory) for each in (state, moved, start)), strict=True
    ):
        np.testing.assert_array_equal(new[2], first[2])
        np.testing.assert_array_equal(np.delete(new, 2, 0), np.delete(old, 2, 0))
    learner = Learner(chosen, state.meta, chosen.hyper, TrainingState(state, 1), np.zeros(0), 0)
    if chosen.algorithm.rounds.kept is not None:
        jax.tree.map(lambda leaf: leaf.shape, learner.personal(3))
        with pytest.raises(ConfigError, match="client 2 keeps no model: it was in no round, or is"):
            learner.personal(2)


def test_a_method_without_memories_has_nothing_to_forget(tmp_path):
    config = replace(STARTS["sine"], method="maml")
    write_record(tmp_path, config, {})
    with pytest.raises(ConfigError, match="method maml, which keeps nothing of single tasks"):
        forget(tmp_path, ["3"])
    with pytest.raises(ConfigError, match="numbers from 0 to 24; got 'u3'"):
        forget(tmp_path, ["u3"])


@pytest.mark.usefixtures("data")
def test_every_checkpoint_of_a_run_forgets_and_the_run_goes_on(done, tmp_path, caplog, capsys):
    folder, config, job = done
    run = Path(shutil.copytree(folder, tmp_path / "run"))
    like = job.execution.shapes()
    read = lambda: _states(run, like)
    before = read()
    [task] = [4]
    rows = {
        np.ascontiguousarray(leaf[task]).tobytes()
        for state in before.values()
        for leaf in jax.tree.leaves(state.memory.u)
    }
    rows = {row for row in rows if any(row)}
    whole = lambda: [name for name, data in everything(run).items() if any(r in data for r in rows)]
    assert rows and whole()
    score(run)
    assert (run / "clients.json").exists()
    shutil.copytree(run / "checkpoints" / "0000000006", run / "checkpoints" / ".old-0000000001")
    code, told, _ = call(capsys, "forget", run, "--task", task)
    assert code == 0
    assert "the trace in the common parameters w" in told and "would learn it again" in told
    assert not whole() and not (run / "clients.json").exists()
    after = read()
    assert list(after) == list(before) and len(after) > 1
    for step, state in after.items():
        assert not any(np.any(leaf[task]) for leaf in jax.tree.leaves(state.memory))
        others = np.arange(config.problem.n) != task
        same = lambda a, b, others=others: np.testing.assert_array_equal(a[others], b[others])
        jax.tree.map(same, state.memory, before[step].memory)
        jax.tree.map(np.testing.assert_array_equal, state.meta, before[step].meta)
    for step in [*after][1:]:
        shutil.rmtree(run / "checkpoints" / f"{step:010d}")
    runs.resume(run)
    assert "still in the data: task 4" in caplog.text
    assert [*read()][-1] == [*after][-1]
    assert forget(run, [str(task)])[0].startswith("1 forgotten")  # again does no harm


def test_a_damaged_log_of_memories_lists_nobody_as_forgotten(tmp_path):
    sine = replace(STARTS["sine"], iterations=20, log_every=5, score_every=0, test_tasks=2)
    sine = replace(sine, method="moml", eager=True, memory="disk", save_seconds=0.0)
    folder = tmp_path / "run"
    runs.train(replace(sine, problem=replace(sine.problem, hidden=(4,), n=8)), folder)
    before = (folder / "run.json").read_bytes()
    log = max(folder.rglob("undo-*"))
    good = log.read_bytes()
    log.write_bytes(bytes([good[0] ^ 1]) + good[1:])
    with pytest.raises(CheckpointError, match=r"undo-.* is damaged at byte 0; .*not forgotten"):
        forget(folder, ["3"])
    assert (folder / "run.json").read_bytes() == before
    log.write_bytes(good)
    forget(folder, ["3"])
    assert json.loads((folder / "run.json").read_text())["forgotten"] == [3]


def _states(run, like):
    found = {}
    with Checkpoints(run / "checkpoints", 9) as kept:
        for step in kept.steps():
            only = run.parent / "only"
            shutil.copytree(kept.path(step), only / kept.path(step).name)
            with Checkpoints(only, 9) as one:
                found[step] = one.load(like).state
            shutil.rmtree(only)
    return found
