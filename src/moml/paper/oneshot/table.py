"""The paper's second table: one-shot classification of Omniglot and CIFAR-100 by a small MLP."""

import json
import operator
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Float

from moml.algorithms.method import Method
from moml.algorithms.parts.adapt import gradient_steps, named
from moml.algorithms.parts.schedule import Schedule, cosine, decay_at
from moml.methods import method
from moml.paper import cells as common
from moml.paper.cells import CONTROLS, Training, choose, size_of, train
from moml.paper.oneshot.tasks import SETTINGS, SPLIT, Problem, Setting, accuracies, nearest_image
from moml.paper.protocols import PROTOCOLS, Steps, with_repeats
from moml.training.sweep import Sweep
from moml.types import Adapt, Record

TEST_ALPHA = 0.05
OFFERED = ("released", "paper", "strict")
OURS = ("pixels", "joint-tuned", "protonet-tuned", "moml", "moml-memory")
CHOSEN = Path(__file__).with_name("settings.json")


class Cell(NamedTuple):
    """One figure of the table."""

    protocol: str
    dataset: str
    method: str
    images: str
    split: int = SPLIT

    @property
    def setting(self) -> Setting:
        """The half of the table."""
        return SETTINGS[self.dataset]


class Tuned(NamedTuple):
    """How a row beyond the paper's settings is trained: chosen on validation classes."""

    method: str
    eta: float
    iterations: int
    tasks_per_step: int
    decay: float  # of the weights, in the outer rule
    alpha: float = 0.01  # the start of learned step sizes; for joint training the one at test
    beta: float | None = None  # None: the method's default, for moml the rule's
    inner_steps: int = 1
    both_ways: bool = True
    leaves: str = ""  # the parameters that adapt, as a regular expression; all by default


class Plan(NamedTuple):
    """A cell, ready to be trained and tested."""

    method: Method
    grid: Mapping[str, Sequence[float]]
    iterations: int
    schedule: Schedule
    test: Adapt


@cache
def tuned() -> dict[str, dict[str, Tuned]]:
    """The rows that the search chose: data set -> row -> how it is trained."""
    rows = json.loads(CHOSEN.read_text("utf-8"))["rows"]
    return {data: {name: Tuned(**how) for name, how in of.items()} for data, of in rows.items()}


def names_of(protocol: str, dataset: str) -> tuple[str, ...]:
    """The rows of a protocol's table."""
    return (*CONTROLS, *SETTINGS[dataset].named, *(OURS if protocol == "strict" else ()))


def cells(
    protocol: str, dataset: str, methods: list[str] | None, images: str | None = None,
    split: int = SPLIT,
) -> list[Cell]:  # fmt: skip
    """The cells of one data set's table, in its order."""
    choose("protocol", [protocol], OFFERED)
    choose("dataset", [dataset], [*SETTINGS])
    seen = SETTINGS[dataset].images if images is None else images
    chosen = choose(f"methods of {protocol}", methods, names_of(protocol, dataset))
    return [Cell(protocol, dataset, name, seen, split) for name in chosen]


def plan_of(cell: Cell, problem: Problem, budget: int | None = None) -> Plan:
    """How a cell is trained and tested, under its protocol's switches."""
    if cell.method in OURS:
        return tuned_plan(tuned()[cell.dataset][cell.method], problem, budget)
    p, name, setting = PROTOCOLS[cell.protocol], cell.method, cell.setting
    steps = setting.named.get(name, Steps(setting.named["maml"].eta))
    proto = {"features": problem.net.features, "optimizer": "sgd"} if name == "protonet" else {}
    shape = {"n": problem.train.n, "tasks_per_step": 1, "k": 1}
    chosen = common.compose(name, problem.loss, p, **shape, **proto)
    budget = setting.iterations if budget is None else budget
    iterations = common.iterations_of(name, budget, tasks=1, n=setting.train)
    grid = common.step_sizes(name, chosen, steps, p)
    later = decay_at(int((0.5 if proto else 0.75) * iterations))
    adapt = gradient_steps(problem.loss, setting.test_steps)
    test = chosen.adaptation(1) if proto else with_alpha(adapt, TEST_ALPHA)
    return Plan(chosen, grid, iterations, later, test)


def with_alpha(adapt: Adapt, alpha: float) -> Adapt:
    """The same adaptation with its own alpha, whatever a run was trained with."""
    own = lambda hyper: hyper._replace(alpha=jnp.full_like(jnp.asarray(hyper.alpha), alpha))
    return adapt._replace(apply=lambda meta, s, hyper: adapt.apply(meta, s, own(hyper)))


def tuned_plan(how: Tuned, problem: Problem, budget: int | None = None) -> Plan:
    """Adam with a cosine schedule; classes start equal, step sizes learned by layer and step."""
    weights = lambda meta: jax.tree.map(operator.not_, named("log_alpha")(meta))  # what decays
    decay = optax.add_decayed_weights(how.decay, mask=weights)
    adam = lambda eta: optax.chain(optax.scale_by_adam(), decay, optax.scale_by_learning_rate(eta))
    shape: dict[str, Any] = {
        "n": problem.train.n, "k": 1, "optimizer": adam,
        "tasks_per_step": min(how.tasks_per_step, problem.train.n or 1),
    }  # fmt: skip
    iterations = how.iterations if budget is None else budget
    tied, schedule = named("head"), cosine(max(1, iterations))
    grid = {"eta": [how.eta], "alpha": [how.alpha]}
    if how.beta is not None:
        grid["beta"] = [how.beta]
    if how.method == "joint":
        chosen = method("fo-maml", problem.loss, **shape)
        test = with_alpha(gradient_steps(problem.loss, how.inner_steps, tied=tied), how.alpha)
        return Plan(chosen, grid | {"alpha": [0.0]}, iterations, schedule, test)
    if how.method == "protonet":
        shape["features"] = problem.net.features
        del grid["alpha"]  # the adaptation takes no gradient step
    else:
        shape |= {"inner_steps": how.inner_steps, "step_sizes": "layer", "tied": tied,
                  "leaves": named(how.leaves), "shots": 1, "test_steps": how.inner_steps,
                  "both_ways": how.both_ways}  # fmt: skip
    chosen = method(how.method, problem.loss, **shape)
    return Plan(chosen, grid, iterations, schedule, chosen.adaptation(how.inner_steps))


class Outcome(NamedTuple):
    """A trained and tested cell."""

    cell: Cell
    rows: list[Record]
    scores: Float[np.ndarray, "seeds tasks episodes"]  # percent
    trained: tuple[Plan, Sweep] | None = None


def train_plan(plan: Plan, problem: Problem, seeds: int, progress: bool = False) -> Training:
    """All seeds side by side."""
    return train(
        plan.method, problem.loss, problem.net.init, problem.train, seeds=seeds, grid=plan.grid,
        iterations=plan.iterations, schedule=plan.schedule, progress=progress,
    )  # fmt: skip


def score(
    plan: Plan, run: Sweep, problem: Problem, **how: Any
) -> Float[np.ndarray, "members tasks episodes"]:
    """The accuracy of every episode; `how` goes to `accuracies`."""
    return np.asarray(run.each(accuracies(problem, plan.test, **how)))


def run_cell(
    cell: Cell, problem: Problem, *, seeds: int, budget: int | None, progress: bool
) -> Outcome:
    """Train a cell with all its seeds at once and test it."""
    p = PROTOCOLS[cell.protocol]
    axes: Record = {"ways": cell.setting.ways, "images": cell.images, "split": cell.split}
    row = partial(
        common.paper_row, table="oneshot", dataset=cell.dataset, method=cell.method,
        protocol=cell.protocol, metric="accuracy",
    )  # fmt: skip
    if cell.method == "pixels":
        right = float(nearest_image(problem)())
        done = row(setting=axes, values=[right], samples=0, iterations=0, seconds=0.0)
        return Outcome(cell, [done], np.full((1, 1, 1), right))
    if p.repeats:
        train_, test_ = (with_repeats(tasks) for tasks in (problem.train, problem.test))
        problem = problem._replace(train=train_, test=test_)
    plan = plan_of(cell, problem, budget)
    run, _, seconds = train_plan(plan, problem, seeds, progress)
    learning = {"keeps_learning": True} if cell.method != "protonet" else {"count": 1}  # no state
    scores = score(plan, run, problem, **(learning if p.keeps_learning else {}))
    used = {name: round(size_of(run, name), 6) for name in ("eta", "beta")}
    done = row(
        setting=axes | used, values=scores.mean(axis=(1, 2)), lost=run.lost, samples=run.samples,
        iterations=plan.iterations, seconds=seconds,
    )  # fmt: skip
    return Outcome(cell, [done], scores, (plan, run))
