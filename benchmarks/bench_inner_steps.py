"""Memory of an exact Conv4 MAML step with 1, 5 and 10 inner steps: it grows by the states alone.

Differentiating through k inner steps needs the k parameters on the way; all that is between them,
the activations of every step, is computed again instead of kept. `plain` keeps it, for comparison.
The figures are the compiler's own count of the bytes that the program needs besides its arguments.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np

from common import machine
from moml.methods import method
from moml.models import conv4, cross_entropy
from moml.tasks.episodes import episodes
from moml.tasks.sampler import draw, fetch
from moml.types import Hyper


def bytes_of(steps: int, tasks: int, filters: int, plain: bool) -> tuple[int, int]:
    """What a step needs, and what one state of all its tasks takes."""
    net = conv4(1, 20, filters=filters)
    family = episodes(np.zeros((100, 20, 28, 28, 1), np.uint8), 20)
    maml = method("maml", cross_entropy(net.predict), tasks_per_step=tasks, inner_steps=steps)
    visit = fetch(draw(jax.random.key(0), maml.algorithm.needs, family), family)
    hyper = jax.tree.map(jnp.float32, Hyper(eta=0.001, alpha=0.1))
    params = net.init(jax.random.key(0))
    state = maml.algorithm.init(params, hyper)
    kept = jax.checkpoint
    if plain:
        jax.checkpoint = lambda f, **_: f
    try:
        program = jax.jit(maml.algorithm.step).lower(state, visit, hyper).compile()
    finally:
        jax.checkpoint = kept
    one = tasks * sum(leaf.nbytes for leaf in jax.tree.leaves(params))
    return program.memory_analysis().temp_size_in_bytes, one


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--tasks", type=int, default=4)
    given.add_argument("--filters", type=int, default=64)
    a = given.parse_args()
    machine()
    found = {}
    print(f"{'inner steps':>12}{'ours, MB':>12}{'plain, MB':>12}{'one state, MB':>16}")
    for steps in (1, 5, 10):
        ours, one = bytes_of(steps, a.tasks, a.filters, plain=False)
        plain, _ = bytes_of(steps, a.tasks, a.filters, plain=True)
        found[steps] = ours, plain, one
        print(f"{steps:>12}{ours / 1e6:>12.1f}{plain / 1e6:>12.1f}{one / 1e6:>16.2f}", flush=True)
    (five, plain5, one), (ten, plain10, _) = found[5], found[10]
    print(f"states_a_step {(ten - five) / 5 / one:.2f}  (plain {(plain10 - plain5) / 5 / one:.2f})")


if __name__ == "__main__":
    main()
