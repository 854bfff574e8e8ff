"""What a run's rounds have cost, in its metrics, against counts by hand."""

import shutil
import signal
from dataclasses import replace

import jax
import numpy as np
import pytest

from moml.runs.job import many, plan_of, single
from moml.runs.runs import load, resume, spent
from moml.storage.metrics import read
from moml.tasks.sampler import draw
from moml.training.compose import run_key
from tests.support.processes import begun, ended, finished, last_state, lines, until
from tests.support.small_mnist import SCRIPT, SIZE, TINY

pytestmark = pytest.mark.usefixtures("data")
ROUNDS = 6  # 12 iterations of 2 local steps


def by_hand(config, seed=0, rounds=ROUNDS):
    """Round after round, client after client; a memory that is carried, exact curvature."""
    plan, key = plan_of(config), run_key(seed)
    total = dict.fromkeys(("down", "up", "gradients", "products", "samples"), 0)
    visits = jax.jit(lambda key: draw(key, plan.method.algorithm.needs, plan.built.tasks))
    for t in range(rounds):
        visit = visits(jax.random.fold_in(key, t))
        for present, steps in zip(visit.turnout.present, visit.turnout.steps, strict=True):
            total["down"] += SIZE
            total["up"] += SIZE if present else 0
            total["gradients"] += 2 * int(steps)  # at w on S1, at u on S3
            total["products"] += int(steps)
            total["samples"] += 4 * int(steps)  # K = 2 in each of S1, S3
    return total


def test_the_last_line_is_the_count_by_hand(done):
    folder, config, _ = done
    assert spent(folder) == read(folder / "metrics.jsonl")[-1]["cost"] == by_hand(config)
    assert [row["cost"]["down"] for row in read(folder / "metrics.jsonl")] == [
        6 * SIZE, 12 * SIZE, 18 * SIZE,
    ]  # fmt: skip


def test_up_is_what_the_memories_saw(done):
    """A carried memory counts the rounds in which its client was heard: they trained so."""
    folder, _, _ = done
    heard = int(np.sum(load(folder).state.memory.visits))
    assert 0 < heard < 18 and spent(folder)["up"] == heard * SIZE


def test_where_all_answer_it_is_a_product():
    job = single(replace(TINY, weighted=True))
    each = 2 * 2 + 1, 2, 2 * 4 + 4  # gradients with the restart, products, samples and K0 = 2K
    assert job.cost(5, ROUNDS) == tuple(ROUNDS * 3 * one for one in (SIZE, SIZE, *each))
    assert job.cost(0, ROUNDS).samples == job.plan.samples(ROUNDS)


def test_single_node_methods_have_no_rounds():
    assert single(replace(TINY, method="maml", local_steps=None)).cost is None


def test_members_of_a_sweep_have_costs_of_their_own(done):
    config = done[1]
    job = many(config, [{"seed": 0}, {"seed": 1}], plan_of(config))
    got = {name: value.tolist() for name, value in job.cost(0, ROUNDS)._asdict().items()}
    one, other = by_hand(config), by_hand(config, seed=1)
    assert got == {name: [one[name], other[name]] for name in one}
    assert one["up"] != other["up"]
    alike = many(TINY, [{"seed": 0}, {"seed": 1}], plan_of(TINY))
    assert int(alike.cost(3, 2).down) == 2 * 3 * SIZE


def test_resumed_from_an_earlier_checkpoint_all_bytes_are_the_same(done, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(done[0], folder)
    shutil.rmtree(folder / "checkpoints" / f"{ROUNDS:010d}")
    resume(folder)
    assert last_state(folder) == last_state(done[0])
    assert (folder / "metrics.jsonl").read_bytes() == (done[0] / "metrics.jsonl").read_bytes()


def test_a_changed_dropout_counts_from_where_it_changed(done, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(done[0], folder)
    file = folder / "config.toml"
    text = file.read_text().replace("iterations = 12\n", "iterations = 20\n")
    file.write_text(text.replace("dropout = 0.4\n", "dropout = 0.0\n"))
    resume(folder, ["iterations", "dropout"])
    assert spent(folder)["up"] == spent(done[0])["up"] + 4 * 3 * SIZE
    heard = int(np.sum(load(folder).state.memory.visits))
    assert spent(folder)["up"] == heard * SIZE


@pytest.mark.slow
def test_killed_and_resumed_it_ends_the_same(tmp_path, root):
    """In real processes; the counts too come from wherever it was killed."""
    words = [
        "train", "mnist-clients", "--method", "localmoml", "--problem.n", 6, "--problem.a", 8,
        "--problem.hidden", 3, "--k", 2, "--tasks-per-step", 3, "--local-steps", 2,
        "--carried", "True", "--dropout", 0.4,
        "--straggle", 0.5, "--iterations", 40_000, "--log-every", 20, "--score-every", 20_000,
        "--save-seconds", 0,
    ]  # fmt: skip
    given = {"script": SCRIPT, "MOML_DATA": str(root)}
    whole, run = tmp_path / "whole", tmp_path / "run"
    finished(*words, "--out", whole, **given)
    process = begun(*words, "--out", run, **given)
    assert until(process, lambda: lines(run / "metrics.jsonl") > 99), ended(process)
    process.send_signal(signal.SIGKILL)
    ended(process)
    assert process.returncode == -signal.SIGKILL and lines(run / "metrics.jsonl") < 2000
    out, _ = finished("resume", run, **given)
    assert "cost: " in out
    with jax.enable_x64(False):  # as the processes had it
        one, two = last_state(run), last_state(whole)
    assert one == two and any(".memory.u" in name for name in one)
    assert (run / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
