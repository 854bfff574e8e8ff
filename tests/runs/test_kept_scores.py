"""Runs whose clients keep models are scored by these: in memory, on disk, on a mesh, in a sweep."""

from dataclasses import replace

import jax
import numpy as np
import pytest

import moml
from moml.errors import ConfigError
from moml.runs.job import plan_of
from moml.runs.runs import resume, train
from moml.runs.score import score
from moml.runs.sweeps import sweep_run
from moml.runtime.mesh import mesh
from moml.storage.metrics import read
from tests.support.client_rows import accuracies, figure, last, picked
from tests.support.program import call
from tests.support.small_mnist import DITTO

pytestmark = pytest.mark.usefixtures("data")


def test_the_run_is_scored_by_the_models_that_clients_keep(ditto):
    folder, config, _ = ditto
    learner = moml.load(folder)
    kept = accuracies(config, [learner.personal(i) for i in range(6)])
    assert last(folder) == pytest.approx(kept.mean())
    _, rows = score(folder)
    assert figure(rows, model="kept") == pytest.approx(kept.mean())
    for i in range(6):
        assert figure(rows, client=i, group="took-part", model="kept") == pytest.approx(kept[i])
    common = accuracies(config, [learner.params] * 6)
    assert figure(rows, group="took-part", model="global") == pytest.approx(common.mean())
    assert abs(kept.mean() - common.mean()) > 1
    sizes = np.asarray(plan_of(config).built.unseen.index)
    weighted = np.average(kept, weights=sizes)
    assert figure(rows, "test_accuracy_weighted", model="kept") == pytest.approx(weighted)
    worse = (kept < common).sum()
    assert figure(rows, "worse_than_global", model="kept") == worse
    assert not picked(rows, group="unseen", model="kept")
    assert picked(rows, group="unseen", model="adapted")


def test_ditto_and_fedavg_have_the_same_global_model_and_print_other_figures(
    ditto, tmp_path, capsys
):
    folder, _, _ = ditto
    train(replace(DITTO, method="fedavg"), tmp_path / "run")
    models = [moml.load(each) for each in (folder, tmp_path / "run")]
    jax.tree.map(np.testing.assert_array_equal, *(m.params for m in models))
    assert last(folder) != last(tmp_path / "run")
    _, out, _ = call(capsys, "resume", folder)
    assert "ditto, test_accuracy, kept models" in out and f"{last(folder):.3f}" in out
    _, out, _ = call(capsys, "resume", tmp_path / "run")
    assert "fedavg, test_accuracy, adapted models" in out and f"{last(tmp_path / 'run'):.3f}" in out
    _, out, _ = call(capsys, "score", tmp_path / "run")
    assert "fine-tuned, 1 epoch" in out and "kept" not in out.replace("kept_", "")


def test_memories_on_disk_and_on_a_mesh_are_scored_alike(ditto, tmp_path):
    folder, _, _ = ditto
    wanted = [row["score"] for row in read(folder / "metrics.jsonl")]
    train(replace(DITTO, memory="disk"), tmp_path / "disk")
    train(DITTO, tmp_path / "mesh", mesh=mesh(1))
    for other in ("disk", "mesh"):
        found = [row["score"] for row in read(tmp_path / other / "metrics.jsonl")]
        np.testing.assert_allclose(found, wanted, rtol=1e-9)
    here, there = (score(place)[1] for place in (folder, tmp_path / "disk"))
    np.testing.assert_allclose([r["mean"] for r in here], [r["mean"] for r in there], rtol=1e-9)
    with pytest.raises(ConfigError, match="memories are on disk, where `moml score RUN` reads"):
        moml.load(tmp_path / "disk").personal(0)


def test_rows_on_disk_are_those_of_the_checkpoint(tmp_path):
    """The run is stopped after rounds that no checkpoint has: the rows on disk are ahead."""
    config = replace(DITTO, memory="disk", save_seconds=1e6)
    stop = lambda info: info.step >= 4
    train(config, tmp_path / "run", callback=stop)
    before = score(tmp_path / "run")[1]
    seen = []

    def die(info):
        seen.append(info.step)
        if info.step >= 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        resume(tmp_path / "run", callback=die)
    assert seen == [6, 8] and moml.load(tmp_path / "run").state.step == 4
    after = score(tmp_path / "run")[1]
    assert [row["mean"] for row in after] == [row["mean"] for row in before]
    resume(tmp_path / "run")  # nothing was spoiled


def test_members_of_a_sweep_are_scored_by_what_their_clients_keep(ditto, tmp_path):
    _, rows = sweep_run(DITTO, tmp_path / "sweep", {}, 2)
    train(replace(DITTO, seed=1), tmp_path / "one")
    assert rows[0]["setting"]["model"] == "kept"
    np.testing.assert_allclose(rows[0]["values"], [last(ditto[0]), last(tmp_path / "one")])


def test_clients_that_no_round_has_drawn_are_fine_tuned(tmp_path):
    train(replace(DITTO, iterations=2), tmp_path / "run")  # one round of three clients
    learner = moml.load(tmp_path / "run")
    drawn = np.asarray(learner.state.memory.visits) > 0
    _, rows = score(tmp_path / "run")
    for group, model in (("took-part", "kept"), ("not-drawn", "fine-tuned")):
        (row, *_) = picked(rows, group=group, model=model)
        assert row["setting"]["clients"] == 3
    assert not picked(rows, group="took-part", model="fine-tuned")
    named = {r["setting"]["client"] for r in rows if r["setting"].get("model") == "fine-tuned"
             and "client" in r["setting"]}  # fmt: skip
    assert named == set(np.flatnonzero(~drawn).tolist())
    kept = [learner.personal(int(i)) for i in np.flatnonzero(drawn)]
    every = dict(zip(np.flatnonzero(drawn).tolist(), kept, strict=True))
    mine = accuracies(DITTO, [every.get(i, learner.params) for i in range(6)])
    assert last(tmp_path / "run") == pytest.approx(mine[drawn].mean())
