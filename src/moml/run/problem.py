"""From the words of a configuration to what is trained: loss, network, tasks, and unseen ones."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, assert_never

import jax

from moml.models import cross_entropy, mlp, mse
from moml.run.config import Config, Sine, Synthetic
from moml.tasks import sine, synthetic, unseen_sine
from moml.types import Key, Loss, Params, Tasks

TRAINING, UNSEEN = 7, 1000  # seeds of the tasks themselves: all runs of a configuration share them


class Built(NamedTuple):
    """A problem, ready to be trained on."""

    loss: Loss
    init: Callable[[Key], Params]
    tasks: Tasks
    unseen: Tasks
    metric: str  # what the scores on unseen tasks are


def build(config: Config) -> Built:
    """The problem of a configuration."""
    p, unseen = config.problem, jax.random.key(UNSEEN)
    match p:
        case Sine():
            net = mlp(1, *p.hidden, 1)
            drawn = lambda: unseen_sine(jax.random.key(TRAINING), p.n, noise=p.noise)
            tasks = sine(noise=p.noise) if p.n == 25 else drawn()
            test = unseen_sine(unseen, config.test_tasks, noise=p.noise)
            return Built(mse(net.predict), net.init, tasks, test, "test_error")
        case Synthetic():
            net = mlp(p.features, *p.hidden, p.classes)
            like = partial(
                synthetic, samples=p.samples, a=p.a, b=p.b, features=p.features, classes=p.classes
            )
            tasks = like(jax.random.key(TRAINING), p.n, unequal=p.unequal)
            test = like(unseen, config.test_tasks)
            return Built(cross_entropy(net.predict), net.init, tasks, test, "test_loss")
        case _:
            assert_never(p)
