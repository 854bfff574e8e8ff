"""Runs on a mesh beside the same runs on one device, for whoever has the devices to compare them.

`python -m tests.runtime.many_devices CASE ...` does it on all devices of its process; with a
coordinator's address and 0 or 1 before the cases it is one of two processes.
"""

import json
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import tests.conftest  # noqa: F401  double precision, strict promotion
from moml.algorithms.parts.schedule import decay_at
from moml.errors import ConfigError
from moml.methods import method
from moml.models import mlp, mse
from moml.runtime import sharded, simulate
from moml.runtime.account import collectives, message, nbytes
from moml.runtime.mesh import gathered, mesh, spread, task_data
from moml.tasks import from_arrays, from_rows, sine
from moml.tasks.sampler import as_drawn
from moml.types import Algorithm, Batch, SampleSpec, Tasks
from tests.algorithms.common import HYPER, World, class_world, data, features, loss, sigmoid_world

N, STEPS = 25, 50  # blocks of four on eight devices: one has a single task, one none
KEY = lambda: jax.random.key(5)  # not before processes have met


def _in_arrays(sizes: Any = None) -> World:
    return World(from_arrays(*data(N), sizes), loss, sigmoid_world().params)


def _in_rows() -> World:
    """Clients of 3 to 10 rows, some of which belong to several."""
    chance = np.random.default_rng(4)
    x, y = (values.reshape(-1, *values.shape[2:]) for values in data(N))
    rows = [chance.choice(len(x), chance.integers(3, 11), replace=False) for _ in range(N)]
    return World(from_rows(x, y, rows), loss, sigmoid_world().params)


def _waves() -> World:
    net = mlp(1, 3, 1)
    tasks = sine(jnp.linspace(0.5, 1.5, N), jnp.linspace(0.0, 1.0, N), noise=0.1)
    small = lambda params, batch: 0.02 * mse(net.predict)(params, batch)
    return World(tasks, small, net.init(jax.random.key(1)))


def _stream() -> World:
    """Tasks without end: the seed of a task is the shift of its wave."""

    def draw(index: Any, key: Any, ids: Any, size: int) -> Batch:
        x = jax.random.uniform(key, (len(ids), size, 1))
        shift = jax.vmap(lambda seed: jax.random.uniform(jax.random.key(seed), (1, 1)))(ids)
        return Batch(x, jnp.sin(x + jnp.broadcast_to(shift, x.shape)))

    return _waves()._replace(tasks=Tasks(None, draw, as_drawn))


def _classes() -> World:
    """Inputs in three classes."""
    x, _ = data(N, d=3)
    y = np.random.default_rng(3).integers(0, 3, x.shape[:2]).astype(np.int32)
    return class_world()._replace(tasks=from_arrays(x, y))


class Case(NamedTuple):
    """A method on some tasks."""

    name: str
    world: Callable[[], World]
    tasks_per_step: int
    options: dict[str, Any] = {}
    devices: int | None = None
    at_once: int | None = None


SIZES = [12, 3, 7, 5, 9] * 5
LOSSY = {"dropout": 0.4, "straggle": 0.4, "weighted": True}
CASES = {
    "v1": Case("moml-v1", _in_arrays, 5),
    "moml, fewer tasks than devices": Case("moml", _in_rows, 3, {"shots": 8}),
    "v2": Case("moml-v2", _in_rows, 7),
    "v2 in two batches": Case("moml-v2", lambda: _in_arrays(SIZES), 11, {"two_batches": True}),
    "nasa": Case("nasa", _in_arrays, 3),
    "localmoml": Case("localmoml", _in_rows, 5),
    "localmoml carried, lossy": Case("localmoml", _in_rows, 9, {"carried": True} | LOSSY),
    "per-fedavg": Case("per-fedavg", _waves, 6),
    "pfedme": Case("pfedme", _in_arrays, 5, {"prox": 0.8, "prox_steps": 3}),
}
MORE = {
    "v1 on one device": Case("moml-v1", _in_arrays, 5, devices=1),
    "maml without end": Case("maml", _stream, 11),
    "fedavg, lossy": Case("fedavg", lambda: _in_arrays(SIZES), 12, LOSSY, at_once=1),
    "v1 on three": Case("moml-v1", _in_rows, 10, devices=3),
    "v2 direct": Case("moml-v2", _waves, 4, {"direct": True}),
    "scgd": Case("scgd", _waves, 3),
    "maml": Case("maml", _in_rows, 9, {"independent_hessian": True}),
    "meta-sgd": Case("meta-sgd", _in_arrays, 5),
    "bspiderboost": Case("bspiderboost", _in_arrays, 3),
    "reptile": Case("reptile", _in_rows, 5),
    "localmoml carried": Case("localmoml", _waves, 12, {"carried": True}, at_once=1),
    "fedavg-memory, lossy": Case("fedavg-memory", _in_rows, 5, LOSSY),
    "ditto, lossy": Case("ditto", _in_rows, 5, LOSSY),
    "fedper, lossy": Case("fedper", _in_rows, 5, LOSSY),
    "lg-fedavg": Case("lg-fedavg", _in_arrays, 5),
    "fedbn": Case("fedbn", _in_arrays, 5, {"private": "body"}),
    "fedrep": Case("fedrep", _in_rows, 5, {"head_passes": 2}),
    "fedbabu": Case("fedbabu", _in_rows, 5),
    "apfl, lossy": Case("apfl", _in_rows, 5, LOSSY),
    "fedala": Case("fedala", _in_rows, 5),
    "feddbe, lossy": Case("feddbe", _classes, 5, {"features": features, **LOSSY}),
    "fedprox": Case("fedprox", _waves, 6),
    "scaffold, lossy": Case("scaffold", _in_rows, 9, LOSSY),
    "feddyn": Case("feddyn", _in_rows, 5, {"prox": 0.8}),
    "fedavgm": Case("fedavgm", _in_arrays, 5),
    "fedadam": Case("fedadam", _in_rows, 5),
    "fedyogi, lossy": Case("fedyogi", _in_rows, 7, LOSSY),
    "local, lossy": Case("local", _in_rows, 7, LOSSY),
    "fo-maml": Case("fo-maml", _in_rows, 5),
    "hf-maml": Case("hf-maml", _in_arrays, 5),
    "anil": Case("anil", _in_rows, 5),
    "protonet": Case("protonet", _classes, 5, {"features": features}),
}


def poisoned(algorithm: Any, n: int | None, state: Any) -> Any:
    """The state with padding that is not a number, where it can be."""

    def leaf(rows: bool, leaf: Any) -> Any:
        if not rows or not jnp.issubdtype(leaf.dtype, jnp.floating):
            return leaf
        where = jnp.arange(len(leaf)).reshape(-1, *(1,) * (leaf.ndim - 1)) < n
        return jnp.where(where, leaf, jnp.nan)

    poison = lambda state: jax.tree.map(leaf, jax.tree.broadcast(algorithm.rows, state), state)
    same = jax.tree.map(lambda leaf: leaf.sharding, state)
    return jax.jit(poison, out_shardings=same, donate_argnums=0)(state)


class Runs(NamedTuple):
    """A case, compiled for one device and for a mesh: (state, start) -> state, infos."""

    algorithm: Algorithm
    tasks: Tasks
    begun: Callable[[], Any]
    one: Callable[[Any, int], Any]
    spread: Callable[[], Any]  # the first state on the mesh
    many: Callable[[Any, int], Any]
    program: Any  # of `many`
    summed: int  # bytes that a step sums over devices: the model, what else is sent, losses

    def apart(self, many: Any, one: Any) -> float:
        """The largest difference, relative to numbers above one."""
        got = (gathered(self.algorithm, many[0], self.tasks.n), many[1:])
        pairs = zip(jax.tree.leaves(got), jax.tree.leaves(one), strict=True)
        gap = lambda a, b: np.max(np.abs(a - b) / np.maximum(np.abs(b), 1), initial=0.0)
        return float(np.max([gap(np.asarray(a, float), np.asarray(b, float)) for a, b in pairs]))


def compiled(case: Case, world: World | None = None) -> Runs:
    """A case, on the tasks it names or on others."""
    tasks, loss, params = case.world() if world is None else world
    given = {"n": tasks.n, "k": 2}
    if case.name not in ("scgd", "nasa"):  # which visit all tasks
        given["tasks_per_step"] = case.tasks_per_step
    chosen = method(case.name, loss, **given, **case.options)
    algorithm = chosen.algorithm
    there, hyper = mesh(case.devices), jax.tree.map(jnp.asarray, HYPER)
    schedule = decay_at(30, 0.3)
    begun = jax.jit(algorithm.init)
    one = simulate.program(algorithm, schedule)
    first = lambda *given: poisoned(algorithm, tasks.n, sharded.first(algorithm, there)(*given))
    many = sharded.program(algorithm, there, schedule, at_once=case.at_once)
    data, rest, start = task_data(tasks, there), sharded.without_data(tasks), np.int32
    given = lambda at: (data, rest, KEY(), start(at), hyper, start(STEPS))
    program = many.lower(first(params, hyper), *given(0), STEPS).compile()
    return Runs(
        algorithm,
        tasks,
        lambda: begun(params, hyper),
        lambda state, at: one(state, tasks, KEY(), start(at), hyper, start(STEPS), STEPS),
        lambda: first(params, hyper),
        lambda state, at: program(state, *given(at)),
        program,
        nbytes(message(chosen, begun(params, hyper).meta)) + 8 * (2 if algorithm.rounds else 1),
    )


@cache
def of_case(name: str) -> Runs:
    return compiled((CASES | MORE)[name])


def result(name: str) -> dict[str, Any]:
    """How far a run on the mesh is from the run on one device, and what a step of it sends."""
    run = of_case(name)
    apart = run.apart(run.many(run.spread(), 0), run.one(run.begun(), 0))
    return {"apart": apart, "sent": collectives(run.program), "summed": run.summed}


def moved_on() -> float:
    """50 steps on all devices and the next 50 on three of them."""
    wide = of_case("v2")
    narrow = compiled(CASES["v2"]._replace(devices=3))
    host = gathered(wide.algorithm, wide.many(wide.spread(), 0)[0], N)
    state = spread(narrow.algorithm, host, mesh(3))
    once, _ = wide.one(wide.begun(), 0)
    return narrow.apart(narrow.many(state, STEPS), wide.one(once, STEPS))


def filled() -> float:
    """Eager memories, more of them than are filled at a time."""
    n, hyper = 300, jax.tree.map(jnp.asarray, HYPER)
    tasks, params = from_arrays(*data(n, 5)), sigmoid_world().params
    algorithm = method("moml-v2", loss, n=n, k=2).algorithm
    begun = jax.jit(algorithm.init)(params, hyper)
    want = jax.jit(simulate.fill(algorithm.fill, n, 2))(begun, tasks, KEY(), hyper)
    begun = sharded.first(algorithm, mesh())(params, hyper)
    got = gathered(algorithm, sharded.fill(algorithm, tasks, mesh(), 2)(begun, KEY(), hyper), n)
    pairs = zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True)
    return float(np.max([np.max(np.abs(a - np.asarray(b))) for a, b in pairs]))


def beside() -> tuple[int, int]:
    """Bytes that a stretch needs beside its state, and those of a device's rows."""
    waves = _waves()._replace(tasks=sine(jnp.ones(80_000), jnp.ones(80_000)))
    run = compiled(CASES["v2"], waves)
    rows = sum(leaf.nbytes for leaf in jax.tree.leaves(run.begun().memory)) // mesh().size
    return run.program.memory_analysis().temp_size_in_bytes, rows


def refused() -> list[str]:
    """In words."""

    def words(act: Callable[[], Any]) -> str:
        try:
            act()
        except ConfigError as error:
            return str(error)
        return "nothing was refused"

    world, few = _in_arrays(), from_arrays(*data(5))
    plain = Algorithm(
        lambda params, hyper: params, lambda state, visit, hyper: state, SampleSpec(2)
    )
    v1 = method("moml-v1", loss, n=5, k=2).algorithm
    again = v1._replace(needs=v1.needs._replace(replace=True))
    return [
        words(lambda: sharded.check(plain, world.tasks, mesh())),
        words(lambda: sharded.check(again, world.tasks, mesh())),
        words(lambda: sharded.check(v1, few, mesh())),
        words(lambda: mesh(9)),
    ]


def main(*words: str) -> None:
    """Print what was found, in JSON."""
    met = bool(words) and ":" in words[0]
    if met:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(words[0], 2, int(words[1]), coordinator_bind_address=words[0])
    said = {"runs": {name: result(name) for name in words[2 * met :]}, "devices": mesh().size}
    if not met:
        checks = (moved_on, filled, beside, refused)
        said |= {check.__name__: check() for check in checks}
    print(json.dumps(said))


if __name__ == "__main__":
    main(*sys.argv[1:])
