"""Leaves that clients keep, mix or freeze: identities with FedAvg, kept models, errors."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moml.algorithms.federated.fedavg import fedavg_update
from moml.algorithms.federated.feddbe import GlobalMean, with_first_mean
from moml.algorithms.federated.rounds import rounds
from moml.algorithms.federated.server import TAKE_MEAN
from moml.algorithms.parts.adapt import all_leaves, named, no_leaves
from moml.algorithms.parts.heads import LinearHead
from moml.errors import ConfigError
from moml.methods import method
from moml.runtime.account import cost
from moml.types import Answers, SampleSpec
from tests.algorithms.common import (
    HEAD,
    HYPER,
    B,
    K,
    N,
    T,
    assert_close,
    features,
    flat,
    head_loss,
    head_world,
    loss,
    run,
    sigmoid_world,
    visits_of,
)


def compose(name: str, loss: Any = loss, **options: Any) -> Any:
    return method(name, loss, n=N, k=K, **({"tasks_per_step": B, "local_steps": 3} | options))


def trained(m: Any, world: Any = None) -> tuple[Any, np.ndarray]:
    """The last state, and the server's model after every round."""
    world = world or sigmoid_world()
    hyper = m.hyper._replace(eta=HYPER.eta, alpha=HYPER.alpha)
    visits = visits_of(m.algorithm.needs, world.tasks)
    state, metas, _ = run(m.algorithm, m.algorithm.init(world.params, hyper), visits, hyper)
    return state, metas


@pytest.mark.parametrize(
    "name, options",
    [
        ("fedper", {"private": no_leaves}),
        ("lg-fedavg", {"private": no_leaves}),
        ("fedbn", {"private": no_leaves}),
        ("fedrep", {"private": no_leaves, "head_passes": 2}),
        ("fedbabu", {"frozen": no_leaves}),
        ("apfl", {"mix": 0.0, "adaptive": False}),
        ("fedala", {"mix_eta": 0.0}),
        ("fedala", {"personal": no_leaves}),
    ],
)
def test_with_nothing_personal_they_are_fedavg(name, options):
    _, want = trained(compose("fedavg"))
    _, got = trained(compose(name, **options))
    assert_close(got, want, 1e-12)


def test_feddbe_with_nothing_personal_is_fedavg():
    world = head_world()
    still = {"kappa": 0.0, "shift_rate": 0.0, "features": features}
    _, want = trained(compose("fedavg", head_loss), world)
    state, got = trained(compose("feddbe", head_loss, **still), world)
    assert_close(got, want, 1e-12)
    assert np.all(np.asarray(state.memory.u) == 0)


def test_apfl_with_no_part_of_the_common_model_trains_alone():
    """As FedPer does where all leaves are private."""
    alone, _ = trained(compose("fedper", private=".", tasks_per_step=N))
    state, _ = trained(compose("apfl", mix=1.0, adaptive=False, tasks_per_step=N))
    assert_close(flat(state.memory.u.v, 1), flat(alone.memory.u.leaves, 1), 1e-12)


def test_fedala_that_never_takes_the_servers_head_is_fedper():
    """W = 0 from a client's second round on: its head goes on where it was."""
    m = compose("fedala", mix_eta=0.0, tasks_per_step=N)
    zero = lambda state: state._replace(
        memory=state.memory._replace(
            u=state.memory.u._replace(weight=jax.tree.map(jnp.zeros_like, state.memory.u.weight))
        )
    )
    world = sigmoid_world()
    visits, hyper = visits_of(m.algorithm.needs, world.tasks), m.hyper._replace(eta=HYPER.eta)
    at = lambda first, last: jax.tree.map(lambda x: jnp.asarray(x[first:last]), visits)
    state, _, _ = run(m.algorithm, m.algorithm.init(world.params, hyper), at(0, 1), hyper)
    state, metas, _ = run(m.algorithm, zero(state), at(1, T), hyper)
    alone, want = trained(compose("fedper", tasks_per_step=N))
    assert_close(metas[:, ~HEAD], want[1:, ~HEAD], 1e-12)
    assert_close(
        np.asarray(state.memory.u.w["head"]), np.asarray(alone.memory.u.leaves["head"]), 1e-12
    )


@pytest.mark.parametrize("name", ["fedper", "fedrep"])
def test_the_own_model_has_the_common_body_and_the_own_head(name):
    m = compose(name)
    state, metas = trained(m)
    rows, _ = m.memory.recall(state.memory, jnp.arange(N))
    own = flat(jax.vmap(lambda u: m.algorithm.rounds.kept(state.meta, u))(rows), 1)
    assert_close(own[:, ~HEAD], np.broadcast_to(metas[-1][~HEAD], (N, 3)), 0)
    assert_close(own[:, HEAD], flat(rows.leaves, 1), 0)
    assert np.all(own[:, HEAD] != flat(sigmoid_world().params)[HEAD])
    assert np.all(metas[:, HEAD] == flat(sigmoid_world().params)[HEAD])  # the server's is not used


def own_models(m: Any, state: Any) -> Any:
    rows, _ = m.memory.recall(state.memory, jnp.arange(N))
    return rows, jax.vmap(lambda u: m.algorithm.rounds.kept(state.meta, u))(rows)


def test_the_own_model_of_apfl_is_the_mixture():
    m = compose("apfl", mix=0.3)
    state, metas = trained(m)
    rows, own = own_models(m, state)
    a = np.asarray(rows.weight)[:, None]
    assert a.min() == 0 and a.max() < 1 and np.sum(a > 0) > 1  # clipped, and not
    assert_close(flat(own, 1), a * flat(rows.v, 1) + (1 - a) * metas[-1], 1e-15)


def test_the_own_model_of_fedala_is_where_its_last_round_ended():
    m = compose("fedala", mix_eta=5.0)
    state, _ = trained(m)
    rows, own = own_models(m, state)
    assert_close(flat(own, 1), flat(rows.w, 1), 0)
    weight = flat(rows.weight, 1)
    assert weight.min() == 0 and weight.max() == 1 and np.any((weight > 0) & (weight < 1))


def test_the_own_model_of_feddbe_adds_its_vector_to_the_features():
    world = head_world()
    m = compose("feddbe", head_loss, features=features, kappa=0.7)
    state, _ = trained(m, world)
    rows, own = own_models(m, state)
    x = jnp.asarray(np.random.default_rng(5).normal(size=(4, 3)))
    head = state.meta["head"]
    for i in range(N):
        mine = jax.tree.map(lambda leaf, i=i: leaf[i], own)
        got = features(mine, x) @ mine["head"].weight.T + mine["head"].bias[None]
        want = (features(state.meta, x) + rows[i][None]) @ head.weight.T + head.bias[None]
        assert_close(got, want, 1e-14)
    assert np.all(np.abs(np.asarray(rows)).max(axis=1) > 1e-3)


def test_feddbe_keeps_the_mean_of_the_first_round():
    world = head_world()
    m = compose("feddbe", head_loss, features=features, tasks_per_step=N)
    visit = jax.tree.map(lambda x: x[0], visits_of(m.algorithm.needs, world.tasks))
    hyper = m.hyper._replace(eta=HYPER.eta, alpha=HYPER.alpha)
    parts, begun = m.algorithm.rounds, m.algorithm.init(world.params, hyper)
    sent, means = parts.server.extra(begun.server), []
    for i in range(N):
        task = jax.tree.map(lambda x, i=i: x[i], visit.task)
        own = parts.client(begun.meta, parts.row(begun.meta), task, None, hyper, sent)
        x = np.asarray(task.support.x).reshape(-1, 3)
        means.append(np.asarray(features(own.meta, x)).mean(axis=0))  # under its new model
    state, _ = trained(m, world)
    assert_close(state.server[1].z, np.mean(means, axis=0), 1e-12)
    assert np.abs(means[0] - np.asarray(features(begun.meta, x)).mean(axis=0)).max() > 1e-3
    assert float(state.server[1].known) == 1


def test_a_later_round_does_not_move_the_first_mean():
    """Not by what clients answer, which is that mean but for noise and rounding."""
    rule, meta = with_first_mean(TAKE_MEAN), head_world().params
    answer = lambda z: Answers(meta, GlobalMean(jnp.asarray(z), jnp.ones(())), jnp.arange(3), None)
    state = rule.init(meta)
    assert float(rule.extra(state).known) == 0
    for z in ([1.0, 2.0], [3.0, 4.0]):
        meta, state = rule.step(state, meta, answer(z), HYPER)
        assert rule.extra(state).z.tolist() == [1.0, 2.0] and float(rule.extra(state).known) == 1


@pytest.mark.parametrize(
    "params, got",
    [
        ({"body": jnp.zeros(3)}, "parameters without head"),
        (jnp.zeros(3), "parameters without head"),
        ({"head": jnp.zeros((2, 3))}, "as head"),
        ({"head": LinearHead(jnp.zeros((2, 3)), jnp.zeros(3))}, "LinearHead as head"),
    ],
)
def test_feddbe_needs_a_linear_head(params, got):
    m = compose("feddbe", features=features)
    with pytest.raises(ConfigError) as refused:
        m.algorithm.init(params, m.hyper)
    words = "feddbe needs a head with weight [out, in] and bias [out]; got "
    assert str(refused.value).startswith(words) and str(refused.value).endswith(got)


def test_feddbe_needs_the_inputs_of_the_head():
    with pytest.raises(ConfigError, match=r"features must be the head's inputs, 2 .* got"):
        trained(compose("feddbe", head_loss, features=lambda params, x: x), head_world())
    with pytest.raises(ConfigError, match=r"give features=net\.features"):
        compose("feddbe")


def test_fedbabu_leaves_the_head_as_it_began():
    """Also in the last bit: a mean of equal numbers may differ from them."""
    world = sigmoid_world()
    head = jnp.array([0.1, 1.7])
    world = world._replace(params=world.params | {"head": head})
    _, metas = trained(compose("fedbabu", tasks_per_step=N, dropout=0.2), world)
    assert np.all(metas[:, HEAD] == np.asarray(head))
    assert np.all(metas[:, ~HEAD] != flat(world.params)[~HEAD])


@pytest.mark.parametrize("name, numbers", [("fedper", 3), ("lg-fedavg", 2), ("fedbabu", 3)])
def test_only_shared_leaves_travel(name, numbers):
    paid = cost(compose(name), sigmoid_world().params)
    assert paid.down == paid.up == B * numbers * 8


@pytest.mark.parametrize(
    "name, options, gradients, samples",
    [
        ("fedper", {}, 3, 3 * K),
        ("fedrep", {"head_passes": 4}, 3 * 5, 3 * K),
        ("fedbabu", {}, 3, 3 * K),
        ("apfl", {}, 3 * 2, 3 * K),
        ("fedala", {"mix_steps": 4}, 3 + 4, (3 + 4) * K),
        ("feddbe", {"features": features}, 3, 3 * K),
    ],
)
def test_what_a_client_computes(name, options, gradients, samples):
    paid = cost(compose(name, **options), head_world().params)
    assert paid.gradients.tolist() == [gradients] * B
    assert paid.samples.tolist() == [samples] * B


def test_feddbe_sends_a_vector_besides():
    paid = cost(compose("feddbe", features=features), head_world().params)
    assert paid.down == paid.up == B * (9 + 2 + 1) * 8


@pytest.mark.parametrize("name, keyword", [("fedper", "private"), ("fedbabu", "frozen")])
def test_names_that_no_leaf_has_are_refused(name, keyword):
    m = compose(name, **{keyword: "tail"})
    with pytest.raises(ConfigError) as refused:
        m.algorithm.init(sigmoid_world().params, HYPER)
        trained(m)
    assert str(refused.value) == (
        f"{keyword} must match the name of a leaf; got 'tail', of the leaves body, head"
    )


def test_what_is_no_regular_expression_is_refused():
    with pytest.raises(ConfigError, match=r"private must be a regular expression .* got '\('"):
        compose("fedper", private="(")


def test_leaves_are_private_or_frozen():
    need, some = SampleSpec(B, support=K, visits=1), {"private": named("head")}
    with pytest.raises(ConfigError, match="frozen must be left out where private is given"):
        rounds(lambda params, hyper: params, fedavg_update(loss), need, frozen=all_leaves, **some)
