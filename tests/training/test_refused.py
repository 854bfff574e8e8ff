"""Careless arguments: what must hold and what was given, in a line; or a warning."""

import re

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import optax
import pytest

import moml
from moml.errors import ConfigError, DataError, MomlWarning
from moml.training import check
from moml.training.check import check_samples
from moml.types import SampleSpec

NET = moml.mlp(2, 3, 1)
LOSS = moml.mse(NET.predict)
TASKS = moml.from_arrays(np.ones((4, 6, 2)), np.ones((4, 6, 1)))
SINE = moml.mlp(1, 3, 1)


def fit(name="maml", tasks=TASKS, **options):
    options = {"iterations": 2} | options
    return moml.fit(name, LOSS, NET.init(jax.random.key(0)), tasks, **options)


WRONG = {
    "no method": (lambda: fit(None), "method must be a name, a function or a Method; got None"),
    "too many samples": (
        lambda: fit(k=10**9), "samples drawn at once must be below 2^31, see k, shots; got 6,000"
    ),
    "an optax schedule": (
        lambda: fit(schedule=optax.constant_schedule(0.1)),
        "schedule must be a function of hyper-parameters and a step, see moml.parts (an optax",
    ),
    "no schedule": (lambda: fit(schedule=3), "schedule must be a function of hyper-parameters"),
    "a schedule of one number": (
        lambda: fit(schedule=lambda hyper, step: hyper.eta),
        "schedule must return the numbers alpha, eta; got ShapeDtypeStruct(shape=()",
    ),
    "a schedule of rows": (
        lambda: fit(schedule=lambda hyper, step: hyper._replace(eta=jnp.ones(3))),
        "schedule must return the numbers alpha, eta; got Hyper(",
    ),
    "a text as a rate": (
        lambda: fit(optimizer=optax.sgd(lambda step: "x")), "optimizer must give an optax transfo"
    ),
    "rows as a rate": (
        lambda: fit(optimizer=optax.sgd(lambda step: jnp.ones(3))), "optimizer must give an optax"
    ),
    "inputs alone": (lambda: moml.mlp(3), "sizes must be inputs, hidden units and outputs; got (3"),
    "a negative size": (
        lambda: moml.mlp(3, -4, 1), "each of sizes must be a whole number from 1 to 2147483647; got"
    ),
    "no classes": (lambda: moml.models.conv4(1, 0), "classes must be a whole number from 1 to"),
}  # fmt: skip
ROWS = {
    "ids": ([0, 0, 1, 1], "got 0 (from ids, moml.data.by_column(ids).rows makes them)"),
    "texts": (["a", "b", "a", "b"], "got 'a' (from ids"),
    "nothing": (None, "a client: 'NoneType' object is not iterable"),
    "empty": ([], "a client; got none"),
}


@pytest.fixture(autouse=True)
def unchecked():
    """Types are not checked, as where users call."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.parametrize("name", WRONG)
def test_a_line_says_what_must_hold(name):
    call, said = WRONG[name]
    with pytest.raises(ConfigError, match=re.escape(said)) as refused:
        call()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ROWS)
def test_rows_of_clients_are_arrays(name):
    rows, said = ROWS[name]
    with pytest.raises(DataError, match=f"one array of row numbers .*{re.escape(said)}"):
        moml.from_rows(np.ones((4, 2)), np.ones(4), rows)


def test_samples_of_a_step_fit_into_memory(monkeypatch):
    monkeypatch.setattr(check, "free_bytes", lambda: 10**9)
    check_samples(SampleSpec(1, support=10**6), moml.sine())
    with pytest.raises(ConfigError, match=r"fit into 1\.0 GB of free memory; got 3\.2 GB"):
        check_samples(SampleSpec(2, support=10**8), moml.sine())


def test_more_samples_than_a_task_has_are_a_warning():
    fit(k=3)  # S1 and S3 are all six
    with pytest.warns(MomlWarning, match="draws 8 samples of a task, the smallest has 6: samples"):
        fit(k=4)
    images = moml.episodes(np.zeros((3, 5, 2, 2, 1), np.uint8), ways=2)
    with pytest.warns(MomlWarning, match="draws 6 samples of a class, the smallest has 5"):
        check_samples(SampleSpec(1, support=3, query=3), images)


def test_pfedme_says_when_theta_has_no_room():
    made = moml.methods.pfedme(LOSS, n=4)
    assert made.hyper.alpha * made.hyper.prox < 0.5
    with pytest.warns(MomlWarning, match=r"pfedme: alpha \* prox must be below 1 .*; got 1$"):
        moml.methods.pfedme(LOSS, n=4, alpha=0.01, prox=100.0)


def test_scores_draw_no_more_than_can_be_counted():
    learner = fit()
    tasks = moml.unseen_sine(jax.random.key(0), n=3)
    with pytest.raises(ConfigError, match=r"below 2\^31, see k, shots; got 3,000,000,000"):
        moml.evaluate(learner, moml.mse(SINE.predict), tasks, shots=10**9)
