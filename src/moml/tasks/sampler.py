"""The draw of a step's tasks and samples: a tree of `SampleSpec` becomes a tree of `TaskBatch`.

A draw depends on its key alone, and the key on the step alone, so a run does not depend on the
length of a chunk, the step it was resumed at, or the number of devices.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from moml.errors import ConfigError
from moml.types import Key, Samples, SampleSpec, Task, TaskBatch, Tasks, Turnout


def distinct(key: Key, n: Int[Array, ""] | int, size: int) -> Int[Array, " size"]:
    """`size` distinct numbers below n, every ordered choice equally likely.

    Each number is drawn as a rank among those still free and moved past the taken ones: O(size^2),
    without a permutation of n. Where n is static and a sort is cheaper, it sorts.

    >>> sorted(distinct(jax.random.key(0), 4, 4).tolist())
    [0, 1, 2, 3]
    """
    if isinstance(n, int) and size * size > 16 * n:
        return jnp.argsort(jax.random.uniform(key, (n,)))[:size].astype(jnp.int32)
    place = jnp.arange(size, dtype=jnp.int32)
    ranks = jax.random.randint(key, (size,), 0, jnp.maximum(n - place, 1), jnp.int32)

    def one(
        taken: Int[Array, " size"], rank: Int[Array, ""]
    ) -> tuple[Int[Array, " size"], Int[Array, ""]]:
        pick = rank + jnp.sum(taken - place <= rank, dtype=jnp.int32)
        at = jnp.sum(taken < pick, dtype=jnp.int32)
        later = jnp.where(place == at, pick, jnp.roll(taken, 1))
        return jnp.where(place < at, taken, later), pick  # inserted, still in ascending order

    nothing = jnp.full(size, jnp.iinfo(jnp.int32).max, jnp.int32)
    return jax.lax.scan(one, nothing, ranks, unroll=min(size, 8))[1]


def distinct_or_not(key: Key, n: Int[Array, ""] | int, size: int) -> Int[Array, " size"]:
    """Distinct rows of a task where it has enough of them, else rows with replacement."""
    repeated = jax.random.randint(jax.random.fold_in(key, 1), (size,), 0, n, jnp.int32)
    if isinstance(n, int):
        return distinct(key, n, size) if size <= n else repeated
    return jnp.where(n >= size, distinct(key, n, size), repeated)


def shuffled(key: Key, n: Int[Array, ""] | int, width: int) -> Int[Array, " width"]:
    """The numbers below n in random order, followed by those from n to `width` - 1.

    >>> sorted(shuffled(jax.random.key(0), 3, 5)[:3].tolist())
    [0, 1, 2]
    """
    place = jnp.arange(width, dtype=jnp.int32)
    late = jnp.where(place < n, jax.random.uniform(key, (width,)), 2.0)
    return jnp.argsort(late).astype(jnp.int32)


def draw_ids(key: Key, n: int | None, size: int, replace: bool = False) -> Int[Array, " size"]:
    """A batch of tasks, distinct ones unless `replace`; for a stream, seeds of new tasks."""
    if n is None or replace:
        below = jnp.iinfo(jnp.int32).max if n is None else n
        return jax.random.randint(key, (size,), 0, below, jnp.int32)
    return jnp.arange(n, dtype=jnp.int32) if size == n else distinct(key, n, size)


def stratified_ids(key: Key, n: int, size: int, groups: int) -> Int[Array, " size"]:
    """`size` distinct ids below n, equally many from each block; the first blocks are larger.

    >>> ids = stratified_ids(jax.random.key(0), n=6, size=4, groups=2)
    >>> sorted(i // 3 for i in ids.tolist())
    [0, 0, 1, 1]
    """
    each, keys = size // groups, jax.random.split(key, groups)
    widths = [n // groups + (g < n % groups) for g in range(groups)]
    starts = [sum(widths[:g]) for g in range(groups)]
    blocks = zip(keys, widths, starts, strict=True)
    return jnp.concatenate([at + draw_ids(key, width, each) for key, width, at in blocks])


def specs_in(needs: PyTree) -> list[SampleSpec]:
    """The leaves of a tree of needs."""
    return jax.tree.leaves(needs, is_leaf=lambda need: isinstance(need, SampleSpec))


def set_of(need: SampleSpec) -> int:
    """The samples of one set: S1, S3 and S2 of a visit or a local step."""
    return need.support + need.query + need.hessian


def sets_in(
    need: SampleSpec, size: Int[Array | np.ndarray, "*n"] | int
) -> Int[Array | np.ndarray, "*n"] | int:
    """Local steps of clients that have `size` samples each: E floor(size / set), at least E."""
    least = max if isinstance(size, int) else jnp.maximum
    return (need.epochs or 1) * least(size // set_of(need), 1)


def _draw_epochs(
    key: Key, need: SampleSpec, tasks: Tasks, ids: Int[Array, " size"]
) -> Int[Array, "size steps set"]:
    """Rows of every local step of some clients, each epoch a new order; a last part is left out.

    A client with fewer samples than a set repeats some of them. Rows past its last step are drawn
    too, and never used.
    """
    most, each = tasks.most, set_of(need)
    if most is None:
        raise ConfigError("local_epochs needs tasks with finite data; got tasks without sizes")
    steps = int(sets_in(need, most))
    place = jnp.arange(steps * each, dtype=jnp.int32)

    def one(key: Key, n: Int[Array, ""]) -> Int[Array, "steps set"]:
        keys = jax.random.split(key, need.epochs or 1)
        order = jax.vmap(lambda key: shuffled(key, n, most))(keys)
        used = jnp.maximum(n // each, 1) * each  # samples of an epoch
        epoch = jnp.minimum(place // used, len(keys) - 1)
        return order[epoch, place % used % n].reshape(steps, each)

    return jax.vmap(one)(jax.random.split(key, len(ids)), tasks.sizes(ids))


def _draw_turnout(
    key: Key, need: SampleSpec, tasks: Tasks, ids: Int[Array, " size"]
) -> Turnout | None:
    """Which clients answer, after how many steps, with what weight; None if there is no choice."""
    unequal = need.epochs is not None and tasks.least != tasks.most
    if not (need.dropout or need.straggle or need.weighted or unequal):
        return None
    drop_key, late_key, steps_key = jax.random.split(key, 3)
    chance = lambda key, p: jax.random.uniform(key, ids.shape, jnp.float32) < p
    if need.epochs is None:
        whole = jnp.full_like(ids, need.visits or 1)
    else:
        whole = jnp.asarray(sets_in(need, tasks.sizes(ids)), ids.dtype)
    fewer = jax.random.randint(steps_key, ids.shape, 1, jnp.maximum(whole, 2), jnp.int32)
    return Turnout(
        present=~chance(drop_key, need.dropout),
        steps=jnp.where(chance(late_key, need.straggle), fewer, whole),
        weight=tasks.sizes(ids) if need.weighted else jnp.ones_like(ids),
    )


def _draw_samples(key: Key, need: SampleSpec, tasks: Tasks, ids: Int[Array, " size"]) -> PyTree:
    """What is random of all sets: leaves [tasks, set, ...], or [tasks, steps, set, ...]."""
    if need.epochs is not None:
        rows = _draw_epochs(key, need, tasks, ids)
        return (
            rows if tasks.rows_from is None else tasks.rows_from(jax.random.fold_in(key, 1), rows)
        )
    if need.visits is None:
        return tasks.draw(key, ids, set_of(need))
    keys = jax.random.split(key, need.visits)
    return jax.vmap(lambda key: tasks.draw(key, ids, set_of(need)), out_axes=1)(keys)


def draw_epochs(
    key: Key, tasks: Tasks, ids: Int[Array, " tasks"], epochs: int, size: int
) -> tuple[PyTree, Int[Array, " tasks"]]:
    """What is random of some passes over all samples of tasks, [tasks, sets, size, ...].

    Also how many of the sets are each task's own: a smaller task has fewer, see `sets_in`.
    """
    need = SampleSpec(len(ids), support=size, epochs=epochs)
    sets = jnp.asarray(sets_in(need, tasks.sizes(ids)), jnp.int32)
    return _draw_samples(key, need, tasks, ids), sets


def _draw_visit(key: Key, need: SampleSpec, tasks: Tasks) -> TaskBatch:
    turnout_key = jax.random.fold_in(key, 3)  # independent, like S0: neither changes other draws
    ids_key, key, restart_key = jax.random.split(key, 3)
    if need.groups > 1 and tasks.n is not None:
        ids = stratified_ids(ids_key, tasks.n, need.tasks, need.groups)
    else:
        ids = draw_ids(ids_key, tasks.n, need.tasks, need.replace)
    samples = _draw_samples(key, need, tasks, ids)
    axis = 1 if need.visits is None and need.epochs is None else 2
    sizes = [need.support, need.query, need.hessian]
    ends = [sum(sizes[:i]) for i in range(len(sizes) + 1)]

    def part(i: int) -> PyTree:
        cut = lambda x: jax.lax.slice_in_dim(x, ends[i], ends[i + 1], axis=axis)
        return jax.tree.map(cut, samples) if sizes[i] else None

    restart = tasks.draw(restart_key, ids, need.restart) if need.restart else None
    task = Task(part(0), part(1), part(2), restart)
    return TaskBatch(ids, task, _draw_turnout(turnout_key, need, tasks, ids))


def draw(key: Key, needs: PyTree, tasks: Tasks) -> PyTree:
    """The tree of needs with a visit in place of each; its samples are not fetched yet."""
    leaves, tree = jax.tree.flatten(needs, is_leaf=lambda need: isinstance(need, SampleSpec))
    visits = []
    for i, need in enumerate(leaves):
        sub = jax.random.fold_in(key, i)
        if need.times is None:
            visits.append(_draw_visit(sub, need, tasks))
        else:
            one = need._replace(times=None)
            several = jax.vmap(lambda key, one=one: _draw_visit(key, one, tasks))
            visits.append(several(jax.random.split(sub, need.times)))
    return jax.tree.unflatten(tree, visits)


def fetch(visits: PyTree, tasks: Tasks) -> PyTree:
    """The same tree with the samples in place of their draws."""

    def one(visit: TaskBatch) -> TaskBatch:
        samples = [None if s is None else tasks.fetch(visit.ids, s) for s in visit.task]
        return visit._replace(task=Task(*samples))

    return jax.tree.map(one, visits, is_leaf=lambda visit: isinstance(visit, TaskBatch))


def as_drawn(data: PyTree, ids: Int[Array, "*tasks"], drawn: Samples) -> Samples:
    """Fetch samples that a draw made in full."""
    return drawn
