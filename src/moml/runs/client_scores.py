"""Scores of each client before and after it adapts, and their summary over clients."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from moml.config.config import Config
from moml.runs.job import Plan, each_of
from moml.training.evaluate import unadapted
from moml.training.fit import Learner
from moml.types import Record, Tasks


class Group(NamedTuple):
    """Some clients' test images, and accuracies on them in percent."""

    name: str  # took-part, or unseen
    images: Int[np.ndarray, " clients"]
    before: Float[np.ndarray, " clients"]
    after: Float[np.ndarray, " clients"]


def groups_of(config: Config, plan: Plan, learner: Learner) -> list[Group]:
    """The clients that take part, and those that never did where there are any."""
    named = {"took-part": plan.built.unseen, "unseen": plan.built.strangers}
    return [
        _group(name, config, plan, learner, tasks)
        for name, tasks in named.items()
        if tasks is not None
    ]


def _group(name: str, config: Config, plan: Plan, learner: Learner, tasks: Tasks) -> Group:
    adapt = plan.method.adaptation(config.test_steps)
    each = [each_of(config, plan.built, tasks, one) for one in (unadapted(adapt), adapt)]
    before, after = (np.asarray(scores(learner.meta, learner.hyper)) for scores in each)
    return Group(name, images_of(tasks), before, after)


def images_of(tasks: Tasks) -> Int[np.ndarray, " clients"]:
    """The number of images of each client; zeros where it is not known."""
    ids = jnp.arange(tasks.n or 0)
    return np.asarray(tasks.sizes(ids) if tasks.sized else jnp.zeros_like(ids))


def figures(before: np.ndarray, after: np.ndarray) -> dict[str, np.ndarray]:
    """Means after and before, the mean of the worst tenth, the spread, over the last axis: clients.

    >>> ten = np.arange(10.0)
    >>> {name: round(float(value), 2) for name, value in figures(0 * ten, ten).items()}
    {'accuracy': 4.5, 'accuracy_before': 0.0, 'worst_decile': 0.0, 'spread': 2.87}
    """
    worst = max(1, after.shape[-1] // 10)
    found = {
        "accuracy": after.mean(axis=-1),
        "accuracy_before": before.mean(axis=-1),
        "worst_decile": np.sort(after, axis=-1)[..., :worst].mean(axis=-1),
        "spread": after.std(axis=-1),
    }
    return {name: np.asarray(values) for name, values in found.items()}


def figures_of(group: Group) -> dict[str, float]:
    """The figures of a group, by their names in result rows."""
    found = {name: float(value) for name, value in figures(group.before, group.after).items()}
    return {"test_accuracy": found.pop("accuracy")} | found


def rows_of(row: Record, groups: list[Group]) -> list[Record]:
    """Result rows like `row`: the figures of each group, then both accuracies of every client."""

    def like(metric: str, value: float, **setting: object) -> Record:
        setting = row["setting"] | setting
        return row | {"metric": metric, "mean": value, "values": [value], "setting": setting}

    of_all = [
        like(metric, value, group=group.name, clients=len(group.after))
        for group in groups
        for metric, value in figures_of(group).items()
    ]
    of_each = [
        like(metric, float(values[i]), group=group.name, client=i, images=int(group.images[i]))
        for group in groups
        for i in range(len(group.after))
        for metric, values in {
            "test_accuracy": group.after, "accuracy_before": group.before
        }.items()
    ]  # fmt: skip
    return of_all + of_each
