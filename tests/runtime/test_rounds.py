"""The compiled simulator is a plain loop over clients, whatever happens to them."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moml.config.config import options_of
from moml.errors import ConfigError
from moml.methods import METHODS as ALL
from moml.methods import method
from moml.runtime import simulate
from moml.tasks import sine
from moml.tasks.sampler import _draw_turnout, draw, fetch
from moml.types import SampleSpec, Task, TaskBatch, Turnout
from tests.algorithms.common import (
    HEAD,
    HYPER,
    K,
    N,
    T,
    World,
    assert_close,
    at,
    clients,
    features,
    flat,
    head_world,
    quick_jit,
    sigmoid_world,
)
from tests.reference import adaptation
from tests.reference.alone import alone
from tests.reference.apfl import apfl
from tests.reference.ditto import ditto
from tests.reference.fedala import fedala
from tests.reference.fedavg import fedavg
from tests.reference.fedavg_memory import fedavg_memory
from tests.reference.feddbe import feddbe
from tests.reference.feddyn import feddyn
from tests.reference.fedopt import adaptive, fedavgm
from tests.reference.fedper import fedbabu, fedper, fedrep
from tests.reference.fedprox import fedprox
from tests.reference.localmoml import localmoml
from tests.reference.perfedavg import perfedavg
from tests.reference.pfedme import pfedme
from tests.reference.problem import SIGMOID
from tests.reference.scaffold import scaffold
from tests.support.often import ROUNDS, often

SIZES = (12, 3, 7, 5, 12, 9, 4)  # some have fewer rows than a visit draws
LAMBDA, R, BETA_S = 0.8, 4, 0.7
KEY = 12
SHARED = ("eta", "alpha", "beta")  # the numbers that all cases have from HYPER
ETA, ALPHA, BETA = HYPER.eta, HYPER.alpha, HYPER.beta


def adapting(**options: Any) -> adaptation.Adaptation:
    return adaptation.gradient_steps(SIGMOID, ALPHA, **options)


def slow_pfedme(w: Any, rounds: Any) -> Any:
    sizes = {"eta": ETA, "alpha": ALPHA, "lam": LAMBDA, "R": R, "beta_s": BETA_S}
    return pfedme(SIGMOID, w, rounds, **sizes), {}


ADAPTIVE = {"server_rate": 0.1, "b1": 0.7, "b2": 0.8, "tau": 0.05}


def slow_adaptive(rule: str) -> Any:
    numbers = {"eta": 0.1, "beta1": 0.7, "beta2": 0.8, "tau": 0.05, "eta_l": ETA}
    return lambda w, rounds: (adaptive(SIGMOID, w, rounds, rule=rule, **numbers), {})


def slow_fedala(w: Any, rounds: Any) -> Any:
    sizes = {"eta": ETA, "mix_eta": 5.0, "mix_steps": 4, "upper": HEAD}
    return fedala(SIGMOID, w, rounds, **sizes)


# name of a method -> its options, and the slow loop over clients: (w, rounds) -> path, what is kept
PLAIN = adapting()
FIRST, DIFFERENCE = (
    adapting(times_hessian=h) for h in (adaptation.first_order, adaptation.finite_difference)
)
slow_local = lambda w, rounds: localmoml(PLAIN, w, rounds, eta=ETA, beta=BETA)
slow_private = lambda private: (
    lambda w, rounds: fedper(SIGMOID, w, rounds, eta=ETA, private=private)
)
slow_per_fedavg = lambda A: lambda w, rounds: (perfedavg(A, w, rounds, eta=ETA), {})
METHODS: dict[str, Any] = {
    "localmoml": ("localmoml", {}, slow_local),
    "localmoml carried": ("localmoml", {"carried": True}, slow_local),
    "localmoml independent": ("localmoml", {"independent_hessian": True}, slow_local),
    "per-fedavg": ("per-fedavg", {}, slow_per_fedavg(PLAIN)),
    "per-fedavg first-order": (
        "per-fedavg", {"curvature": "first-order"}, slow_per_fedavg(FIRST),
    ),
    "per-fedavg Hessian-free": (
        "per-fedavg", {"curvature": "finite-difference"}, slow_per_fedavg(DIFFERENCE),
    ),
    "pfedme": (
        "pfedme", {"prox": LAMBDA, "prox_steps": R, "server_rate": BETA_S}, slow_pfedme,
    ),
    "fedavg": ("fedavg", {}, lambda w, rounds: (fedavg(SIGMOID, w, rounds, eta=ETA), {})),
    "fedavg-memory": (
        "fedavg-memory",
        {},
        lambda w, rounds: fedavg_memory(SIGMOID, w, rounds, eta=ETA, beta=BETA),
    ),
    "ditto": (
        "ditto",
        {"prox": LAMBDA},
        lambda w, rounds: ditto(SIGMOID, w, rounds, eta=ETA, alpha=ALPHA, lam=LAMBDA),
    ),
    "fedprox": (
        "fedprox",
        {"prox": LAMBDA},
        lambda w, rounds: (fedprox(SIGMOID, w, rounds, eta=ETA, mu=LAMBDA), {}),
    ),
    "scaffold": (
        "scaffold",
        {"server_rate": 1.5},
        lambda w, rounds: scaffold(SIGMOID, w, rounds, N=N, eta_l=ETA, eta_g=1.5),
    ),
    "feddyn": (
        "feddyn",
        {"prox": LAMBDA},
        lambda w, rounds: feddyn(SIGMOID, w, rounds, m=N, eta=ETA, alpha=LAMBDA),
    ),
    "fedavgm": (
        "fedavgm",
        {"server_rate": BETA_S, "b1": 0.6},
        lambda w, rounds: (fedavgm(SIGMOID, w, rounds, eta_l=ETA, eta=BETA_S, beta=0.6), {}),
    ),
    "fedadam": ("fedadam", ADAPTIVE, slow_adaptive("adam")),
    "fedyogi": ("fedyogi", ADAPTIVE, slow_adaptive("yogi")),
    "local": ("local", {}, lambda w, rounds: alone(SIGMOID, w, rounds, eta=ETA)),
    "fedper": ("fedper", {}, slow_private(HEAD)),
    "lg-fedavg": ("lg-fedavg", {}, slow_private(~HEAD)),
    "fedbn": ("fedbn", {"private": "body"}, slow_private(~HEAD)),
    "fedrep": (
        "fedrep",
        {"head_passes": 3},
        lambda w, rounds: fedrep(SIGMOID, w, rounds, eta=ETA, head=HEAD, passes=3),
    ),
    "fedbabu": (
        "fedbabu", {}, lambda w, rounds: (fedbabu(SIGMOID, w, rounds, eta=ETA, head=HEAD), {}),
    ),
    "apfl": (
        "apfl",
        {"mix": 0.3},
        lambda w, rounds: apfl(SIGMOID, w, rounds, eta=ETA, mix=0.3, adaptive=True),
    ),
    "apfl fixed": (
        "apfl",
        {"mix": 0.3, "adaptive": False},
        lambda w, rounds: apfl(SIGMOID, w, rounds, eta=ETA, mix=0.3, adaptive=False),
    ),
    "fedala": ("fedala", {"mix_eta": 5.0, "mix_steps": 4}, slow_fedala),
    "feddbe": (
        "feddbe",
        {"features": features, "kappa": 0.7, "shift_rate": 0.5},
        lambda w, rounds: feddbe(w, rounds, eta=ETA, kappa=0.7, shift_rate=0.5),
    ),
}  # fmt: skip
EVERYTHING = {"dropout": 0.5, "straggle": 0.5, "weighted": True, "at_once": 2}
ALONE = [{}, {"dropout": 0.5}, {"straggle": 0.5}, {"weighted": True}, {"at_once": 2}]


def world_of(name: str) -> World:
    """Clients of unequal sizes, with a model that the method takes."""
    return (head_world if name == "feddbe" else sigmoid_world)(sizes=SIZES)


def compose(name: str, **options: Any) -> Any:
    shape = {"tasks_per_step": 3, "k": K, "local_steps": 4}
    return method(name, world_of(name).loss, n=N, **(shape | options))


@cache
def visits_of(need: SampleSpec, rounds: int = T, name: str = "") -> Any:
    """What the first rounds of the key draw, of clients of unequal sizes."""
    tasks = world_of(name).tasks
    one = lambda t: draw(jax.random.fold_in(jax.random.key(KEY), t), need, tasks)
    return quick_jit(jax.vmap(lambda t: fetch(one(t), tasks)))(jnp.arange(rounds))


def simulated(m: Any) -> tuple[np.ndarray, Any]:
    """The model after every round of the compiled simulator, and its last state."""
    world = world_of(m.name)
    program = simulate.Program(
        simulate.draws(m.algorithm.needs), quick_jit(simulate.stretch(m.algorithm))
    )
    own = {name: value for name, value in m.hyper._asdict().items() if name not in SHARED}
    own = {name: x for name, x in m.hyper._asdict().items() if name not in ("eta", "alpha", "beta")}
    hyper = jax.tree.map(jnp.asarray, HYPER._replace(**own))
    state, metas = m.algorithm.init(world.params, hyper), []
    for t in range(T):
        state, info = program(state, world.tasks, jax.random.key(KEY), t, hyper, 1, 1)
        metas.append(flat(state.meta))
        assert np.isfinite(info.loss).all()
    return np.stack(metas), state


def check(m: Any, slow: Any) -> None:
    visits = visits_of(m.algorithm.needs, name=m.name)
    rounds = [clients(at(visits, t)) for t in range(T)]
    w = flat(world_of(m.name).params)
    path, kept = slow(w, rounds)
    metas, state = simulated(m)
    rough = m.options.get("curvature") == "finite-difference"
    rtol = 1e-11 if rough else 1e-12  # as in test_references
    assert_close(metas, np.stack(path), rtol)
    ends = kept.values() if m.name == "local" else path[-1:]
    assert all(np.linalg.norm(end - w) > 1e-2 * np.linalg.norm(w) for end in ends)
    if not kept:
        assert state.memory == ()
        return
    rows, known = m.memory.recall(state.memory, jnp.arange(N))
    assert known.tolist() == [i in kept for i in range(N)]
    assert_close(flat(rows, 1)[list(kept)], np.stack(list(kept.values())), rtol)


@pytest.mark.parametrize("name", often(METHODS, ROUNDS | {"localmoml carried", "fedavg-memory"}))
def test_the_simulator_is_a_loop_over_clients(name):
    recipe, options, slow = METHODS[name]
    check(compose(recipe, **options, **EVERYTHING), slow)


@pytest.mark.parametrize("alone", ALONE, ids=lambda options: "".join(options) or "plain")
def test_and_so_with_each_thing_alone(alone):
    recipe, options, slow = METHODS["localmoml carried"]
    check(compose(recipe, **options, **alone), slow)


def test_the_rounds_of_these_tests_have_it_all():
    turnout = visits_of(compose("fedavg", **EVERYTHING).algorithm.needs).turnout
    count = np.asarray(turnout.present).sum(axis=1)
    assert set(count.tolist()) == {0, 1, 2, 3}
    assert set(np.asarray(turnout.steps).ravel().tolist()) == {1, 2, 3, 4}
    assert set(np.asarray(turnout.weight).ravel().tolist()) == set(SIZES)


def test_every_method_with_rounds_is_here():
    federated = {name for name in ALL if "local_steps" in options_of(name)}
    assert federated == {recipe for recipe, *_ in METHODS.values()}


@pytest.mark.parametrize("at_once", [1, 2, 7, 100])
@pytest.mark.parametrize("name", ["localmoml carried"])
def test_slices_give_the_same_answer(name, at_once):
    recipe, options, _ = METHODS[name]
    whole, sliced = (
        simulated(compose(recipe, **options, **more, dropout=0.2, tasks_per_step=N))
        for more in ({}, {"at_once": at_once})
    )
    assert_close(sliced[0], whole[0], 1e-12)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), sliced[1], whole[1])


def test_a_processor_takes_as_many_clients_as_fit(monkeypatch):
    """And gives the same answer; another device takes all at once."""
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(sigmoid_world().params))
    options = {"carried": True, "dropout": 0.2, "tasks_per_step": N}
    m, whole = compose("localmoml", **options), compose("localmoml", **options, at_once=N)
    visit = at(visits_of(m.algorithm.needs), 0)
    hyper = jax.tree.map(jnp.asarray, HYPER)
    state = m.algorithm.init(sigmoid_world().params, hyper)

    def loops(m: Any, platform: str) -> int:
        traced = jax.jit(m.algorithm.step).trace(state, visit, hyper)
        return traced.lower(lowering_platforms=(platform,)).as_text().count("stablehlo.while")

    monkeypatch.setattr("moml.algorithms.federated.rounds.CACHE", 3 * size)
    assert loops(m, "cuda") == loops(whole, "cuda") == loops(whole, "cpu") < loops(m, "cpu")
    (path, sliced), (all_at_once, end) = simulated(m), simulated(whole)
    assert_close(path, all_at_once, 1e-12)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), sliced, end)


# By hand: loss (w - c)^2 / 2 on one number, w = 0, eta = 1/2. A step goes half the way to c.
def by_hand(turnout: Turnout | None, c: Any = (8.0, 16.0, 32.0), **options: Any) -> Any:
    loss = lambda w, x: jnp.mean((w - x) ** 2) / 2
    m = method("fedavg", loss, n=3, tasks_per_step=3, local_steps=2, **options)
    hyper = jax.tree.map(jnp.asarray, HYPER._replace(eta=0.5))
    support = jnp.broadcast_to(jnp.asarray(c)[:, None, None], (3, 2, 1))
    visit = TaskBatch(jnp.arange(3), Task(support), turnout)
    return m.algorithm.step(m.algorithm.init(jnp.asarray(0.0), hyper), visit, hyper)


def turnout(present: Any = (True,) * 3, steps: Any = (2,) * 3, weight: Any = (1,) * 3) -> Turnout:
    whole = lambda x: jnp.asarray(x, jnp.int32)
    return Turnout(jnp.asarray(present), whole(steps), whole(weight))


@pytest.mark.parametrize(
    "given, meta, loss",
    [
        (None, (6 + 12 + 24) / 3, (20 + 80 + 320) / 3),  # losses c^2 / 2 then c^2 / 8, their mean
        (turnout(), 14, 140),
        (turnout(present=(True, False, True)), (6 + 24) / 2, (20 + 320) / 2),
        (turnout(present=(False,) * 3), 0, 140),
        (turnout(steps=(2, 1, 1)), (6 + 8 + 16) / 3, (20 + 128 + 512) / 3),
        (turnout(weight=(1, 2, 5)), (6 + 24 + 120) / 8, (20 + 160 + 1600) / 8),
        (turnout((False, True, True), (1, 1, 2), (9, 1, 3)), (8 + 72) / 4, (128 + 960) / 4),
    ],
)
def test_a_round_by_hand(given, meta, loss):
    state, info = by_hand(given)
    assert float(state.meta) == pytest.approx(meta, rel=1e-14)
    assert float(info.loss) == pytest.approx(loss, rel=1e-14)
    assert float(info.norm) == pytest.approx(meta, rel=1e-14)


def test_what_is_lost_cannot_spoil_the_mean():
    state, info = by_hand(turnout(present=(True, False, True)), c=(8.0, np.inf, 32.0))
    assert float(state.meta) == 15 and float(info.loss) == 170


def test_a_client_that_fails_keeps_its_memory():
    """Also the first time: then it has none, and begins anew later."""
    m = compose("localmoml", carried=True, dropout=0.5)
    visits = visits_of(m.algorithm.needs)
    state, step = m.algorithm.init(sigmoid_world().params, HYPER), quick_jit(m.algorithm.step)
    for t in range(12):
        visit = jax.tree.map(jnp.asarray, at(visits, t))
        before, (state, _) = state.memory, step(state, visit, HYPER)
        there = set(np.asarray(visit.ids)[np.asarray(visit.turnout.present)].tolist())
        moved = np.any(flat(before.u, 1) != flat(state.memory.u, 1), axis=1)
        assert set(np.flatnonzero(moved).tolist()) == there
        more = np.asarray(state.memory.visits - before.visits)
        assert more.tolist() == [int(i in there) for i in range(N)]


@pytest.mark.parametrize("restart", [0, 4])
def test_a_turnout_does_not_shift_the_stream(restart):
    tasks = sigmoid_world(sizes=SIZES).tasks
    need = SampleSpec(3, support=K, query=K, restart=restart, visits=4)
    busy = need._replace(dropout=0.5, straggle=0.5, weighted=True)
    drawn = lambda key: [draw(key, each, tasks) for each in (need, busy)]
    for seed in range(5):
        plain, other = quick_jit(drawn)(jax.random.key(seed))
        assert plain.turnout is None and other.turnout is not None
        alike = other._replace(turnout=None)
        jax.tree.map(np.testing.assert_array_equal, alike, plain)


def test_a_turnout_has_a_key_of_its_own():
    """Not one that draws clients or samples: who fails must not hang on what was drawn."""
    tasks, need = (
        sigmoid_world().tasks,
        SampleSpec(7, support=1, visits=4, dropout=0.5, straggle=0.5),
    )
    one = jax.jit(lambda key: draw(key, need, tasks).turnout.present)
    other = jax.jit(lambda key: _draw_turnout(key, need, tasks, ids).present)
    ids, drawn = jnp.arange(7, dtype=jnp.int32), one(jax.random.key(0))
    own = jax.random.fold_in(jax.random.key(0), 0)  # of the first need
    for key in jax.random.split(own, 3):
        assert np.any(other(key) != drawn)
    assert np.all(other(jax.random.fold_in(own, 3)) == drawn)


def test_how_often_clients_fail_and_straggle():
    need = SampleSpec(3, support=1, visits=5, dropout=0.3, straggle=0.4)
    one = lambda key: draw(key, need, sigmoid_world().tasks).turnout
    many = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), 20_000))
    assert np.mean(many.present) == pytest.approx(0.7, abs=0.01)
    share = [np.mean(np.asarray(many.steps) == h) for h in range(1, 6)]
    assert share == pytest.approx([0.1, 0.1, 0.1, 0.1, 0.6], abs=0.01)
    assert np.all(np.asarray(many.weight) == 1)
    both = np.mean(~many.present & (many.steps < 5))
    assert both == pytest.approx(0.3 * 0.4, abs=0.01)  # independent of each other


def test_tasks_without_end_have_no_weight():
    with pytest.raises(ConfigError, match="tasks must have known sizes"):
        draw(jax.random.key(0), SampleSpec(3, support=1, weighted=True), sine())


@pytest.mark.parametrize(
    "options, words",
    [
        ({"dropout": 1.0}, ["dropout", "in [0, 1)", "1.0"]),
        ({"dropout": -0.5}, ["dropout", "-0.5"]),
        ({"straggle": 1.5}, ["straggle", "in [0, 1]", "1.5"]),
        ({"straggle": float("nan")}, ["straggle", "nan"]),
        ({"straggle": 0.5, "local_steps": 1}, ["straggle", "local_steps"]),
        ({"at_once": 0}, ["at_once", "from 1", "0"]),
        ({"prox": 0.0}, ["prox", "positive", "0.0"]),
        ({"prox_steps": 0}, ["prox_steps", "from 1"]),
        ({"server_rate": 1.5}, ["server_rate", "in (0, 1]", "1.5"]),
        ({"carried": True}, ["pfedme", "carried"]),
        ({"curvature": "exact"}, ["pfedme", "curvature"]),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(options, words):
    with pytest.raises(ConfigError) as refused:
        compose("pfedme", **options)
    assert all(word in str(refused.value) for word in words)
    assert "\n" not in str(refused.value)
