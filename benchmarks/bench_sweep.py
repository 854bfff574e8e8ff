"""A sweep of 125 trainings (5 seeds x 5 eta x 5 beta) as one program over one training.

Needs JAX alone and runs on whatever backend JAX finds. On a CPU both sides have all its cores,
which a sweep can use and a single run cannot: that one is faster still with NPROC=1.
"""

import os
from collections.abc import Callable

os.environ.setdefault("NPROC", str(os.cpu_count()))  # before JAX starts

import jax
import jax.numpy as jnp

from common import (
    CHUNK,
    HYPER,
    NET,
    advance,
    interleave,
    machine,
    program_of,
    ratio,
    sine_method,
    table,
    training,
)
from moml.tasks.sine import sine
from moml.types import Algorithm, Hyper, Tasks

SEEDS = range(5)
ETA = (0.001, 0.002, 0.005, 0.01, 0.02)
BETA = (0.05, 0.1, 0.2, 0.3, 0.5)


def sweep(algorithm: Algorithm, tasks: Tasks) -> tuple[Callable[[], None], int]:
    """All members side by side: one key, one eta and one beta each."""
    seeds, eta, beta = (
        axis.ravel()
        for axis in jnp.meshgrid(jnp.array(SEEDS), jnp.array(ETA), jnp.array(BETA), indexing="ij")
    )
    members = len(seeds)
    hyper = Hyper(eta=eta, beta=beta, alpha=jnp.full(members, HYPER.alpha))
    keys = jax.vmap(jax.random.key)(seeds)
    state = jax.jit(jax.vmap(algorithm.init))(jax.vmap(NET.init)(keys), hyper)
    return advance(program_of(algorithm, tasks, members=True), state, keys, hyper), members


def main() -> None:
    machine()
    tasks = sine()
    timings, ratios = {}, {}
    for curvature, end in (("exact", ""), ("first-order", "_first_order")):
        algorithm = sine_method("moml-v1", tasks, curvature=curvature)
        many, members = sweep(algorithm, tasks)
        one, each = f"one run, {curvature}", f"{members} runs, each, {curvature}"
        sides = {one: training(algorithm, tasks), each: many}
        timings |= interleave(sides, {one: CHUNK, each: CHUNK * members}, turns=8)
        ratios[f"one_run_over_sweep_per_run{end}"] = timings[one], timings[each]
    table(timings)
    for name, (over, under) in ratios.items():
        ratio(name, over, under)


if __name__ == "__main__":
    main()
