"""Runs of tables that were not trained: random members of the given kinds, for what comes after."""

import jax
import numpy as np
import pytest

from moml.algorithms.tabular.members import Shape, parts
from moml.algorithms.tabular.rivals import Rivals
from moml.data.table.columns import learn_columns
from moml.data.table.frame import as_table
from moml.data.table.groups import group
from moml.models.table import knots
from moml.tabular.model import TableModel
from moml.tabular.run import TableRun
from moml.tabular.store import in_memory
from moml.types import Hyper


@pytest.fixture(autouse=True, scope="module")
def quick():
    """Compiled without much ado: that is where time goes."""
    name = "jax_disable_most_optimizations"
    before = jax.config.read(name)
    jax.config.update(name, True)
    yield
    jax.config.update(name, before)


def visits(n, seed, target="number", first=0):
    """Rows of n people: a date, a number with gaps, a category with gaps, a truth value, y."""
    rng = np.random.default_rng(seed)
    who = first + np.repeat(np.arange(n), rng.integers(3, 8, n))
    count = len(who)
    gone = lambda values, share: np.where(rng.random(count) < share, None, values)
    y = rng.normal(20, 5, count).round(3)
    moments = rng.integers(0, 9000, count) * np.timedelta64(3, "m")
    columns = {
        "person": np.char.add("pers\u00f6n-", who.astype(str)),
        "day": np.datetime64("2024-01-01T06:30:00") + moments,
        "size": gone(rng.normal(size=count).round(4), 0.1).astype(float),
        "kind": gone(rng.choice(["a", "b", "c"], count), 0.05),
        "new": rng.random(count) < 0.4,
    }  # fmt: skip
    made = {"number": y, "two": np.where(y > 20, "yes", "no"), "flag": y > 20,
            "three": np.digitize(y, [17, 23]) * 5}  # fmt: skip
    return columns | {"y": made[target]}


def models_of(shape, at, kinds, rng, members=2):
    """Members with random numbers everywhere."""
    metas = {}
    for i, kind in enumerate(kinds):
        made = parts(kind, shape, at)
        first = lambda key, made=made: made.adapt.init(made.init(key), Hyper(eta=0.0, alpha=0.1))
        meta = jax.vmap(first)(jax.random.split(jax.random.key(i), members))
        near = lambda leaf: np.asarray(leaf) + 0.3 * rng.normal(size=leaf.shape)
        metas[kind] = jax.tree.map(near, meta)
    return TableModel(shape, at, metas, shots=3)


def small_run(folder, columns, kinds, *, order=None, cold="personal", each=False):
    """A run of such columns in a folder; with `each`, as `moml adapt` leaves it."""
    rng = np.random.default_rng(7)
    table = as_table(columns)
    groups = group(table, "person", order)
    numbers = columns["y"].dtype.kind == "i"
    known = learn_columns(table, "y", exclude=["person"], classification=numbers)
    x, y = known.encode(table), known.target(table)
    at = knots(x.astype(float))
    shape = Shape(x.shape[1], len(known.target.classes) or None, order is not None)
    models = {
        "personal": models_of(shape, at, kinds, rng),
        "pooled": models_of(shape, at, ["pooled"], rng),
    }
    two = lambda n: np.arange(n) // 2  # rows of each task
    off = lambda n: np.column_stack([rng.normal(size=n), two(n), rng.random(n)])
    residuals = {} if known.target.classes else {k: off(40 + k) for k in (0, 1, 3)}
    about = {
        "task": "person", "target": "y", "order": order, "weight": None, "shots": 3, "seed": 0,
        "held_out": [groups.ids[1]], "trained": [groups.ids[0], *groups.ids[2:]], "model": None,
        "cold": cold,
    }  # fmt: skip
    metric = "accuracy" if known.target.classes else "rmse"
    score = {"metric": metric, "mean": 1.0, "std": 0.0, "tasks": 1, "rows": 2}
    scores = [{"model": m, "shots": k} | score for k in (0, 3) for m in ("personal", "pooled")]
    nobody = in_memory([], [(models["personal"].start(), np.zeros(0, int))])
    rivals = Rivals([0.0], None, 1.0)
    run = TableRun(about, known, models, rivals, nobody, residuals, scores)
    blocks = iter([(models["personal"].personal(x, y, groups.lists()), groups.sizes)])
    return run.with_tasks(groups.ids, blocks, folder, each=each)
