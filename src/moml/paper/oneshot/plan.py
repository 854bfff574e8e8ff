"""How each row of the one-shot table is trained and tested: the paper's settings, and ours."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import optax

from moml.algorithms.method import Method
from moml.algorithms.parts.adapt import gradient_steps, named
from moml.algorithms.parts.schedule import Schedule, cosine, decay_at
from moml.errors import ConfigError
from moml.methods import method
from moml.paper.oneshot.tasks import SETTINGS, SPLIT, Problem, Setting
from moml.paper.sine import released
from moml.paper.sine.protocols import PROTOCOLS, Protocol, Steps
from moml.types import Adapt, Meta

ALPHA, TEST_ALPHA = 0.01, 0.05
OFFERED = ("released", "paper", "strict")
CONTROLS = ("untrained", "joint")
OURS = ("pixels", "joint-tuned", "protonet-tuned", "moml", "moml-memory")
CHOSEN = Path(__file__).with_name("settings.json")


@dataclass(frozen=True)
class Cell:
    """One figure of the table."""

    protocol: str
    dataset: str
    method: str
    images: str
    split: int = SPLIT

    @property
    def switches(self) -> Protocol:
        """The protocol's switches."""
        return PROTOCOLS[self.protocol]

    @property
    def setting(self) -> Setting:
        """The half of the table."""
        return SETTINGS[self.dataset]

    @property
    def chance(self) -> float:
        """The accuracy of a guess, in percent."""
        return 100 / self.setting.ways


class Tuned(NamedTuple):
    """How a row beyond the paper's settings is trained: chosen on validation classes."""

    method: str
    eta: float
    iterations: int
    tasks_per_step: int
    decay: float  # of the weights, in the outer rule
    alpha: float = ALPHA  # where learned step sizes begin; for joint training the one at test
    beta: float | None = None  # None: the method's own, for moml the rule's
    inner_steps: int = 1
    both_ways: bool = True
    leaves: str = ""  # the parameters that adapt, by a regular expression; all of them


class Plan(NamedTuple):
    """A cell, ready to be trained and tested."""

    method: Method
    grid: dict[str, list[float]]
    iterations: int
    schedule: Schedule
    test: Adapt
    test_alpha: float | None  # None: what the run was trained with


@cache
def tuned() -> dict[str, dict[str, Tuned]]:
    """The rows that the search chose: data set -> row -> how it is trained."""
    rows = json.loads(CHOSEN.read_text())["rows"]
    return {data: {name: Tuned(**how) for name, how in of.items()} for data, of in rows.items()}


def names_of(protocol: str, dataset: str) -> tuple[str, ...]:
    """The rows of a protocol's table."""
    return (*CONTROLS, *SETTINGS[dataset].named, *(OURS if protocol == "strict" else ()))


def cells(
    protocol: str,
    dataset: str,
    methods: list[str] | None,
    images: str | None = None,
    split: int = SPLIT,
) -> list[Cell]:
    """The cells of one data set's table, in its order."""
    if protocol not in OFFERED:
        raise ConfigError(f"unknown protocol {protocol!r}; allowed: {', '.join(OFFERED)}")
    if dataset not in SETTINGS:
        raise ConfigError(f"unknown data set {dataset!r}; allowed: {', '.join(SETTINGS)}")
    known = names_of(protocol, dataset)
    for name in methods or ():
        if name not in known:
            raise ConfigError(f"unknown method {name!r}; {protocol} has: {', '.join(known)}")
    seen = SETTINGS[dataset].images if images is None else images
    chosen = [name for name in known if methods is None or name in methods]
    return [Cell(protocol, dataset, name, seen, split) for name in chosen]


def iterations_of(name: str, n: int, budget: int) -> int:
    """Iterations on the samples of `budget` iterations of MAML at B = 1, counted as for sine."""
    match name:
        case "untrained":
            return 0
        case "nasa":  # all n tasks at every iteration
            return max(1, budget // n)
        case "localmoml":  # whole rounds of H = 5, each of which draws K0 = 2K samples more
            return max(1, int(budget // 1.4) // 5) * 5
    return budget


def plan_of(cell: Cell, problem: Problem, budget: int | None = None) -> Plan:
    """How a cell is trained and tested, under its protocol's switches."""
    if cell.method in OURS:
        return tuned_plan(tuned()[cell.dataset][cell.method], problem, budget)
    p, name, setting = cell.switches, cell.method, cell.setting
    steps = setting.named.get(name, Steps(setting.named["maml"].eta))
    shape: dict[str, Any] = {"n": problem.train.n, "k": 1}
    if name != "nasa":  # which visits all n tasks
        shape["tasks_per_step"] = 1
    match name:
        case "untrained" | "joint":  # joint training is MAML at alpha = 0
            chosen = method("fo-maml", problem.loss, **shape)
        case "protonet":
            features = problem.net.features
            chosen = method(name, problem.loss, **shape, features=features, optimizer="sgd")
        case _:
            chosen = method(name, problem.loss, **shape, **p.options(name))
    chosen = released.with_quirks(chosen, name, problem.loss, p)
    budget = setting.iterations if budget is None else budget
    iterations = iterations_of(name, setting.train, budget)
    grid = {
        "eta": [released.eta_of(name, steps, p)],
        "beta": [steps.beta],
        "gamma": [steps.gamma],
        "alpha": [0.0 if name == "joint" else ALPHA],
    }
    grid = {name: values for name, values in grid.items() if hasattr(chosen.hyper, name)}
    later = decay_at(int((0.5 if name == "protonet" else 0.75) * iterations))
    if name == "protonet":
        return Plan(chosen, grid, iterations, later, chosen.adaptation(1), None)
    test = gradient_steps(problem.loss, setting.test_steps)
    return Plan(chosen, grid, iterations, later, test, TEST_ALPHA)


def not_step_sizes(meta: Meta) -> Any:
    """What is to be kept small: the weights, not the logarithms of learned step sizes."""
    return jax.tree.map(lambda size: not size, named("log_alpha")(meta))


def tuned_plan(how: Tuned, problem: Problem, budget: int | None = None) -> Plan:
    """Adam with a cosine; all classes begin alike, step sizes are learned by layer and step."""
    shape: dict[str, Any] = {"n": problem.train.n, "k": 1}
    shape["tasks_per_step"] = min(how.tasks_per_step, problem.train.n or 1)
    shrinks = optax.add_decayed_weights(how.decay, mask=not_step_sizes)
    shape["optimizer"] = lambda eta: optax.chain(
        optax.scale_by_adam(), shrinks, optax.scale_by_learning_rate(eta)
    )
    iterations = how.iterations if budget is None else budget
    tied = named("head")
    grid = {"eta": [how.eta], "alpha": [how.alpha]}
    if how.beta is not None:
        grid["beta"] = [how.beta]
    schedule = cosine(max(1, iterations))
    match how.method:
        case "joint":
            chosen = method("fo-maml", problem.loss, **shape)
            test = gradient_steps(problem.loss, how.inner_steps, tied=tied)
            return Plan(chosen, grid | {"alpha": [0.0]}, iterations, schedule, test, how.alpha)
        case "protonet":
            chosen = method("protonet", problem.loss, **shape, features=problem.net.features)
            grid.pop("alpha")  # the adaptation takes no step
            return Plan(chosen, grid, iterations, schedule, chosen.adaptation(1), None)
    layers: dict[str, Any] = {"inner_steps": how.inner_steps, "step_sizes": "layer", "tied": tied}
    layers["leaves"] = named(how.leaves)
    asked = {"shots": 1, "test_steps": how.inner_steps, "both_ways": how.both_ways}
    chosen = method(how.method, problem.loss, **shape, **layers, **asked)
    return Plan(chosen, grid, iterations, schedule, chosen.adaptation(how.inner_steps), None)
