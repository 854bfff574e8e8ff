"""FedPrior against a slow loop in numpy, and tied to FedAvg."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moml.methods import fedavg
from moml.models import cross_entropy, mlp
from moml.paper.leaderboard.prior import fedprior
from moml.types import Batch, Hyper, Task, TaskBatch

NET = mlp(4, 3)  # no hidden layer: softmax regression
LOSS = cross_entropy(NET.predict)
ROUNDS, CLIENTS, H, K = 4, 3, 5, 6
ETA, SMOOTHING, DECAY, BETA, MIX = 0.3, 0.7, 0.02, 0.25, 0.4


def drawn() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(ROUNDS, CLIENTS, H, K, 4))
    chance = np.array([[0.9, 0.1, 0.0], [0.2, 0.5, 0.3], [0.0, 0.0, 1.0]])
    labels = [[rng.choice(3, size=(H, K), p=p) for p in chance] for _ in range(ROUNDS)]
    return x, np.array(labels)


def slow(weight: np.ndarray, bias: np.ndarray) -> tuple[list[np.ndarray], list, np.ndarray]:
    """The server's weights and biases after all rounds, the clients' memories and last log p."""
    x, y = drawn()
    memories = [None] * CLIENTS
    for r in range(ROUNDS):
        arrived, priors = [], []
        for i in range(CLIENTS):
            counts = np.array([np.sum(y[r, i] == c) for c in range(3)]) + SMOOTHING
            p = np.log(counts / counts.sum())
            W, b = weight.copy(), bias.copy()
            for h in range(H):
                logits = x[r, i, h] @ W.T + b + p
                chance = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
                error = (chance - np.eye(3)[y[r, i, h]]) / K
                W, b = (
                    W - ETA * (error.T @ x[r, i, h] + DECAY * W),
                    b - ETA * (error.sum(axis=0) + DECAY * b),
                )
            old = memories[i] or (W, b)
            memories[i] = tuple((1 - BETA) * u + BETA * w for u, w in zip(old, (W, b), strict=True))
            arrived.append((W, b))
            priors.append(p)
        weight, bias = (np.mean(leaf, axis=0) for leaf in zip(*arrived, strict=True))
    return [weight, bias], memories, np.array(priors)


def trained(method, hyper):
    x, y = drawn()
    state = method.algorithm.init(NET.init(jax.random.key(0)), hyper)
    ids = jnp.arange(CLIENTS, dtype=jnp.int32)
    for r in range(ROUNDS):
        samples = Batch(jnp.asarray(x[r]), jnp.asarray(y[r], jnp.int32))
        state, _ = method.algorithm.step(state, TaskBatch(ids, Task(samples)), hyper)
    return state


def composed(**options):
    return fedprior(LOSS, n=CLIENTS, tasks_per_step=CLIENTS, local_steps=H, k=K, **options)


HYPER = Hyper(
    **{
        name: jnp.array(value)
        for name, value in {
            "eta": ETA,
            "smoothing": SMOOTHING,
            "decay": DECAY,
            "beta": BETA,
        }.items()
    }
)


@pytest.mark.parametrize("mix", [0.0, MIX, 1.0])
def test_equals_the_slow_loop(mix):
    first = NET.init(jax.random.key(0)).head
    want, memories, priors = slow(np.asarray(first.weight), np.asarray(first.bias))
    method = composed(mix=mix)
    state = trained(method, HYPER)
    np.testing.assert_allclose(state.meta.head.weight, want[0], rtol=1e-12)
    np.testing.assert_allclose(state.meta.head.bias, want[1], rtol=1e-12)
    np.testing.assert_allclose(state.memory.u.log_prior, priors, rtol=1e-12)
    models = jax.vmap(lambda u: method.algorithm.rounds.kept(state.meta, u))(state.memory.u)
    for i, (weight, bias) in enumerate(memories):
        own = [(1 - mix) * w + mix * u for w, u in zip(want, (weight, bias), strict=True)]
        np.testing.assert_allclose(models.head.weight[i], own[0], rtol=1e-12)
        np.testing.assert_allclose(models.head.bias[i], own[1] + priors[i], rtol=1e-12)


def test_with_equal_frequencies_it_is_fedavg():
    plain = fedavg(LOSS, n=CLIENTS, tasks_per_step=CLIENTS, local_steps=H, k=K)
    want = trained(plain, plain.hyper._replace(eta=jnp.array(ETA)))
    same = HYPER._replace(smoothing=jnp.array(1e15), decay=jnp.array(0.0))
    got = trained(composed(), same)
    np.testing.assert_allclose(got.meta.head.weight, want.meta.head.weight, rtol=1e-10)


def test_padding_has_no_part_in_the_frequencies():
    from moml.paper.leaderboard.prior import log_prior

    samples = Batch(jnp.zeros((2, 3, 4)), jnp.array([[0, 0, 1], [2, 2, 2]], jnp.int32))
    some = samples._replace(mask=jnp.array([[True, False, True], [True, True, True]]))
    of = lambda samples, steps: np.exp(log_prior(samples, steps, 3, jnp.array(1.0)))
    np.testing.assert_allclose(of(samples, None), np.array([3, 2, 4]) / 9)
    np.testing.assert_allclose(of(some, jnp.array(1, jnp.int32)), np.array([2, 2, 1]) / 5)
