"""What a table's training program costs to compile, part by part, in seconds of a core.

Each part is compiled alone, with XLA's default and with the optimisation level that tables use.
"""

import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax

from common import machine
from moml.algorithms.parts.heads import posterior_mean
from moml.algorithms.tabular.flat import on_vectors, without_memory
from moml.algorithms.tabular.members import Shape, parts
from moml.algorithms.tabular.summary import summary_of
from moml.methods import method
from moml.models.table import knots
from moml.tabular.fitting.program import TablePlan, draw_program, layout, table_data, train_program
from moml.tabular.rows import padded
from moml.tasks.groups import drawn_from
from moml.types import Batch, Hyper, Task, TaskBatch

TASKS, ROWS, SHOTS, QUERIES, SEEDS = 140, 12, 6, 11, 3
LEVEL = "xla_backend_optimization_level"
machine()

rng = np.random.default_rng(0)
x = rng.normal(size=(TASKS * ROWS, 8)).astype(np.float32)
y = rng.normal(size=len(x)).astype(np.float32)
groups = np.split(np.arange(len(x)), TASKS)
shape, at = Shape(8, None, True), knots(x)
given = table_data(at, x, y, groups, None, 0, 256)
size = layout("head", shape, at).size
plan = TablePlan(shape, SHOTS, 2000, 100, 16, QUERIES, size)
seeds = np.arange(SEEDS, dtype=np.int32)
hyper = Hyper(eta=np.full(2, 0.01, np.float32), alpha=np.full(2, 0.1, np.float32))
support, query = (padded(x, y, groups[:16], width, 16) for width in (SHOTS, QUERIES))
visit = TaskBatch(np.arange(16, dtype=np.int32), Task(support, query))
adam = lambda eta: optax.chain(
    optax.clip_by_global_norm(1.0), optax.scale_by_adam(), optax.add_decayed_weights(0.01),
    optax.scale_by_learning_rate(eta),
)  # fmt: skip


def seconds(lowered, level: int) -> float:
    began = time.process_time()
    lowered.compile({LEVEL: level})
    return time.process_time() - began


def measure(name: str, function, *args) -> tuple[float, float]:
    lowered = jax.jit(function).lower(*args)
    both = seconds(lowered, 3), seconds(lowered, 1)
    lines = len(lowered.as_text().splitlines())
    print(f"{name:<47} {both[0]:7.2f} {both[1]:7.2f} {lines:7}", flush=True)
    return both


def keyed_draws(given, keys):
    """100 steps, a key for each task."""
    tasks = drawn_from(given.rows, shots=SHOTS, ordered=True)

    def step(key):
        ids = jax.random.randint(jax.random.fold_in(key, 0), (16,), 0, TASKS, jnp.int32)
        return tasks.draw(jax.random.fold_in(key, 1), ids, SHOTS + QUERIES)

    steps = jnp.arange(100)
    return jax.vmap(lambda key: jax.vmap(lambda t: step(jax.random.fold_in(key, t)))(steps))(keys)


def stepping(algorithm, meta, count=6):
    """A step of `count` members, and its arguments."""
    one = Hyper(eta=np.float32(0.01), alpha=np.float32(0.1))
    state = jax.eval_shape(lambda: algorithm.init(meta(), one))
    many = jax.tree.map(lambda s: jnp.zeros((count, *s.shape), s.dtype), state)
    return jax.vmap(lambda state, visit: algorithm.step(state, visit, one), (0, None)), many, visit


print(f"{'':<47} {'default':>7} {'level 1':>7} {'lines':>7}")
keys = jax.random.split(jax.random.key(0), SEEDS)
old = measure("draws of 100 steps, a key for each task", keyed_draws, given, keys)
new = measure(
    "draws of 100 steps, one call a step", draw_program(plan).__wrapped__, given, seeds, np.int32(0)
)


def measure_kind(kind: str) -> None:
    made = parts(kind, shape, at)
    init = lambda: made.init(jax.random.key(0))
    tree = method("maml", made.loss, n=TASKS, adapt=lambda steps: made.adapt, optimizer=adam)
    measure(f"{kind}: a step, task by task, Adam on a tree", *stepping(tree.algorithm, init))
    adapt = on_vectors(made.adapt, layout(kind, shape, at, size))
    flat = without_memory(made.loss, adapt, adam, tree.algorithm.needs)
    measure(f"{kind}: a step, one gradient, Adam on a vector", *stepping(flat, init))
    state = jax.vmap(lambda _: flat.init(init(), Hyper(eta=0.01, alpha=0.1)))(jnp.arange(6))
    visits = draw_program(plan)(given, seeds, np.int32(0))
    program = train_program(kind, plan).function.__wrapped__
    rest = (given, Task(support, query), visits, np.int32(0), np.int32(100), hyper)
    measure(f"{kind}: the training program", program, state, *rest)


for kind in ("summary", "head", "pooled"):
    measure_kind(kind)
f = rng.normal(size=(96, SHOTS, 41)).astype(np.float32)
solve = partial(posterior_mean, prior=jnp.ones(41), noise=jnp.float32(1))
loss = lambda f: jnp.sum(jax.vmap(lambda f: solve(f, jnp.ones((SHOTS, 1))))(f))
measure("the closed-form solve and its gradient", jax.grad(loss), f)
_, leave_out = summary_of(jnp.tanh, lambda y: y[:, None], True)
measure("summaries without each row", jax.vmap(lambda b: leave_out(Batch(*b))), tuple(support))
print(f"ratio draws_one_call_over_a_key_each {new[1] / old[0]:.3f}")
