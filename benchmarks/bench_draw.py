"""Random numbers drawn inside every step over those of a whole chunk drawn ahead.

Two forms of the first: `choice`, what one writes without thinking (split the key, permute all n
tasks, keep B), and the library's own draw moved into the step.
"""

from typing import Any

import jax
import jax.numpy as jnp

from common import HYPER, interleave, machine, ratio, sine_method, table, train_by, training
from moml.tasks.sampler import draw, fetch
from moml.tasks.sine import sine
from moml.types import Algorithm, Task, TaskBatch, Tasks


def choice(key: Any, needs: Any, tasks: Tasks) -> TaskBatch:
    """B of n tasks and their samples, in the obvious way."""
    ids_key, support_key, query_key = jax.random.split(key, 3)
    ids = jax.random.choice(ids_key, tasks.n, (needs.tasks,), replace=False).astype(jnp.int32)
    support = tasks.draw(support_key, ids, needs.support)
    return TaskBatch(ids, Task(support, tasks.draw(query_key, ids, needs.query)))


def inside(algorithm: Algorithm, tasks: Tasks, drawn: Any) -> Any:
    """The training loop whose every step splits its key and draws for itself."""

    def run(state: Any, key: Any, start: Any, hyper: Any, length: int) -> tuple[Any, Any]:
        def step(carry: Any, _: None) -> tuple[Any, Any]:
            state, key = carry
            key, sub = jax.random.split(key)
            visit = fetch(drawn(sub, algorithm.needs, tasks), tasks)
            state, info = algorithm.step(state, visit, hyper)
            return (state, key), info

        key = jax.random.fold_in(key, start)
        (state, _), infos = jax.lax.scan(step, (state, key), length=length)
        return state, infos

    return jax.jit(run, static_argnums=4, donate_argnums=0)


def main() -> None:
    machine()
    tasks = sine()
    algorithm = sine_method("moml-v1", tasks)
    timings = interleave(
        {
            "ahead": training(algorithm, tasks),
            "inside": train_by(inside(algorithm, tasks, draw), algorithm, HYPER),
            "choice inside": train_by(inside(algorithm, tasks, choice), algorithm, HYPER),
        }
    )
    table(timings)
    ratio("draw_inside_over_ahead", timings["inside"], timings["ahead"])
    ratio("choice_inside_over_ahead", timings["choice inside"], timings["ahead"])


if __name__ == "__main__":
    main()
