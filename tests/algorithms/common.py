"""What the tests of the algorithms share: small families of tasks, and the way to numpy."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moml.algorithms.parts.heads import LinearHead
from moml.models import cross_entropy, masked_mean
from moml.tasks import from_arrays
from moml.tasks.sampler import draw, fetch
from moml.types import Hyper, SampleSpec, Task, TaskBatch, Tasks
from tests.reference.problem import Client, Draw

N, B, K, T = 7, 3, 2, 25  # tasks, tasks a step, samples, steps
HYPER = Hyper(
    eta=0.3, beta=0.4, alpha=0.7, gamma=0.6, prox=1.0, server_rate=1.0, b1=0.7, b2=0.8, tau=0.05,
    mix_eta=5.0, kappa=0.7, shift_rate=0.5,
)  # fmt: skip
HEAD = np.array([False, False, False, True, True])  # which of the five parameters are the head's
# float32 is compared over few steps: differences in rounding grow with the length of a run.
precisions = pytest.mark.parametrize(
    ("dtype", "rtol", "steps"),
    [(np.float64, 1e-12, 25), (np.float32, 1e-6, 4)],
    ids=["float64", "float32"],
)


class World(NamedTuple):
    """A family of tasks, a loss on it, and where training starts."""

    tasks: Tasks
    loss: Callable
    params: Any


def loss(params: Any, batch: Any) -> Any:
    """Squared loss on a sigmoid: the jax side of `tests.reference.problem`."""
    body, head, x = params["body"], params["head"], batch.x
    s = jax.nn.sigmoid(x[:, :3] @ body + x[:, 3] * head[0] + head[1])
    return masked_mean((s - batch.y) ** 2, batch.mask)


def features(params: Any, x: Any) -> Any:
    """What the closed-form head is given."""
    return jnp.tanh(x @ params["body"].T)


def head_loss(params: Any, batch: Any) -> Any:
    """Squared loss of a linear head: the jax side of `tests.reference.closed_form`."""
    head = params["head"]
    out = jax.vmap(jnp.add, (0, None))(features(params, batch.x) @ head.weight.T, head.bias)
    return masked_mean((out[:, 0] - batch.y) ** 2, batch.mask)


def data(n: int = N, m: int = 12, d: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Tasks that differ in where the boundary lies; inputs of size two, so that curvature shows."""
    rng = np.random.default_rng(0)
    x = 2 * rng.normal(size=(n, m, d))
    w = rng.normal(size=(n, d))
    y = (np.einsum("nmd,nd->nm", x, w) > 0) + 0.1 * rng.normal(size=(n, m))
    return x, y


@cache
def sigmoid_world(dtype: Any = np.float64, sizes: tuple[int, ...] | None = None) -> World:
    """Seven tasks of twelve samples, five parameters in two leaves."""
    x, y = data()
    w = np.random.default_rng(1).normal(size=5).astype(dtype)
    params = {"body": jnp.asarray(w[:3]), "head": jnp.asarray(w[3:])}
    return World(from_arrays(x.astype(dtype), y.astype(dtype), sizes), loss, params)


@cache
def head_world(dtype: Any = np.float64, sizes: tuple[int, ...] | None = None) -> World:
    """The same tasks for a linear head over two tanh features."""
    x, y = data(d=3)
    w = np.random.default_rng(2).normal(size=9).astype(dtype)
    head = LinearHead(jnp.asarray(w[None, 6:8]), jnp.asarray(w[8:]))
    params = {"body": jnp.asarray(w[:6].reshape(2, 3)), "head": head}
    return World(from_arrays(x.astype(dtype), y.astype(dtype), sizes), head_loss, params)


@cache
def class_world(dtype: Any = np.float64) -> World:
    """The same inputs in three classes, for a linear head over two tanh features."""
    x, _ = data(d=3)
    rng = np.random.default_rng(3)
    y = rng.integers(0, 3, x.shape[:2]).astype(np.int32)
    w = rng.normal(size=15).astype(dtype)
    head = LinearHead(jnp.asarray(w[6:12].reshape(3, 2)), jnp.asarray(w[12:]))
    params = {"body": jnp.asarray(w[:6].reshape(2, 3)), "head": head}
    logits = lambda p, x: features(p, x) @ p["head"].weight.T + p["head"].bias[None]
    return World(from_arrays(x.astype(dtype), y), cross_entropy(logits), params)


def flat(tree: Any, lead: int = 0) -> np.ndarray:
    """All leaves in one row of float64, behind `lead` axes that stay."""
    leaves = [np.asarray(x, np.float64) for x in jax.tree.leaves(tree)]
    return np.concatenate([x.reshape(*x.shape[:lead], -1) for x in leaves], axis=-1)


# The tests spend their time compiling: little of it, since each program runs but once.
quick_jit = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


@cache
def _drawn(needs: Any, steps: int, seed: int) -> Any:
    """Which tasks and which of their twelve rows: the same in every world."""
    tasks, key = sigmoid_world().tasks, jax.random.key(seed)
    one = lambda t: draw(jax.random.fold_in(key, t), needs, tasks)
    return quick_jit(jax.vmap(one))(jnp.arange(steps))


@cache
def visits_of(needs: Any, tasks: Tasks, steps: int = T, seed: int = 0) -> Any:
    """What `steps` steps draw, fetched and stacked."""
    drawn = jax.tree.map(lambda x: np.asarray(x)[:steps], _drawn(needs, max(T, steps), seed))
    return quick_jit(jax.vmap(lambda visit: fetch(visit, tasks)))(drawn)


def everyone(tasks: Tasks, k: int = K) -> TaskBatch:
    """One visit of all tasks, to fill their memories with."""
    return jax.tree.map(
        jnp.asarray, at(visits_of(SampleSpec(tasks.n, support=k), tasks, 1, seed=9), 0)
    )


def at(visits: Any, t: Any) -> Any:
    """Entry t of every leaf, a step of stacked visits say, in numpy."""
    return jax.tree.map(lambda x: np.asarray(x)[t], visits)


def run(algorithm: Any, state: Any, visits: Any, hyper: Any) -> tuple[Any, np.ndarray, Any]:
    """All the steps: the last state, the flat meta-model after every step, and the infos.

    `hyper` is a Hyper of numbers, or of arrays with one number for every step.
    """
    steps = jax.tree.leaves(visits)[0].shape[0]
    many = jnp.ndim(hyper.eta) > 0

    @quick_jit
    def all_steps(state: Any, visits: Any, hyper: Any) -> Any:
        def step(state: Any, t: Any) -> Any:
            now = jax.tree.map(lambda h: h[t], hyper) if many else hyper
            visit = jax.tree.map(lambda x: x[t], visits)
            state, info = algorithm.step(state, visit, now)
            return state, (state.meta, info)

        return jax.lax.scan(step, state, jnp.arange(steps))

    state, (metas, info) = all_steps(state, visits, hyper)
    return state, flat(metas, lead=1), info


def _samples(batch: Any) -> Any:
    return None if batch is None else (np.asarray(batch.x), np.asarray(batch.y))


def draws(visit: TaskBatch) -> list[Draw]:
    """A visit, as the references take it: S2 = S1 where none was drawn."""
    out = []
    for b, i in enumerate(visit.ids):
        task = Task(*at(visit.task, b))
        hessian = task.support if task.hessian is None else task.hessian
        out.append(Draw(int(i), *map(_samples, (task.support, hessian, task.query))))
    return out


def clients(visit: TaskBatch) -> list[Client]:
    """A round's visit, each client with a draw for each of the local steps that it does."""
    out = []
    turnout = visit.turnout
    for b, i in enumerate(visit.ids):
        task = Task(*at(visit.task, b))
        local = task._replace(restart=None)
        whole = jax.tree.leaves(local)[0].shape[0]
        steps = whole if turnout is None else int(turnout.steps[b])
        one = lambda h, i=i, local=local: TaskBatch(i[None], at_one(local, h))
        own = [draws(one(h))[0] for h in range(steps)]
        client = Client(int(i), _samples(task.restart), own)
        if turnout is not None:
            present, weight = bool(turnout.present[b]), float(turnout.weight[b])
            client = client._replace(present=present, weight=weight)
        out.append(client)
    return out


def at_one(tree: Any, h: int) -> Any:
    """Entry h of every leaf, with an axis of one task in front."""
    return jax.tree.map(lambda x: x[h][None], tree)


def assert_close(got: Any, want: Any, rtol: float) -> None:
    """Equal up to rtol times the largest number wanted, row by row."""
    got, want = np.atleast_2d(got), np.atleast_2d(want)
    assert got.shape == want.shape
    scale = np.max(np.abs(want), axis=-1)
    error = np.max(np.abs(got - want), axis=-1) / np.where(scale > 0, scale, 1)
    assert np.all(error <= rtol), f"relative error {error.max():.3g} at row {error.argmax()}"
