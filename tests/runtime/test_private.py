"""Private leaves: a shared body and personal heads, against a plain loop over clients."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moml.algorithms.parts.adapt import named
from moml.errors import ConfigError
from tests.algorithms.common import (
    HEAD,
    HYPER,
    N,
    T,
    assert_close,
    at,
    clients,
    flat,
    sigmoid_world,
)
from tests.reference.private import localmoml, perfedavg, private
from tests.runtime.test_rounds import EVERYTHING, PLAIN, compose, simulated, visits_of

LOCAL = localmoml(PLAIN, HYPER.eta, HYPER.beta)
CASES: dict[str, Any] = {
    "per-fedavg": ("per-fedavg", {}, perfedavg(PLAIN, HYPER.eta)),
    "localmoml": ("localmoml", {}, LOCAL),
    "localmoml, carried": ("localmoml", {"carried": True}, LOCAL),
}


@pytest.mark.parametrize("busy", [{}, EVERYTHING], ids=["plain", "busy"])
@pytest.mark.parametrize("name", CASES)
def test_a_shared_body_and_personal_heads(name, busy):
    recipe, options, update = CASES[name]
    m = compose(recipe, **options, **busy, private="head")
    visits = visits_of(m.algorithm.needs)
    rounds = [clients(at(visits, t)) for t in range(T)]
    first = flat(sigmoid_world().params)
    path, models, kept = private(update, first, rounds, HEAD)
    metas, state = simulated(m)
    assert_close(metas, np.stack(path), 1e-12)
    assert np.array_equal(metas[-1][HEAD], first[HEAD])  # the server never sees a head
    assert np.abs(metas[-1] - first)[~HEAD].max() > 1e-2
    rows, known = m.memory.recall(state.memory, jnp.arange(N))
    assert known.tolist() == [i in models for i in range(N)]
    heads = np.stack([models[i][HEAD] for i in models])
    assert_close(flat(rows.leaves, 1)[list(models)], heads, 1e-12)
    assert np.ptp(heads, axis=0).min() > 1e-2  # they differ
    if options:
        assert_close(flat(rows.rest, 1)[list(kept)], np.stack(list(kept.values())), 1e-12)
    else:
        assert rows.rest == ()
    for i in models:  # a client's own model: the server's body with its head
        own = m.algorithm.rounds.kept(state.meta, at(rows, i))
        assert_close(flat(own), np.where(HEAD, models[i], path[-1]), 1e-12)


@pytest.mark.parametrize("name", ["per-fedavg", "localmoml"])
def test_by_a_name_or_by_a_function(name):
    one, other = (compose(name, private=by) for by in ("head", named("head")))
    assert_close(simulated(one)[0], simulated(other)[0], 1e-15)


def test_all_leaves_private_is_training_alone():
    """Nothing travels, and the server's model stays."""
    metas, state = simulated(compose("per-fedavg", private=".*"))
    assert np.array_equal(metas, np.broadcast_to(flat(sigmoid_world().params), metas.shape))
    assert (
        jax.tree.leaves(compose("per-fedavg", private=".*").algorithm.rounds.shared(state.meta))
        == []
    )


@pytest.mark.parametrize("name", ["per-fedavg", "localmoml"])
def test_a_name_that_matches_nothing_is_refused(name):
    m = compose(name, private="haed")
    with pytest.raises(ConfigError, match="of the leaves body, head") as refused:
        m.algorithm.init(sigmoid_world().params, HYPER)
    assert "\n" not in str(refused.value)
