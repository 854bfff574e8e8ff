"""Callbacks, and training that continues from a state."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import moml
from moml.config.config import Config
from moml.config.problems import Sine
from moml.errors import ConfigError
from moml.runs.runs import train
from moml.training.compose import init_key
from moml.training.loop import TrainingInfo
from tests.storage.test_checkpoint import same_bytes

NET = moml.mlp(1, 8, 1, activation=jnp.tanh)
LOSS = moml.mse(NET.predict)


def fit(name="moml-v1", **given):
    start = NET.init(init_key(0))
    return moml.fit(name, LOSS, start, moml.sine(), **({"iterations": 40, "chunk": 10} | given))


@pytest.mark.parametrize(
    "name, given",
    [
        ("moml-v1", {"eager": True}),
        ("moml-v2", {"schedule": moml.parts.decay_at(25, 0.1)}),
        ("localmoml", {"carried": True, "dropout": 0.3, "local_steps": 2}),
        ("bspiderboost", {"period": 5, "chunk": 2}),
    ],
)
def test_a_and_then_b_is_a_plus_b(name, given):
    """Draws and schedules depend on the number of the step, which the state knows."""
    whole = fit(name, **given)
    first = fit(name, **given, iterations=20)
    kept = jax.tree.map(np.array, first.state)
    rest = fit(name, **given, iterations=20, state=first.state)
    same_bytes(rest.state, whole.state)
    same_bytes(rest.meta, whole.meta)
    np.testing.assert_array_equal(np.concatenate([first.history, rest.history]), whole.history)
    assert rest.samples == whole.samples and rest.state.step == whole.state.step
    same_bytes(first.state, kept)  # a copy was trained


def test_a_loaded_run_continues_in_memory(tmp_path):
    problem = Sine(hidden=(8,))
    given = {"method": "moml-v1", "decay_after": 1.0, "log_every": 10, "score_every": 0}
    config = Config(problem, iterations=20, test_tasks=5, **given)
    config, _ = train(config, tmp_path / "run")
    learner, net = moml.load(tmp_path / "run"), moml.mlp(1, 8, 1)
    sizes = {name: config.option(name) for name in ("eta", "beta", "alpha", "k")}
    start, loss = net.init(init_key(0)), moml.mse(net.predict)
    more = {"iterations": 20, "chunk": 10, **sizes}
    rest = moml.fit("moml-v1", loss, start, moml.sine(), state=learner.state, **more)
    whole = moml.fit("moml-v1", loss, start, moml.sine(), **(more | {"iterations": 40}))
    same_bytes(rest.state, whole.state)


def test_a_state_of_something_else_is_refused():
    with pytest.raises(ConfigError, match="state must be of the same method, network and"):
        fit("maml", state=fit(iterations=10).state)


def test_a_callback_sees_the_training_and_may_stop_it():
    seen = []

    def watch(info):
        seen.append(info)
        return info.step >= 20

    learner = fit(callback=watch)
    assert [info.step for info in seen] == [10, 20] and len(learner.history) == 20
    same_bytes(learner.state, fit(iterations=20).state)
    same_bytes(seen[-1].meta, learner.meta)
    assert float(seen[0].loss) == pytest.approx(learner.history[:10].mean())
    assert seen[0].norm > 0 and seen[0].score is None and seen[0].hyper == learner.hyper
    assert isinstance(seen[0], TrainingInfo)
    assert len(fit(callback=lambda info: np.bool_(True)).history) == 10


def test_of_a_sweep_all_members_are_seen():
    seen = []
    many = moml.sweep(
        "maml", LOSS, NET.init, moml.sine(), seeds=2, grid={"eta": [0.01, 1e8]}, iterations=400,
        chunk=100, k=2, callback=lambda info: seen.append(info) or info.step == 300,
    )  # fmt: skip
    assert [info.step for info in seen] == [100, 200, 300] and many.history.shape == (4, 3)
    assert np.isnan(seen[-1].loss).tolist() == many.lost.tolist() == [False, False, True, True]
    same_bytes(seen[-1].meta, many.meta)
    np.testing.assert_array_equal(seen[0].hyper.eta, many.hyper.eta)
