"""What a memory, and what a larger K, cost a step: operations by the compiler's count, and time.

Without memory is MAML, with one MOML v1, both one way; `moml` is v1 both ways with Adam. The sides
take turns; each ratio is of the best times. Clients have random images of CIFAR-10's shape.
"""

import argparse

import jax
import numpy as np

import common
from common import LOSS, NET, Tasks, advance, interleave, machine, program_of
from moml import from_arrays
from moml.models import Model, cross_entropy, mlp
from moml.tasks.sine import sine
from moml.training.compose import compose, init_key, work
from moml.types import Loss

METHODS = {"none": "maml", "memory": "moml-v1", "both ways": "moml"}


def clients() -> tuple[Model, Loss, Tasks]:
    """The network of the paper's clients, and 50 tasks of 100 images."""
    net, generator = mlp(3072, 40, 40, 10), np.random.default_rng(0)
    x = generator.standard_normal((50, 100, 3072)).astype(np.float32)
    return net, cross_entropy(net.predict), from_arrays(x, generator.integers(0, 10, (50, 100)))


def measure(name: str, net: Model, loss: Loss, tasks: Tasks, ks: list[int], turns: int) -> None:
    """Print a line for each K."""
    params, sides, operations = net.init(init_key(0)), {}, {}
    for k in ks:
        for side, method in METHODS.items():
            number = {} if side == "none" else {"beta": 0.5}
            chosen = compose(method, loss, tasks, {"k": k} | number, 1)
            operations[side, k] = work(chosen, params, tasks)
            state = jax.jit(chosen.algorithm.init)(params, chosen.hyper)
            program = program_of(chosen.algorithm, tasks)
            sides[side, k] = advance(program, state, init_key(1), chosen.hyper)
    timings = interleave(sides, common.CHUNK, turns)
    for k in ks:
        base, one, other = (operations[side, k] for side in METHODS)
        least, mine, twice = (timings[side, k].best for side in METHODS)
        print(
            f"{name:8}{k:4}{base / operations['none', ks[0]]:14.2f}"
            f"{least / timings['none', ks[0]].best:8.2f}{one / base:14.3f}{mine / least:8.3f}"
            f"{other / base:14.2f}{twice / least:8.2f}", flush=True,
        )  # fmt: skip


def main() -> None:
    """Parse the words."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--k", type=int, nargs="+", default=[1, 5, 10, 50])
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--chunk", type=int, default=200, help="steps of a turn")
    options = parser.parse_args()
    common.CHUNK = options.chunk
    machine()
    print(
        f"{'':8}{'K':>4}{'K against the first':>22}{'memory / none':>22}{'both ways / none':>22}\n"
        f"{'':12}" + f"{'operations':>14}{'time':>8}" * 3
    )
    measure("sine", NET, LOSS, sine(), options.k, options.turns)
    measure("clients", *clients(), options.k, options.turns)


if __name__ == "__main__":
    main()
