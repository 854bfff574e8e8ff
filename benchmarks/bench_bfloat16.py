"""Memories as bfloat16 against float32: the error on sine over 5 seeds, bytes, time of a step.

The error is that of `moml train sine` (unseen tasks after adaptation), of three methods with their
own beta and of one with a small beta: there a memory is the mean of many visits, and so of many
roundings, while rounding to the nearest would keep it from moving at all.
"""

from dataclasses import replace

import jax
import numpy as np

from common import CHUNK, HYPER, LOSS, NET, interleave, machine, many_sines, ratio, table, training
from moml.algorithms.parts.memory import parted
from moml.config.config import Config
from moml.config.starts import STARTS
from moml.methods import method
from moml.runs.job import many, plan_of
from moml.training.loop import loop

SEEDS = 5
TASKS = 100_000
TYPES = ("float32", "bfloat16")
SETTINGS = (("moml", None), ("moml-v1", None), ("moml-v2", None), ("moml", 0.02))


def errors(config: Config) -> tuple[float, np.ndarray]:
    """The beta in use, and the last scores of all seeds."""
    plan = plan_of(config)
    job = many(config, [{"seed": seed} for seed in range(SEEDS)], plan)
    carry, _ = loop(
        job.name, job.execution.advance, job.execution.first(), steps=plan.steps, length=plan.length
    )
    return plan.method.hyper.beta, job.score(carry)


def compare() -> None:
    for name, beta in SETTINGS:
        words = []
        for dtype in TYPES:
            config = replace(STARTS["sine"], method=name, beta=beta, memory_dtype=dtype)
            used, each = errors(config)
            words.append(f"{dtype} {each.mean():.4f} ± {each.std():.4f}")
        print(f"{name:8} beta {used:g}: {', '.join(words)} ({SEEDS} seeds)", flush=True)


def bytes_of(dtype: str) -> int:
    made = method("moml-v1", LOSS, n=TASKS, memory_dtype=dtype)
    like = jax.eval_shape(made.memory.init, made.adaptation(1).start(NET.init(jax.random.key(0))))
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(parted(like)[1]))


def main() -> None:
    machine()
    compare()
    sizes = {dtype: bytes_of(dtype) / TASKS for dtype in TYPES}
    print(f"bytes of a row: {', '.join(f'{dtype} {size:.0f}' for dtype, size in sizes.items())}")
    sides = {}
    for dtype in TYPES:
        tasks = many_sines(TASKS)
        made = method("moml-v1", LOSS, n=TASKS, tasks_per_step=3, k=1, memory_dtype=dtype)
        sides[dtype] = training(made.algorithm, tasks, HYPER)
    timings = interleave(sides, CHUNK)
    table(timings)
    ratio("bfloat16_over_float32", timings["bfloat16"], timings["float32"])


if __name__ == "__main__":
    main()
