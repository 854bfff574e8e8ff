"""When memory pays: the error over beta x shots, and the rule that picks beta.

Training does not know how many samples a user will have; only the test does. So one sweep over
eta x beta x seeds for each K and label noise gives every cell of the picture.
"""

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from moml.algorithms.parts.adapt import gradient_steps
from moml.algorithms.parts.schedule import decay_at
from moml.algorithms.parts.task_map import in_batches
from moml.algorithms.single.matching import match_beta
from moml.paper.cells import train
from moml.paper.shots.families import family, learner, training_tasks
from moml.types import Batch, Hyper, Meta

SHOTS = (1, 2, 5, 10, 20, 50)
QUERIES = 100
SEED = 31337  # of the test tasks; not those of the sine table
Score = Callable[[Meta], Float[Array, "members shots steps"]]


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
    families: tuple[str, ...] = ("sine",)

    def places(self) -> list[Place]:
        """All surfaces: the paper's waves, the other families, more and more tasks, less time."""
        t = self.iterations
        waves = [
            Place(name, 25 if name == "sine" else 50, k, noise, t)
            for name in self.families for noise in self.noises for k in self.ks
        ]  # fmt: skip
        others = [
            Place(name, 50, k, noise, t)
            for name in self.others for noise in self.noises for k in self.ks[:2]
        ]  # fmt: skip
        many = [Place("sine", n, 1, 0.0, t) for n in self.more_tasks]
        short = [place._replace(iterations=t // 4) for place in many[-2:-1]]
        return waves + others + many + short


FULL = Plan(
    noises=(0.0, 1.0), etas=(0.0005, 0.001, 0.002, 0.005, 0.01), steps=(1, 2, 3, 5, 10), seeds=3,
    betas=(1.0, 0.7, 0.5, 0.33, 0.2, 0.14, 0.1, 0.07, 0.05, 0.035, 0.025), iterations=40_000,
    others=("bump", "ramp"), more_tasks=(100, 400, 1600),
)  # fmt: skip


class Surface(NamedTuple):
    """One sweep's errors."""

    place: Place
    betas: Float[np.ndarray, " betas"]  # descending
    etas: Float[np.ndarray, " etas"]
    values: Float[np.ndarray, "betas etas shots steps seeds"]  # NaN where a seed was lost
    samples: int
    seconds: float
    both_ways: bool = False

    @property
    def errors(self) -> Float[np.ndarray, "betas etas shots steps"]:
        """The mean over seeds; inf where one was lost."""
        return np.nan_to_num(self.values.mean(axis=-1), nan=np.inf)

    @property
    def best(self) -> Float[np.ndarray, "betas shots steps"]:
        """Each beta at its best eta."""
        return self.errors.min(axis=1)


def tests(place: Place, steps: tuple[int, ...]) -> tuple[Score, float]:
    """The errors of meta-models, and that of always answering zero.

    Support labels are as noisy as those of training; the labels that are scored are clean.
    """
    trained = learner(place.family)
    clean = family(place.family, jax.random.key(SEED), trained.test_tasks)
    ids = jnp.arange(trained.test_tasks, dtype=jnp.int32)
    samples = clean.draw(jax.random.key(SEED + 1), ids, max(SHOTS) + QUERIES)
    extra = jax.random.normal(jax.random.key(SEED + 2), samples.y.shape)
    noisy = samples.y + place.noise * extra
    query = Batch(samples.x[:, max(SHOTS) :], samples.y[:, max(SHOTS) :])
    once, tested_with = gradient_steps(trained.loss), Hyper(eta=1.0, alpha=trained.alpha)

    def along(meta: Meta, few: Batch, many: Batch) -> Float[Array, " steps"]:
        errors, once_more = [], lambda i, meta: once.merge(meta, once.apply(meta, few, tested_with))
        for done, step in itertools.pairwise((0, *steps)):
            meta = jax.lax.fori_loop(done, step, once_more, meta)
            errors.append(trained.loss(meta, many))
        return jnp.stack(errors)

    def mean(meta: Meta, shots: int) -> Float[Array, " steps"]:
        support = Batch(samples.x[:, :shots], noisy[:, :shots])
        return jnp.mean(jax.vmap(along, (None, 0, 0))(meta, support, query), axis=0)

    all_shots = lambda meta: jnp.stack([mean(meta, shots) for shots in SHOTS])
    score = jax.jit(lambda metas: in_batches(all_shots, metas, 16))
    return score, float(jnp.mean(query.y**2))


def surface(plan: Plan, place: Place, *, progress: bool = False) -> Surface:
    """Train the grid of one place, and test it at all shots and steps."""
    began = time.monotonic()
    bare = lambda shots: match_beta(place.k, shots, both_ways=plan.both_ways, floor=0.0)
    rule = [round(bare(shots), 4) for shots in SHOTS]
    shared = [min(1.0, place.k / shots) for shots in SHOTS] if place.family == "linear" else []
    betas = sorted({*plan.betas, *rule, *shared}, reverse=True)
    tasks, trained = training_tasks(*place[:2], place.noise), learner(place.family)
    done = train(
        "moml-v1", trained.loss, trained.init, tasks, seeds=plan.seeds,
        grid={"beta": betas, "eta": plan.etas, "alpha": [trained.alpha]},
        iterations=place.iterations, schedule=decay_at(place.iterations * 3 // 4),
        progress=progress, k=place.k, both_ways=plan.both_ways, optimizer="adam",
    )  # fmt: skip
    score, _ = tests(place, plan.steps)
    errors = np.asarray(score(done.run.meta), float)
    errors[done.run.lost] = np.nan
    errors = errors.reshape(len(betas), len(plan.etas), plan.seeds, len(SHOTS), len(plan.steps))
    values, seconds = np.moveaxis(errors, 2, -1), time.monotonic() - began
    axes, samples = (np.array(betas), np.array(plan.etas)), done.run.samples
    return Surface(place, *axes, values, samples, seconds, plan.both_ways)
