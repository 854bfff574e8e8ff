"""Free oracles: methods that must agree without anybody working out a number."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moml.algorithms.parts.adapt import gradient_steps, layer_steps, learned_steps, named
from moml.algorithms.parts.heads import closed_form
from moml.algorithms.parts.memory import none
from moml.algorithms.parts.personal import personal_step
from moml.algorithms.single.spider import Cycle
from moml.methods import method
from moml.tasks.sampler import draw
from moml.types import Hyper, SampleSpec, Task
from tests.algorithms.common import (
    HYPER,
    B,
    K,
    N,
    assert_close,
    at,
    everyone,
    features,
    flat,
    head_loss,
    head_world,
    loss,
    precisions,
    quick_jit,
    run,
    sigmoid_world,
    visits_of,
)


def compose(name: str, **options: Any) -> Any:
    batch = {} if name in ("scgd", "nasa") else {"tasks_per_step": B}
    return method(name, loss, n=N, k=K, **{**batch, **options})


def filled(m: Any, world: Any, hyper: Hyper) -> Any:
    """The first state, with every memory written by one pass over the tasks."""
    fresh = m.algorithm.init(world.params, hyper)
    return quick_jit(m.algorithm.fill)(fresh, everyone(world.tasks), hyper)


def path(m: Any, world: Any, visits: Any, hyper: Hyper, *, eager: bool = False) -> np.ndarray:
    """The meta-model after every step."""
    fresh = filled(m, world, hyper) if eager else m.algorithm.init(world.params, hyper)
    metas = run(m.algorithm, fresh, visits, hyper)[1]
    assert np.all(np.abs(metas[-1] - flat(world.params)).max() > 1e-2)  # training did move
    return metas


@precisions
@pytest.mark.parametrize("eager", [False, True], ids=["first-touch", "eager"])
def test_v1_at_beta_one_is_maml(dtype, rtol, steps, eager):
    world, hyper = sigmoid_world(dtype), HYPER._replace(beta=1.0)
    v1, maml = compose("moml-v1", eager=eager), compose("maml")
    visits = visits_of(maml.algorithm.needs, world.tasks, steps)
    ours = path(v1, world, visits, hyper, eager=eager)
    assert_close(ours, path(maml, world, visits, hyper), rtol)


@precisions
@pytest.mark.parametrize("direct", [False, True], ids=["lazy", "direct"])
def test_v2_over_all_tasks_is_v1(dtype, rtol, steps, direct):
    world = sigmoid_world(dtype)
    v1 = compose("moml-v1", tasks_per_step=N, eager=True)
    v2 = compose("moml-v2", tasks_per_step=N, eager=True, direct=direct)
    visits = visits_of(v1.algorithm.needs, world.tasks, steps)
    want = path(v1, world, visits, HYPER, eager=True)
    assert_close(path(v2, world, visits, HYPER, eager=True), want, rtol)


@precisions
@pytest.mark.parametrize("two", [False, True], ids=["one-batch", "two-batches"])
def test_lazy_v2_is_direct_v2(dtype, rtol, steps, two):
    """With a beta that changes at every step, and is 1 at some of them."""
    world, steps = sigmoid_world(dtype), 400 if dtype == np.float64 else steps
    beta = np.random.default_rng(3).uniform(0.02, 0.6, steps)
    beta[2::29] = 1.0
    column = lambda x: jnp.asarray(np.broadcast_to(x, steps), dtype)
    hyper = Hyper(eta=column(0.1), beta=column(beta), alpha=column(HYPER.alpha))
    lazy, direct = (compose("moml-v2", two_batches=two, direct=d) for d in (False, True))
    visits = visits_of(lazy.algorithm.needs, world.tasks, steps)
    ends = [
        run(m.algorithm, m.algorithm.init(world.params, HYPER), visits, hyper)
        for m in (lazy, direct)
    ]
    assert_close(ends[0][1], ends[1][1], rtol)
    ids = jnp.arange(N)
    lazy_u, direct_u = (
        flat(m.memory.recall(state.memory, ids)[0], lead=1)
        for m, (state, *_) in zip((lazy, direct), ends, strict=True)
    )
    assert_close(lazy_u, direct_u, rtol)
    assert np.ptp(direct_u, axis=0).max() > 1e-3  # the memories do differ from task to task


@precisions
def test_nasa_at_gamma_one_is_scgd(dtype, rtol, steps):
    world, hyper = sigmoid_world(dtype), HYPER._replace(gamma=1.0)
    nasa, scgd = compose("nasa"), compose("scgd")
    assert nasa.algorithm.needs == scgd.algorithm.needs
    visits = visits_of(scgd.algorithm.needs, world.tasks, steps)
    assert_close(path(nasa, world, visits, hyper), path(scgd, world, visits, hyper), rtol)


@precisions
def test_scgd_is_v1_over_all_tasks(dtype, rtol, steps):
    world = sigmoid_world(dtype)
    scgd, v1 = compose("scgd"), compose("moml-v1", tasks_per_step=N)
    visits = visits_of(v1.algorithm.needs, world.tasks, steps)
    assert_close(path(scgd, world, visits, HYPER), path(v1, world, visits, HYPER), rtol)


@precisions
def test_spider_at_period_one_is_maml(dtype, rtol, steps):
    """Also in what is drawn: the large batch is MAML's batch."""
    world = sigmoid_world(dtype)
    spider, maml = compose("bspiderboost", large_tasks=B, period=1), compose("maml")
    cycles = visits_of(spider.algorithm.needs, world.tasks, steps)
    visits = visits_of(maml.algorithm.needs, world.tasks, steps)
    jax.tree.map(np.testing.assert_array_equal, cycles, Cycle(visits, None))
    assert_close(path(spider, world, cycles, HYPER), path(maml, world, visits, HYPER), rtol)


ADAPTATIONS = {
    "one step": lambda: (sigmoid_world, loss, gradient_steps(loss)),
    "three steps": lambda: (sigmoid_world, loss, gradient_steps(loss, 3)),
    "chosen leaves": lambda: (sigmoid_world, loss, gradient_steps(loss, 2, leaves=named("head"))),
    "learned steps": lambda: (sigmoid_world, loss, learned_steps(loss, 3)),
    "learned, chosen": lambda: (sigmoid_world, loss, learned_steps(loss, 2, leaves=named("head"))),
    "by layer": lambda: (sigmoid_world, loss, layer_steps(loss, 3, tied=named("head"))),
    "closed form": lambda: (head_world, head_loss, closed_form(features, lambda p: p["head"])),
}


@precisions
@pytest.mark.parametrize("kind", ADAPTATIONS)
def test_exact_without_memory_is_autodiff(dtype, rtol, steps, kind):
    make, task_loss, A = ADAPTATIONS[kind]()
    world = make(dtype)
    meta = A.init(world.params, HYPER)
    visit = at(visits_of(SampleSpec(B, support=K, query=K), world.tasks), 0)
    step = personal_step(task_loss, A, none())

    def objective(meta: Any, task: Task) -> Any:
        return task_loss(A.merge(meta, A.apply(meta, task.support, HYPER)), task.query)

    got = quick_jit(jax.vmap(lambda task: step(meta, (), task, HYPER)))(visit.task)
    want, grad = quick_jit(jax.vmap(lambda t: jax.value_and_grad(objective)(meta, t)))(visit.task)
    assert jax.tree.structure(got.delta) == jax.tree.structure(meta)
    assert_close(flat(got.delta, lead=1), flat(grad, lead=1), rtol)
    assert_close(got.loss, want, rtol)


def server_path(algorithm: Any, world: Any, visits: Any, hyper: Hyper) -> np.ndarray:
    return run(algorithm, algorithm.init(world.params, hyper), visits, hyper)[1]


@precisions
@pytest.mark.parametrize("carried", [False, True], ids=["restart", "carried"])
def test_localmoml_at_beta_one_is_per_fedavg(dtype, rtol, steps, carried):
    """TaskMap draws for itself: the restart samples must not shift the others."""
    world, hyper = sigmoid_world(dtype), HYPER._replace(beta=1.0)
    m = compose("localmoml", local_steps=3, carried=carried)
    plain = compose("per-fedavg", local_steps=3).algorithm
    ours = server_path(m.algorithm, world, visits_of(m.algorithm.needs, world.tasks, steps), hyper)
    theirs = server_path(plain, world, visits_of(plain.needs, world.tasks, steps), hyper)
    assert_close(ours, theirs, rtol)


def first_local_step(visits: Any) -> Any:
    """Rounds of one local step, as visits of the single-node methods."""
    return visits._replace(task=jax.tree.map(lambda x: x[:, :, 0], visits.task))


@precisions
def test_per_fedavg_with_one_local_step_is_maml(dtype, rtol, steps):
    world = sigmoid_world(dtype)
    plain = compose("per-fedavg", local_steps=1).algorithm
    rounds = visits_of(plain.needs, world.tasks, steps)
    want = path(compose("maml"), world, first_local_step(rounds), HYPER)
    assert_close(server_path(plain, world, rounds, HYPER), want, rtol)


@precisions
def test_localmoml_at_beta_one_with_one_local_step_is_maml(dtype, rtol, steps):
    world, hyper = sigmoid_world(dtype), HYPER._replace(beta=1.0)
    m, plain = compose("localmoml", local_steps=1), compose("per-fedavg", local_steps=1)
    rounds = visits_of(plain.algorithm.needs, world.tasks, steps)
    want = path(compose("maml"), world, first_local_step(rounds), hyper)
    own = visits_of(m.algorithm.needs, world.tasks, steps)
    assert_close(server_path(m.algorithm, world, own, hyper), want, rtol)


@precisions
@pytest.mark.parametrize("name", ["localmoml", "per-fedavg", "fedavg"])
def test_without_adaptation_they_are_sgd(dtype, rtol, steps, name):
    """alpha = 0, H = 1, B = n, beta = 1: plain steps on the mean loss."""
    world, hyper = sigmoid_world(dtype), HYPER._replace(alpha=0.0, beta=1.0)
    m = compose(name, local_steps=1, tasks_per_step=N)
    rounds = visits_of(m.algorithm.needs, world.tasks, steps)
    asked = rounds.task.support if name == "fedavg" else rounds.task.query

    @quick_jit
    def sgd(w: Any, query: Any) -> Any:
        mean_loss = lambda w: jnp.mean(jax.vmap(lambda s: loss(w, s))(query))
        return jax.tree.map(lambda w, g: w - HYPER.eta * g, w, jax.grad(mean_loss)(w))

    w, want = world.params, []
    for t in range(steps):
        w = sgd(w, jax.tree.map(lambda x, t=t: x[t, :, 0], asked))
        want.append(flat(w))
    assert_close(server_path(m.algorithm, world, rounds, hyper), np.stack(want), rtol)


@precisions
def test_per_fedavg_without_adaptation_is_fedavg(dtype, rtol, steps):
    world, hyper = sigmoid_world(dtype), HYPER._replace(alpha=0.0)
    plain, fedavg = (compose(name, local_steps=3).algorithm for name in ("per-fedavg", "fedavg"))
    rounds = visits_of(plain.needs, world.tasks, steps)
    asked = rounds._replace(task=Task(support=rounds.task.query))
    want = server_path(fedavg, world, asked, hyper)
    assert_close(server_path(plain, world, rounds, hyper), want, rtol)


@precisions
def test_pfedme_with_one_inner_step_is_fedavg(dtype, rtol, steps):
    """theta = w - alpha g, so that w moves by eta lambda alpha g."""
    world, prox = sigmoid_world(dtype), 2.5
    pfedme = compose("pfedme", local_steps=3, prox=prox, prox_steps=1).algorithm
    fedavg = compose("fedavg", local_steps=3).algorithm
    rounds = visits_of(fedavg.needs, world.tasks, steps)
    slower = HYPER._replace(eta=HYPER.eta * prox * HYPER.alpha)
    want = server_path(fedavg, world, rounds, slower)
    assert_close(server_path(pfedme, world, rounds, HYPER._replace(prox=prox)), want, rtol)


@pytest.mark.parametrize("name", ["ditto", "fedavg-memory"])
@precisions
def test_the_server_gets_the_models_of_fedavg(dtype, rtol, steps, name):
    world = sigmoid_world(dtype)
    other, fedavg = (compose(name, local_steps=3).algorithm for name in (name, "fedavg"))
    rounds = visits_of(fedavg.needs, world.tasks, steps)
    assert other.needs == fedavg.needs
    want = server_path(fedavg, world, rounds, HYPER)
    assert_close(server_path(other, world, rounds, HYPER), want, rtol)


@precisions
def test_idle_memories_of_v1_are_untouched(dtype, rtol, steps):
    world = sigmoid_world(dtype)
    m = compose("moml-v1", eager=True)
    state = filled(m, world, HYPER)
    visits = visits_of(m.algorithm.needs, world.tasks, steps)
    recall = lambda state: flat(m.memory.recall(state.memory, jnp.arange(N))[0], lead=1)
    step = quick_jit(m.algorithm.step)
    for t in range(4):
        visit = jax.tree.map(jnp.asarray, at(visits, t))
        before, (state, _) = recall(state), step(state, visit, HYPER)
        moved = np.any(recall(state) != before, axis=1)
        assert set(np.flatnonzero(moved)) == set(visit.ids.tolist())


@pytest.mark.parametrize("visits", [None, 3], ids=["one visit", "three visits"])
def test_restart_samples_do_not_shift_the_stream(visits):
    tasks = sigmoid_world().tasks
    need = SampleSpec(B, support=K, query=K, visits=visits)
    both = lambda key: [draw(key, need._replace(restart=r), tasks) for r in (0, 4)]
    plain, restarted = quick_jit(both)(jax.random.key(5))
    assert restarted.task.restart.shape == (B, 4)
    without = restarted._replace(task=restarted.task._replace(restart=None))
    jax.tree.map(np.testing.assert_array_equal, without, plain)
