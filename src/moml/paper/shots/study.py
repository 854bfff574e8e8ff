"""When memory pays: the error over beta x shots, and the rule that picks beta.

Training does not know how many samples a user will have; only the test does. So one sweep over
eta x beta x seeds for each K and label noise gives every cell of the picture.
"""

import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from moml.algorithms.parts.adapt import gradient_steps
from moml.algorithms.parts.schedule import decay_at
from moml.algorithms.single.matching import match_beta
from moml.paper.shots.families import family, training
from moml.paper.sine.score import LOSS, NET, TESTED_WITH
from moml.training.sweep import sweep
from moml.types import Batch

SHOTS = (1, 2, 5, 10, 20, 50)
TEST_TASKS, QUERIES = 500, 100
SEED = 31337  # of the test tasks; not those of the sine table


class Place(NamedTuple):
    """What one surface is trained on."""

    family: str
    n: int
    k: int
    noise: float
    iterations: int


@dataclass(frozen=True)
class Plan:
    """What is trained and tested. The default is the quick form."""

    ks: tuple[int, ...] = (1, 2, 5)
    noises: tuple[float, ...] = (0.0,)
    betas: tuple[float, ...] = (1.0, 0.5, 0.2, 0.1)
    etas: tuple[float, ...] = (0.002, 0.005)
    steps: tuple[int, ...] = (1,)  # adaptation steps at test
    seeds: int = 2
    iterations: int = 10_000
    others: tuple[str, ...] = ()  # families that the rule was not fitted to
    more_tasks: tuple[int, ...] = ()  # besides the 25: K = 1 and no noise, to see the floor
    both_ways: bool = False

    def places(self) -> list[Place]:
        """All surfaces: the paper's waves, the other families, more and more tasks, less time."""
        t = self.iterations
        waves = [Place("sine", 25, k, noise, t) for noise in self.noises for k in self.ks]
        others = [
            Place(name, 50, k, noise, t)
            for name in self.others for noise in self.noises for k in self.ks[:2]
        ]  # fmt: skip
        many = [Place("sine", n, 1, 0.0, t) for n in self.more_tasks]
        short = [place._replace(iterations=t // 4) for place in many[-2:-1]]
        return waves + others + many + short


FULL = Plan(
    noises=(0.0, 1.0),
    betas=(1.0, 0.7, 0.5, 0.33, 0.2, 0.14, 0.1, 0.07, 0.05, 0.035, 0.025),
    etas=(0.0005, 0.001, 0.002, 0.005, 0.01),
    steps=(1, 2, 3, 5, 10),
    seeds=3,
    iterations=40_000,
    others=("bump", "ramp"),
    more_tasks=(100, 400, 1600),
)


class Surface(NamedTuple):
    """One sweep's errors, the mean over seeds; where a seed was lost, inf."""

    place: Place
    betas: np.ndarray  # [beta], descending
    etas: np.ndarray  # [eta]
    errors: np.ndarray  # [beta, eta, shots, steps]
    spread: np.ndarray  # the same, standard deviation over seeds
    lost: np.ndarray  # [beta, eta], seeds that diverged
    samples: int
    seconds: float
    both_ways: bool = False

    @property
    def best(self) -> np.ndarray:
        """[beta, shots, steps]: each beta at its best eta."""
        return self.errors.min(axis=1)


def tests(place: Place, steps: tuple[int, ...]) -> tuple[Any, float]:
    """Errors [shots, steps] of meta-models, and that of always answering zero.

    Support labels are as noisy as those of training; the labels that are scored are clean.
    """
    clean = family(place.family, jax.random.key(SEED), TEST_TASKS)
    ids = jnp.arange(TEST_TASKS, dtype=jnp.int32)
    samples = clean.draw(jax.random.key(SEED + 1), ids, max(SHOTS) + QUERIES)
    extra = jax.random.normal(jax.random.key(SEED + 2), samples.y.shape)
    noisy = samples.y + place.noise * extra
    query = Batch(samples.x[:, max(SHOTS) :], samples.y[:, max(SHOTS) :])
    once = gradient_steps(LOSS)

    def along(meta: Any, few: Batch, many: Batch) -> Any:
        """One task's errors after the numbers of steps that are asked for."""
        errors = []
        for step in range(1, max(steps) + 1):
            meta = once.merge(meta, once.apply(meta, few, TESTED_WITH))
            if step in steps:
                errors.append(LOSS(meta, many))
        return jnp.stack(errors)

    def mean(meta: Any, shots: int) -> Any:
        support = Batch(samples.x[:, :shots], noisy[:, :shots])
        return jnp.mean(jax.vmap(along, (None, 0, 0))(meta, support, query), axis=0)

    all_shots = lambda meta: jnp.stack([mean(meta, shots) for shots in SHOTS])
    score = jax.jit(lambda metas: jax.lax.map(all_shots, metas, batch_size=16))
    return score, float(jnp.mean(query.y**2))


def surface(plan: Plan, place: Place, *, progress: bool = False) -> Surface:
    """Train the grid of one place, and test it at all shots and steps."""
    began = time.monotonic()
    bare = lambda shots: match_beta(place.k, shots, both_ways=plan.both_ways, floor=0.0)
    rule = [round(bare(shots), 4) for shots in SHOTS]
    betas = sorted({*plan.betas, *rule}, reverse=True)
    done = sweep(
        "moml-v1",
        LOSS,
        NET.init,
        training(place.family, place.n, place.noise),
        seeds=plan.seeds,
        grid={"beta": betas, "eta": list(plan.etas)},
        iterations=place.iterations,
        schedule=decay_at(place.iterations * 3 // 4),
        progress=progress,
        k=place.k,
        both_ways=plan.both_ways,
        optimizer="adam",
    )
    score, _ = tests(place, plan.steps)
    shape = (len(betas), len(plan.etas), plan.seeds)
    errors = np.asarray(score(done.meta), float).reshape(*shape, len(SHOTS), len(plan.steps))
    lost = done.lost.reshape(shape).sum(axis=2)
    mean = np.where(lost[..., None, None] > 0, np.inf, errors.mean(axis=2))
    return Surface(
        place,
        np.array(betas),
        np.array(plan.etas),
        np.nan_to_num(mean, nan=np.inf),
        errors.std(axis=2),
        lost,
        done.samples,
        time.monotonic() - began,
        plan.both_ways,
    )
