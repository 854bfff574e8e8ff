"""Leaves that clients keep, mix or freeze: identities with FedAvg, kept models, errors."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moml.algorithms.parts.adapt import no_leaves
from moml.errors import ConfigError
from moml.methods import method
from moml.runtime.account import cost
from tests.algorithms.common import (
    HEAD,
    HYPER,
    B,
    K,
    N,
    assert_close,
    flat,
    loss,
    run,
    sigmoid_world,
    visits_of,
)

nothing = lambda params: no_leaves(params)  # as a choice of leaves, not as the default


def compose(name: str, **options: Any) -> Any:
    return method(name, loss, n=N, k=K, **({"tasks_per_step": B, "local_steps": 3} | options))


def trained(m: Any, visits: Any = None, **numbers: float) -> tuple[Any, np.ndarray]:
    """The last state, and the server's model after every round."""
    world, hyper = sigmoid_world(), HYPER._replace(**numbers)
    visits = visits_of(m.algorithm.needs, world.tasks) if visits is None else visits
    state, metas, _ = run(m.algorithm, m.algorithm.init(world.params, hyper), visits, hyper)
    return state, metas


@pytest.mark.parametrize(
    "name, options",
    [
        ("fedper", {"private": nothing}),
        ("lg-fedavg", {"private": nothing}),
        ("fedbn", {"private": nothing}),
        ("fedrep", {"private": nothing, "head_passes": 2}),
        ("fedbabu", {"frozen": nothing}),
    ],
)
def test_with_all_leaves_shared_they_are_fedavg(name, options):
    _, want = trained(compose("fedavg"))
    _, got = trained(compose(name, **options))
    assert_close(got, want, 1e-12)


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


def test_fedbabu_leaves_the_head_as_it_began():
    """Also in the last bit: a mean of equal numbers may differ from them."""
    _, metas = trained(compose("fedbabu", tasks_per_step=N))
    assert np.all(metas[:, HEAD] == flat(sigmoid_world().params)[HEAD])
    assert np.all(metas[:, ~HEAD] != flat(sigmoid_world().params)[~HEAD])


@pytest.mark.parametrize("name, numbers", [("fedper", 3), ("lg-fedavg", 2), ("fedbabu", 3)])
def test_only_shared_leaves_travel(name, numbers):
    paid = cost(compose(name), sigmoid_world().params)
    assert paid.down == paid.up == B * numbers * 8


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
