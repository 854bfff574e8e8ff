"""The cells that beta = auto is measured on: families of `moml reproduce shots`, K, shots, steps.

25 waves, 50 bumps and 50 ramps, with and without label noise, 400 of each, and linear regression;
K = 1, 2, 5. With 25 and 50 tasks auto is given 200 others to choose on; of 400 it holds out its own
40, and fixed values of beta are trained on all 400. All at one eta.
"""

import os
from functools import lru_cache
from typing import NamedTuple

os.environ.setdefault("NPROC", "1")

import jax
import numpy as np

from moml.algorithms.parts.schedule import decay_at
from moml.algorithms.single.matching import match_beta
from moml.paper.shots.families import family, training_tasks
from moml.paper.shots.study import Place
from moml.tasks.subset import subset
from moml.training.choice import choose
from moml.types import Tasks

STEPS = (1, 10)
VALIDATION = 4242  # seed of the tasks that auto is given
GIVEN, BATCH, ETA = 200, 3, 0.005  # tasks to choose on; tasks of a step
GRID = [float(f"{2 ** (-i / 2):.3g}") for i in range(12)]  # from 1 down to 0.0221, all fixed beta


class Unit(NamedTuple):
    """A place and a seed: what one process trains in one go."""

    place: Place
    seed: int


def units(iterations: int, seeds: int) -> list[Unit]:
    """All of them; every place has its first seed before any has its second."""
    curves = (("sine", 25), ("bump", 50), ("ramp", 50))
    quiet = [Place(name, n, k, 0.0, iterations) for name, n in curves for k in (1, 2, 5)]
    many = [place._replace(n=400) for place in quiet]
    noisy = [place._replace(noise=1.0) for place in quiet]
    linear = [Place("linear", 50, k, 0.0, iterations) for k in (1, 2)]
    places = quiet + many + noisy + linear
    return [Unit(place, seed) for seed in range(seeds) for place in places]


def rule(place: Place, shots: int, steps: int) -> float:
    """The beta of the matching rule."""
    visits = place.iterations * BATCH / place.n
    return match_beta(place.k, shots, steps=steps, visits=visits, both_ways=True)


kept_schedule = lru_cache(decay_at)  # an equal one would be compiled again
kept_tasks = lru_cache(training_tasks)


@lru_cache
def validation(place: Place) -> Tasks | None:
    """The tasks that auto is given; None where it holds out its own."""
    if place.n >= 200:
        return None
    return family(place.family, jax.random.key(VALIDATION), GIVEN, place.noise)


def held_out(place: Place) -> tuple[Tasks, Tasks]:
    """The tasks to train on and to choose by, as auto has them."""
    tasks, given = kept_tasks(place.family, place.n, place.noise), validation(place)
    if given is not None:
        return tasks, given
    order = np.random.default_rng(choose.SEED).permutation(place.n)
    count = min(choose.MOST, place.n // choose.SHARE)
    left, held = (subset(tasks, np.sort(part)) for part in (order[count:], order[:count]))
    return left, held
