"""Equal samples, work or steps for all K; each K and beta has its best eta, by tuning tasks."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from moml.algorithms.parts.adapt import gradient_steps
from moml.algorithms.parts.schedule import decay_at
from moml.algorithms.parts.task_map import in_batches
from moml.algorithms.single.matching import match_beta
from moml.paper.budget.families import Family, shots_of
from moml.paper.cells import train
from moml.training.compose import compose, init_key, work
from moml.training.evaluate import most_samples, scores_on
from moml.training.fit import fit
from moml.training.rows import means_to_choose_by, result_row
from moml.types import Hyper, Meta, Record, Tasks

ONE_ETA = "one-eta"  # the protocol of rows that show the regret of auto
SHOTS = (1, 2, 5, 10, 20, 50)
Equal = Literal["samples", "work", "steps"]


@dataclass(frozen=True)
class Plan:
    """What is trained and tested. The default is the quick form."""

    families: tuple[str, ...] = ("sine-25",)
    ks: tuple[int, ...] = (1, 5)
    betas: tuple[float, ...] = (1.0, 0.5, 0.25, 0.1)
    shots: tuple[int, ...] = SHOTS
    steps: tuple[int, ...] = (1, 10)
    seeds: int = 2
    most_etas: int = 2  # the middle ones
    share: float = 0.5  # of a family's budget
    equal: Equal = "samples"  # what all K have the same of

    def etas(self, family: Family) -> tuple[float, ...]:
        """The step sizes that are tried."""
        cut = max(0, len(family.etas) - self.most_etas)
        return family.etas[cut - cut // 2 : len(family.etas) - cut // 2]


FULL = Plan(
    families=("sine-25", "sine-400", "logistic", "cifar10-clients", "omniglot"),
    ks=(1, 2, 5, 10, 20), betas=(1.0, 0.7, 0.5, 0.33, 0.2, 0.14, 0.1, 0.05), seeds=3, most_etas=4,
    share=1.0,
)  # fmt: skip


def iterations_of(family: Family, plan: Plan, k: int) -> int:
    """T of this K; at K = 1 the budget. K T is the same for all, or the work of T steps, or T."""
    cost = 1.0 if plan.equal == "steps" else k
    if plan.equal == "work":
        cost = relative_work(family, k)
    return max(1, int(int(plan.share * family.budget) // cost))


def relative_work(family: Family, k: int) -> float:
    """Floating-point operations of a step with k samples over those of a step with one."""

    def of(size: int) -> float:
        chosen = compose("moml", family.loss, family.train, {"k": size, "beta": 1.0}, 1)
        return work(chosen, family.init(init_key(0)), family.train)

    return of(k) / of(1)


def options_of(family: Family, plan: Plan, k: int) -> Record:
    """What `fit` and `sweep` are given besides the numbers of a grid."""
    count = iterations_of(family, plan, k)
    return {"iterations": count, "schedule": decay_at(count * 3 // 4), "k": k}


def scores(family: Family, tasks: Tasks, metas: Meta, shots: int, steps: int) -> np.ndarray:
    """The mean score of each model [models], after `steps` steps on `shots` samples of a task."""
    most = most_samples(tasks, family.queries)
    each = scores_on(
        family.score, gradient_steps(family.loss, steps), shots=shots, queries=family.queries,
        most=most, chunk=family.at_once,
    )  # fmt: skip
    hyper = Hyper(eta=1.0, alpha=family.alpha)

    def one(meta: Meta, tasks: Tasks) -> Float[Array, ""]:
        return jnp.mean(each(meta, hyper, tasks, jax.random.key(shots)))

    program = jax.jit(lambda metas, tasks: in_batches(lambda meta: one(meta, tasks), metas, 4))
    return np.asarray(program(metas, tasks), float)


def measured(
    family: Family, plan: Plan, k: int, *, protocol: str = "strict", progress: bool = False
) -> list[Record]:
    """Rows of one K: each beta at its best eta by the tuning tasks, for all shots and steps."""
    etas, began = plan.etas(family), time.monotonic()
    done = train(
        "moml", family.loss, family.init, family.train, seeds=plan.seeds, shots=max(plan.shots),
        grid={"beta": plan.betas, "eta": etas, "alpha": [family.alpha]}, progress=progress,
        **options_of(family, plan, k),
    ).run  # fmt: skip
    shape, sign = (len(plan.betas), len(etas), plan.seeds), 1 if family.higher else -1
    lost, rows = done.lost.reshape(shape), []
    row = partial(
        result_row, table="budget", dataset=family.name, metric=family.metric, protocol=protocol,
        samples=done.samples, iterations=iterations_of(family, plan, k),
    )  # fmt: skip
    for shots in shots_of(family, plan.shots):
        for steps in plan.steps:
            tuning, test = (
                scores(family, tasks, done.meta, shots, steps).reshape(shape)
                for tasks in (family.tuning, family.test)
            )
            gone = lost | ~np.isfinite(tuning)
            means = means_to_choose_by(np.where(gone, 0.0, sign * tuning), gone)
            best = means.argmax(axis=1)
            for i, (beta, at) in enumerate(zip(plan.betas, best.tolist(), strict=True)):
                setting = {"k": k, "beta": beta, "eta": etas[at], "shots": shots, "steps": steps}
                method, score = "maml" if beta == 1 else "moml", float(means[i, at])
                made = row(setting=setting, method=method, values=test[i, at], lost=gone[i, at])
                rows.append(made | {"tuning": sign * score if np.isfinite(score) else None})
    seconds = round(time.monotonic() - began, 2)
    return [row | {"seconds": seconds} for row in rows]


def regret(family: Family, plan: Plan, k: int, *, progress: bool = False) -> list[Record]:
    """Rows of beta = auto, and of fixed beta, at one eta."""
    plan = replace(plan, most_etas=1)
    fixed = measured(family, plan, k, protocol=ONE_ETA, progress=progress)
    return fixed + list(chosen(family, plan, k, plan.etas(family)[0], progress=progress))


def chosen(
    family: Family, plan: Plan, k: int, eta: float, *, progress: bool = False
) -> Iterator[Record]:
    """Rows of beta = auto at one eta, a training for each seed, shots and steps."""
    options = options_of(family, plan, k) | {"eta": eta, "alpha": family.alpha, "beta": "auto"}
    for shots in shots_of(family, plan.shots):
        for steps in plan.steps:
            users = {"shots": shots, "test_steps": steps}
            made = [
                fit("moml", family.loss, family.init(init_key(seed)), family.train, seed=seed,
                    validation=family.tuning, progress=progress, **options | users)
                for seed in range(plan.seeds)
            ]  # fmt: skip
            metas = jax.tree.map(lambda *leaves: jnp.stack(leaves), *[one.meta for one in made])
            values = scores(family, family.test, metas, shots, steps)
            betas = [float(one.hyper.beta) for one in made]
            visits = options["iterations"] * 3 / (family.train.n or 1)
            rule = match_beta(k, shots, steps=steps, visits=visits, both_ways=True)
            setting = {"k": k, "beta": "auto", "eta": eta, "shots": shots, "steps": steps}
            setting |= {"chosen": [round(beta, 4) for beta in betas], "rule": round(rule, 4)}
            yield result_row(
                table="budget", dataset=family.name, metric=family.metric, protocol=ONE_ETA,
                setting=setting, method="moml", values=values, samples=made[0].samples,
                iterations=options["iterations"],
            )  # fmt: skip
