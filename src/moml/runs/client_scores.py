"""Scores of each client by its models, and their summary over clients.

global      the server's model as it is
kept        the model that the client keeps, of methods whose clients keep one
fine-tuned  where it keeps none: the global model after SGD on the client's own training samples
adapted     the global model after a few of the client's test samples, scored on the others
local       the model of the same client in a run of method `local`, if one is given
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from moml.algorithms.parts.adapt import all_leaves, named
from moml.config.config import Config
from moml.errors import ConfigError
from moml.runs.job import SCORED, Plan, each_of
from moml.training.clients import ClientScores, common_scores, kept_each, kept_scores, tuned_scores
from moml.training.fit import Learner
from moml.training.personal import tuning_of
from moml.types import Record, State, Tasks

Values = Float[np.ndarray, " clients"]
Ids = Int[np.ndarray, " clients"]
Stores = Iterable[tuple[np.ndarray, State]]


class Scored(NamedTuple):
    """The scores of some clients by one model, and how it was made."""

    model: str
    each: Values
    how: Record = {}


class Group(NamedTuple):
    """Some clients, their numbers of test samples, and their scores by model, `global` first."""

    name: str  # took-part, not-drawn, or unseen
    clients: Ids
    images: Ids
    scored: list[Scored]


class FineTuning(NamedTuple):
    """How a client without a kept model gets one; None: as in training, all leaves."""

    epochs: int | None = None
    rate: float | None = None
    leaves: str | None = None  # a regular expression of their names


AS_TRAINED = FineTuning()


def groups_of(
    config: Config,
    plan: Plan,
    learner: Learner,
    by: ClientScores,
    stores: Stores,
    shots: Sequence[int],
    tuning: FineTuning,
    alone: Values | None,
) -> list[Group]:
    """The clients that take part, those that no round has drawn yet, and those that never do.

    `stores` has what the clients keep. Which clients were in a round is known of methods whose
    clients keep something; of others all count as such.
    """
    own, known = _kept(plan, learner, by, stores)
    common = np.asarray(common_scores(plan.method, by)(learner.meta, by.tested))
    few = [_adapted(config, plan, learner, by, by.tested, each) for each in shots]
    sizes, found = sizes_of(by.tested), []
    for name, which in {"took-part": known, "not-drawn": ~known}.items():
        ids = np.flatnonzero(which)
        if not len(ids):
            continue
        scored = [Scored("global", common[ids])]
        if own is not None and name == "took-part":
            scored.append(Scored("kept", own[ids]))
        else:
            scored.append(_tuned(plan, learner, by, tuning, ids))
        scored += [each._replace(each=each.each[ids]) for each in few]
        scored += [] if alone is None else [Scored("local", alone[ids])]
        found.append(Group(name, ids, sizes[ids], scored))
    return [*found, *_unseen(config, plan, learner, by, shots)]


def _kept(
    plan: Plan, learner: Learner, by: ClientScores, stores: Stores
) -> tuple[Values | None, Bool[np.ndarray, " n"]]:
    """The scores of what clients keep, None where that is no model; and who was in a round."""
    kept = kept_scores(plan.method, by)
    if kept is None:
        return None, np.ones(by.tested.n or 0, bool)
    return kept_each(jax.jit(kept), learner.meta, by.tested, stores)


def kept_alone(plan: Plan, learner: Learner, by: ClientScores, stores: Stores) -> Values:
    """The scores of the models that all clients of another run keep."""
    own, known = _kept(plan, learner, by, stores)
    if own is None:
        raise ConfigError(f"local: clients of the method {plan.method.name} keep no models")
    for client in np.flatnonzero(~known)[:1]:
        raise ConfigError(f"local: client {client} was in no round of it; train it for longer")
    return own


def _tuned(plan: Plan, learner: Learner, by: ClientScores, given: FineTuning, ids: Ids) -> Scored:
    used = tuning_of(plan.method, learner.hyper, given.epochs, None, given.rate)
    leaves = all_leaves if given.leaves is None else named(given.leaves)
    if not any(jax.tree.leaves(leaves(learner.params))):
        raise ConfigError(f"leaves must match the name of a parameter; got {given.leaves!r}")
    scores = tuned_scores(plan.method, by, used, leaves)
    each = scores(
        learner.meta, plan.built.tasks, by.tested, jax.random.key(SCORED), used.rate,
        jnp.asarray(ids, jnp.int32),
    )  # fmt: skip
    how: Record = {"epochs": used.epochs, "batch_size": used.batch_size}
    how |= {"rate": float(f"{float(used.rate):.7g}")}
    how |= {} if given.leaves is None else {"leaves": given.leaves}
    return Scored("fine-tuned", np.asarray(each), how)


def _adapted(
    config: Config, plan: Plan, learner: Learner, by: ClientScores, tasks: Tasks, shots: int
) -> Scored:
    built = plan.built._replace(score=by.score, queries=None)  # all other samples
    config, how = replace(config, shots=shots), {"shots": shots, "steps": config.test_steps}
    each = each_of(config, built, tasks, plan.method.adaptation, learner.meta, learner.hyper)
    return Scored("adapted", np.asarray(each), how)


def _unseen(
    config: Config, plan: Plan, learner: Learner, by: ClientScores, shots: Sequence[int]
) -> list[Group]:
    tasks = plan.built.strangers
    if tasks is None:
        return []
    common = np.asarray(common_scores(plan.method, by)(learner.meta, tasks))
    few = [_adapted(config, plan, learner, by, tasks, each) for each in shots]
    sizes = sizes_of(tasks)
    return [Group("unseen", np.arange(len(sizes)), sizes, [Scored("global", common), *few])]


def sizes_of(tasks: Tasks) -> Ids:
    """The number of samples of each client."""
    return np.asarray(tasks.sizes(jnp.arange(tasks.n or 0)))


def worst_tenth(each: np.ndarray, *, higher: bool = True) -> np.ndarray:
    """The mean of the worst tenth over the last axis, of at least one.

    >>> float(worst_tenth(np.arange(20.0))), float(worst_tenth(np.arange(20.0), higher=False))
    (0.5, 18.5)
    """
    count = max(1, each.shape[-1] // 10)
    ranked = np.sort(each if higher else -each, axis=-1)[..., :count]
    return np.asarray((ranked if higher else -ranked).mean(axis=-1))


def figures(before: np.ndarray, after: np.ndarray) -> dict[str, np.ndarray]:
    """Means after and before, the mean of the worst tenth, the spread, over the last axis: clients.

    >>> ten = np.arange(10.0)
    >>> {name: round(float(value), 2) for name, value in figures(0 * ten, ten).items()}
    {'accuracy': 4.5, 'accuracy_before': 0.0, 'worst_decile': 0.0, 'spread': 2.87}
    """
    found = {
        "accuracy": after.mean(axis=-1),
        "accuracy_before": before.mean(axis=-1),
        "worst_decile": worst_tenth(after),
        "spread": after.std(axis=-1),
    }
    return {name: np.asarray(values) for name, values in found.items()}


def metric_of(config: Config) -> tuple[str, bool]:
    """What clients are scored by, and whether more is better."""
    return ("test_accuracy", True) if config.problem.classifies else ("test_error", False)


def figures_of(group: Group, one: Scored, metric: str, *, higher: bool) -> dict[str, float]:
    """The figures of one model over a group, by their names in result rows.

    `worse_than_...` count the clients that the global model, or one trained alone, serves better.
    """
    sign = 1 if higher else -1
    with np.errstate(invalid="ignore"):  # a fine-tuned model may diverge
        found = {
            metric: one.each.mean(),
            f"{metric}_weighted": np.average(one.each, weights=group.images),
            "worst_decile": worst_tenth(one.each, higher=higher),
            "spread": one.each.std(),
        }
    for other in group.scored:
        if other.model in ("global", "local") and one.model not in ("local", other.model):
            worse = sign * one.each < sign * other.each
            found[f"worse_than_{other.model}"] = worse.sum()
    return {name: float(value) for name, value in found.items()}


def rows_of(row: Record, groups: Sequence[Group], metric: str, *, higher: bool) -> list[Record]:
    """Result rows like `row`: the figures of each model over each group, then of every client."""

    def like(name: str, value: float, **setting: object) -> Record:
        mean = value if np.isfinite(value) else None
        found = {"mean": mean, "values": [mean], "lost": int(mean is None)}
        return row | found | {"metric": name, "setting": row["setting"] | setting}

    every = [(group, one) for group in groups for one in group.scored]
    of_all = [
        like(name, value, group=g.name, clients=len(g.clients), model=one.model, **one.how)
        for g, one in every
        for name, value in figures_of(g, one, metric, higher=higher).items()
    ]
    of_each = [
        like(
            metric, float(one.each[j]), group=g.name, client=int(i), images=int(g.images[j]),
            model=one.model, **one.how,
        )
        for g, one in every
        for j, i in enumerate(g.clients)
    ]  # fmt: skip
    return of_all + of_each
