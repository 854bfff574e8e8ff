"""Every method equals its slow reference, step by step and memory by memory."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from moml.algorithms.parts.adapt import learned_steps, named
from moml.algorithms.parts.heads import closed_form
from moml.algorithms.single.engine import TwoBatches
from moml.errors import ConfigError
from moml.methods import METHODS, method
from moml.types import Hyper
from tests.algorithms.common import (
    HEAD,
    HYPER,
    B,
    K,
    N,
    T,
    World,
    assert_close,
    at,
    class_world,
    clients,
    draws,
    everyone,
    features,
    flat,
    head_world,
    loss,
    quick_jit,
    run,
    sigmoid_world,
    visits_of,
)
from tests.reference import adaptation as reference
from tests.reference.adam import Adam
from tests.reference.alone import alone
from tests.reference.apfl import apfl
from tests.reference.bspiderboost import bspiderboost
from tests.reference.closed_form import CLOSED_FORM
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
from tests.reference.maml import maml
from tests.reference.moml_v1 import both_ways, eager, moml_v1
from tests.reference.moml_v2 import moml_v2
from tests.reference.nasa import nasa
from tests.reference.perfedavg import perfedavg
from tests.reference.pfedme import pfedme
from tests.reference.problem import SIGMOID
from tests.reference.protonet import PROTONET
from tests.reference.reptile import reptile
from tests.reference.scaffold import scaffold
from tests.reference.scgd import scgd

SHARED = ("eta", "beta", "alpha", "gamma")  # the numbers that all cases have from HYPER
ALL = np.ones(5, bool)
LAMBDA, R, BETA_S = 0.8, 4, 0.7  # pFedMe's lambda, also Ditto's; its steps; its server's rate
PASSES = 3  # of FedRep's heads
plain = lambda: lambda delta: delta


def steps(k: int = 1, **options: Any) -> reference.Adaptation:
    return reference.gradient_steps(SIGMOID, HYPER.alpha, k, **options)


def learned(k: int = 1, adapts: np.ndarray = ALL, **options: Any) -> reference.Adaptation:
    return reference.learned_steps(SIGMOID, k, adapts=adapts, **options)


# A slow method: (A, w, the visits of every step, hyper, filled memories or None, outer rule)
# -> the path of w, and the memories at its end (None: it has none).
def slow_maml(A: Any, w: Any, visits: Any, h: Hyper, u: Any, outer: Any) -> Any:
    return maml(A, w, [draws(v) for v in visits], eta=h.eta, outer=outer), None


def slow_v1(A: Any, w: Any, visits: Any, h: Hyper, u: Any, outer: Any) -> Any:
    batches = [draws(v) for v in visits]
    return moml_v1(A, w, batches, eta=h.eta, beta=h.beta, memory=u, outer=outer)


def slow_both_ways(A: Any, w: Any, visits: Any, h: Hyper, u: Any, outer: Any) -> Any:
    batches = [draws(v) for v in visits]
    return both_ways(A, w, batches, eta=h.eta, beta=h.beta, memory=u, outer=outer)


def slow_v2(A: Any, w: Any, visits: Any, h: Hyper, u: Any, outer: Any) -> Any:
    pairs = [v if isinstance(v, TwoBatches) else TwoBatches(v, v) for v in visits]
    batches = [(draws(pair.memory), draws(pair.meta)) for pair in pairs]
    return moml_v2(A, w, batches, n=N, sizes=lambda t, w: (h.eta, h.beta), memory=u)


def slow_scgd(A: Any, w: Any, visits: Any, h: Hyper, u: Any, outer: Any) -> Any:
    return scgd(A, w, [draws(v) for v in visits], eta=h.eta, beta=h.beta, memory=u)


def slow_nasa(A: Any, w: Any, visits: Any, h: Hyper, u: Any, outer: Any) -> Any:
    batches = [draws(v) for v in visits]
    return nasa(A, w, batches, eta=h.eta, beta=h.beta, gamma=h.gamma, memory=u)


def slow_spider(A: Any, w: Any, visits: Any, h: Hyper, u: Any, outer: Any) -> Any:
    batches, q = [], 1
    for cycle in visits:
        batches.append(draws(cycle.large))
        if cycle.small is not None:
            q = 1 + len(cycle.small.ids)
            batches.extend(draws(at(cycle.small, j)) for j in range(q - 1))
    return bspiderboost(A, w, batches, eta=h.eta, q=q)[q - 1 :: q], None


def slow_reptile(A: Any, w: Any, visits: Any, h: Hyper, u: Any, outer: Any) -> Any:
    return reptile(A, w, [draws(v) for v in visits], eta=h.eta, outer=outer), None


def slow_local(A: Any, w: Any, visits: Any, h: Hyper, u: Any, outer: Any) -> Any:
    path, carried = localmoml(A, w, [clients(v) for v in visits], eta=h.eta, beta=h.beta)
    return path, carried or None


def slow_per_fedavg(A: Any, w: Any, visits: Any, h: Hyper, u: Any, outer: Any) -> Any:
    return perfedavg(A, w, [clients(v) for v in visits], eta=h.eta), None


def slow_fedavg(A: Any, w: Any, visits: Any, h: Hyper, u: Any, outer: Any) -> Any:
    return fedavg(SIGMOID, w, [clients(v) for v in visits], eta=h.eta), None


def slow_pfedme(A: Any, w: Any, visits: Any, h: Hyper, u: Any, outer: Any) -> Any:
    rounds = [clients(v) for v in visits]
    sizes = {"eta": h.eta, "alpha": h.alpha, "lam": LAMBDA, "R": R, "beta_s": BETA_S}
    return pfedme(SIGMOID, w, rounds, **sizes), None


def slow_ditto(A: Any, w: Any, visits: Any, h: Hyper, u: Any, outer: Any) -> Any:
    rounds = [clients(v) for v in visits]
    return ditto(SIGMOID, w, rounds, eta=h.eta, alpha=h.alpha, lam=LAMBDA)


def slow_fedavg_memory(A: Any, w: Any, visits: Any, h: Hyper, u: Any, outer: Any) -> Any:
    rounds = [clients(v) for v in visits]
    return fedavg_memory(SIGMOID, w, rounds, eta=h.eta, beta=h.beta)


def slow_fedprox(A: Any, w: Any, visits: Any, h: Hyper, u: Any, outer: Any) -> Any:
    rounds = [clients(v) for v in visits]
    return fedprox(SIGMOID, w, rounds, eta=h.eta, mu=h.prox), None


def slow_scaffold(A: Any, w: Any, visits: Any, h: Hyper, u: Any, outer: Any) -> Any:
    rounds = [clients(v) for v in visits]
    return scaffold(SIGMOID, w, rounds, N=N, eta_l=h.eta, eta_g=h.server_rate)


def slow_feddyn(A: Any, w: Any, visits: Any, h: Hyper, u: Any, outer: Any) -> Any:
    rounds = [clients(v) for v in visits]
    return feddyn(SIGMOID, w, rounds, m=N, eta=h.eta, alpha=h.prox)


def slow_fedavgm(A: Any, w: Any, visits: Any, h: Hyper, u: Any, outer: Any) -> Any:
    rounds = [clients(v) for v in visits]
    return fedavgm(SIGMOID, w, rounds, eta_l=h.eta, eta=h.server_rate, beta=h.b1), None


def slow_adaptive(rule: str) -> Any:
    def slow(A: Any, w: Any, visits: Any, h: Hyper, u: Any, outer: Any) -> Any:
        rounds, numbers = [clients(v) for v in visits], (h.server_rate, h.b1, h.b2, h.tau)
        names = dict(zip(("eta", "beta1", "beta2", "tau"), numbers, strict=True))
        return adaptive(SIGMOID, w, rounds, rule=rule, eta_l=h.eta, **names), None

    return slow


def slow_alone(A: Any, w: Any, visits: Any, h: Hyper, u: Any, outer: Any) -> Any:
    return alone(SIGMOID, w, [clients(v) for v in visits], eta=h.eta)


def slow_private(private: np.ndarray) -> Callable:
    return lambda A, w, visits, h, u, outer: fedper(
        SIGMOID, w, [clients(v) for v in visits], eta=h.eta, private=private
    )


def slow_fedrep(A: Any, w: Any, visits: Any, h: Hyper, u: Any, outer: Any) -> Any:
    rounds = [clients(v) for v in visits]
    return fedrep(SIGMOID, w, rounds, eta=h.eta, head=HEAD, passes=PASSES)


def slow_fedbabu(A: Any, w: Any, visits: Any, h: Hyper, u: Any, outer: Any) -> Any:
    return fedbabu(SIGMOID, w, [clients(v) for v in visits], eta=h.eta, head=HEAD), None


def slow_apfl(A: Any, w: Any, visits: Any, h: Hyper, u: Any, outer: Any) -> Any:
    return apfl(SIGMOID, w, [clients(v) for v in visits], eta=h.eta, mix=0.3, adaptive=True)


def slow_fedala(A: Any, w: Any, visits: Any, h: Hyper, u: Any, outer: Any) -> Any:
    sizes = {"eta": h.eta, "mix_eta": h.mix_eta, "mix_steps": 4, "upper": HEAD}
    return fedala(SIGMOID, w, [clients(v) for v in visits], **sizes)


def slow_feddbe(A: Any, w: Any, visits: Any, h: Hyper, u: Any, outer: Any) -> Any:
    sizes = {"eta": h.eta, "kappa": h.kappa, "shift_rate": h.shift_rate}
    return feddbe(w, [clients(v) for v in visits], **sizes)


SLOW = {
    "maml": slow_maml,
    "fo-maml": slow_maml,
    "hf-maml": slow_maml,
    "moml-v1": slow_v1,
    "moml-v2": slow_v2,
    "scgd": slow_scgd,
    "nasa": slow_nasa,
    "bspiderboost": slow_spider,
    "reptile": slow_reptile,
    "localmoml": slow_local,
    "per-fedavg": slow_per_fedavg,
    "pfedme": slow_pfedme,
    "fedavg": slow_fedavg,
    "fedavg-memory": slow_fedavg_memory,
    "ditto": slow_ditto,
    "fedprox": slow_fedprox,
    "scaffold": slow_scaffold,
    "feddyn": slow_feddyn,
    "fedavgm": slow_fedavgm,
    "fedadam": slow_adaptive("adam"),
    "fedyogi": slow_adaptive("yogi"),
    "local": slow_alone,
    "fedper": slow_private(HEAD),
    "lg-fedavg": slow_private(~HEAD),
    "fedbn": slow_private(~HEAD),
    "fedrep": slow_fedrep,
    "fedbabu": slow_fedbabu,
    "apfl": slow_apfl,
    "fedala": slow_fedala,
    "feddbe": slow_feddbe,
    "meta-sgd": slow_maml,
    "anil": slow_maml,
    "protonet": slow_maml,
    "moml": slow_both_ways,
}


class Case(NamedTuple):
    name: str
    options: dict[str, Any] = {}
    A: reference.Adaptation = steps()
    outer: Callable = plain  # makes a fresh outer rule
    rtol: float = 1e-12
    world: Callable[[], World] = sigmoid_world
    kept: Any = ...  # the coordinates that a memory holds


def variants(name: str, **options: Any) -> list[Case]:
    """What every method with gradient steps offers."""
    some = {"inner_steps": 2, "leaves": named("head")}
    return [
        Case(name, options),
        Case(name, {"inner_steps": 3, **options}, steps(3)),
        Case(name, {**some, **options}, steps(2, adapts=HEAD), kept=HEAD),
    ]


S2 = {"independent_hessian": True}
ADAM = {"optimizer": optax.adam}
SGD = {"optimizer": "sgd"}
FIRST = {"curvature": "first-order"}
DIFFERENCE = {"curvature": "finite-difference"}
TO_HEAD = {"leaves": named("head")}
THREE = {"inner_steps": 3}
WITH_HEAD = {"adapt": lambda k: closed_form(features, lambda params: params["head"])}
WITH_STEPS = {"adapt": lambda k: learned_steps(loss, k)}
first = {"times_hessian": reference.first_order}
difference = {"times_hessian": reference.finite_difference}
# Two gradients 1e-3 apart share most of their digits: what rounding leaves, 1e-16, is divided by
# 1e-3 at every step, in a different order of operations on the two sides.
ROUGH = 1e-11
closed = {"A": CLOSED_FORM, "world": head_world}
near = {"A": PROTONET, "world": class_world}
TIED = {"tied": named("head")}
tie = np.eye(5)
tie[3:, 3:] = 0.5  # the head's two numbers begin with their mean
BY_LAYER = {"step_sizes": "layer"}
layers = lambda k: reference.layer_steps(SIGMOID, k, np.array([0, 0, 0, 1, 1]))
NEAR = {"prox": LAMBDA, "local_steps": 3}
ADAPTIVE = {"local_steps": 3, "server_rate": 0.1, "b1": 0.7, "b2": 0.8, "tau": 0.05}
DBE = {"features": features, "kappa": 0.7, "shift_rate": 0.5}
PFEDME = NEAR | {"prox_steps": R, "server_rate": BETA_S}

CASES = [
    *variants("maml"),
    Case("maml", S2),
    Case("maml", THREE | S2, steps(3)),
    Case("maml", ADAM, outer=Adam),
    Case("maml", FIRST, steps(**first)),
    Case("maml", WITH_HEAD, **closed),
    Case("maml", WITH_HEAD | S2, **closed),
    Case("fo-maml", {}, steps(**first)),
    Case("fo-maml", THREE, steps(3, **first)),
    Case("hf-maml", {}, steps(**difference), rtol=ROUGH),
    Case("hf-maml", S2, steps(**difference), rtol=ROUGH),
    Case("hf-maml", THREE, steps(3, **difference), rtol=ROUGH),
    Case("hf-maml", TO_HEAD | THREE, steps(3, adapts=HEAD, **difference), rtol=ROUGH),
    *variants("moml-v1"),
    Case("moml-v1", S2),
    Case("moml-v1", {"eager": True}),
    Case("moml-v1", FIRST, steps(**first)),
    Case("moml-v1", DIFFERENCE, steps(**difference), rtol=ROUGH),
    Case("moml-v1", WITH_HEAD, **closed),
    Case("moml-v1", WITH_STEPS, learned()),
    *variants("moml-v2", direct=True),
    Case("moml-v2", {"direct": True, "eager": True}),
    Case("moml-v2", {"direct": True, "two_batches": True}),
    *variants("moml-v2"),
    Case("moml-v2", S2),
    Case("moml-v2", {"eager": True}),
    Case("moml-v2", {"two_batches": True}),
    *(
        Case("moml-v2", {"two_batches": True, "memory_tasks": some, "direct": direct})
        for some in (1, 7)
        for direct in (False, True)
    ),
    Case("moml-v2", {"two_batches": True} | THREE | TO_HEAD, steps(3, adapts=HEAD), kept=HEAD),
    Case("moml-v2", WITH_STEPS, learned()),
    *variants("scgd"),
    Case("scgd", {"eager": True} | S2),
    *variants("nasa"),
    Case("nasa", {"eager": True} | S2),
    *variants("bspiderboost", large_tasks=5, period=3),
    Case("bspiderboost", {"large_tasks": 7, "period": 2} | S2),
    Case("bspiderboost", {"large_tasks": 5, "period": 1}),
    *variants("reptile"),
    Case("reptile", THREE | ADAM, steps(3), Adam),
    *variants("localmoml", local_steps=3),
    *variants("localmoml", local_steps=3, carried=True),
    Case("localmoml", {"local_steps": 2, "restart_samples": 5} | S2),
    Case("localmoml", {"local_steps": 3, "carried": True} | WITH_STEPS, learned()),
    *variants("per-fedavg", local_steps=3),
    Case("per-fedavg", {"local_steps": 2} | S2),
    Case("per-fedavg", {"local_steps": 3} | FIRST, steps(**first)),
    Case("per-fedavg", {"local_steps": 3} | DIFFERENCE, steps(**difference), rtol=ROUGH),
    Case("pfedme", PFEDME),
    Case("fedavg", {"local_steps": 3}),
    Case("fedavg", {"local_steps": 1}),
    Case("fedavg-memory", {"local_steps": 3}),
    Case("ditto", NEAR),
    Case("fedprox", NEAR),
    Case("scaffold", {"local_steps": 3}),
    Case("scaffold", {"local_steps": 3, "server_rate": 1.5}),
    Case("feddyn", NEAR),
    Case("fedavgm", {"local_steps": 3, "server_rate": 0.6, "b1": 0.7}),
    Case("fedadam", ADAPTIVE),
    Case("fedyogi", ADAPTIVE),
    Case("local", {"local_steps": 3}),
    Case("fedper", {"local_steps": 3}),
    Case("lg-fedavg", {"local_steps": 3}),
    Case("fedbn", {"local_steps": 3, "private": "body"}),
    Case("fedrep", {"local_steps": 3, "head_passes": PASSES}),
    Case("fedbabu", {"local_steps": 3}),
    Case("apfl", {"local_steps": 3, "mix": 0.3}),
    Case("fedala", {"local_steps": 3, "mix_eta": 5.0, "mix_steps": 4}),
    Case("feddbe", DBE | {"local_steps": 3}, world=head_world),
    Case("meta-sgd", {}, learned(), Adam),
    Case("meta-sgd", SGD | S2, learned()),
    Case("meta-sgd", SGD | THREE, learned(3)),
    Case("meta-sgd", SGD | THREE | TO_HEAD, learned(3, HEAD)),
    Case("meta-sgd", SGD | FIRST, learned(**first)),
    Case("meta-sgd", SGD | DIFFERENCE, learned(**difference), rtol=ROUGH),
    Case("anil", {}, steps(adapts=HEAD), Adam),
    Case("anil", SGD | THREE | S2, steps(3, adapts=HEAD)),
    Case("maml", TIED, steps(tie=tie)),
    Case("maml", TIED | THREE | S2, steps(3, tie=tie)),
    Case("moml-v1", TIED | THREE, steps(3, tie=tie)),
    Case("moml-v2", TIED, steps(tie=tie)),
    Case("maml", BY_LAYER, layers(1)),
    Case("maml", BY_LAYER | THREE | S2, layers(3)),
    Case("moml-v1", BY_LAYER | THREE, layers(3)),
    Case("localmoml", {"local_steps": 2, "carried": True} | BY_LAYER | THREE, layers(3)),
    Case("protonet", SGD | {"features": features}, **near),
    Case("protonet", {"features": features}, outer=Adam, **near),
    Case("moml", {"shots": 9}, outer=Adam),
    Case("moml", {"shots": 9, "eager": True} | THREE, steps(3), Adam),
]


def _label(case: Case) -> str:
    show = lambda v: v if isinstance(v, int | str) else "set"
    words = [case.name, *(f"{k}={show(v)}" for k, v in case.options.items())]
    return "-".join([*words, case.world.__name__] if case.world is not sigmoid_world else words)


@pytest.mark.parametrize("case", CASES, ids=_label)
def test_equals_reference(case: Case):
    # optax's Adam raises a float to an integer power, which strict promotion forbids.
    with jax.numpy_dtype_promotion("standard" if case.outer is Adam else "strict"):
        _check(case)


def _check(case: Case) -> None:
    tasks, task_loss, params = case.world()
    batch = {} if case.name in ("scgd", "nasa") else {"tasks_per_step": B}
    m = method(case.name, task_loss, n=N, k=K, **batch, **case.options)
    hyper = HYPER._replace(beta=m.hyper.beta, eta=0.05) if case.name == "moml" else HYPER
    hyper = m.hyper._replace(**{n: getattr(hyper, n) for n in SHARED if hasattr(m.hyper, n)})
    state = m.algorithm.init(params, hyper)
    w, u = flat(state.meta), None
    if m.eager:
        visit = everyone(tasks)
        state = quick_jit(m.algorithm.fill)(state, visit, hyper)
        u = eager(case.A, w, draws(visit))
    visits = visits_of(m.algorithm.needs, tasks)
    each = [at(visits, t) for t in range(T)]
    path, memories = SLOW[case.name](case.A, w, each, hyper, u, case.outer())
    state, metas, _ = run(m.algorithm, state, visits, hyper)
    assert_close(metas, path, case.rtol)
    ends = memories.values() if case.name == "local" else path[-1:]
    assert all(np.linalg.norm(end - w) > 1e-2 * np.linalg.norm(w) for end in ends)  # it did move
    _check_memories(m.memory, state, memories, case)


def _check_memories(memory: Any, state: Any, want: Any, case: Case) -> None:
    ids = jnp.arange(N)
    if want is None:
        with pytest.raises(ConfigError, match="keeps no memory"):
            memory.recall((), ids)
        return
    rows, known = memory.recall(state.memory, ids)
    assert known.tolist() == [i in want for i in range(N)]
    kept = np.stack([want[i] for i in range(N)])[:, case.kept]
    assert_close(flat(rows, lead=1), kept, case.rtol)


def test_info_tells_the_loss_and_the_size_of_the_gradient():
    tasks, task_loss, params = sigmoid_world()
    m = method("maml", task_loss, n=N, tasks_per_step=B, k=K)
    visits = visits_of(m.algorithm.needs, tasks)
    _, metas, info = run(m.algorithm, m.algorithm.init(params, HYPER), visits, HYPER)
    before = np.stack([flat(params), *metas[:-1]])  # w_t, where step t adapts
    norms = np.linalg.norm(metas - before, axis=1) / HYPER.eta
    batches = [draws(at(visits, t)) for t in range(T)]
    at_adapted = lambda w, d: SIGMOID.value(steps().apply(w, d.support), d.query)
    losses = [
        np.mean([at_adapted(w, d) for d in batch]) for w, batch in zip(before, batches, strict=True)
    ]
    np.testing.assert_allclose(info.norm, norms, rtol=1e-12)
    np.testing.assert_allclose(info.loss, losses, rtol=1e-12)


def test_every_recipe_has_a_reference():
    assert {case.name for case in CASES} == set(METHODS)
