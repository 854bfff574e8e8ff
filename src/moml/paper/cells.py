"""What the cells of all tables share: the choice of methods, their composition, one training."""

import json
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import PyTree

from moml.algorithms.method import Method
from moml.config.problems.problem import one_of
from moml.methods import method
from moml.paper.protocols import Protocol, Steps, with_quirks
from moml.report.figures import Curve
from moml.training.loop import TrainingInfo
from moml.training.rows import result_row
from moml.training.sweep import Sweep, sweep
from moml.types import Hyper, Loss, Meta, Record

ALPHA = 0.01
CONTROLS = ("untrained", "joint")
PRINTED: list[Record] = json.loads(Path(__file__).with_name("printed.json").read_text("utf-8"))
Grid = dict[str, list[float]]


def choose(name: str, given: Iterable[str] | None, known: Sequence[str]) -> list[str]:
    """Those of `known` that are given, in the order of the table; all of them if None.

    >>> choose("methods", ["nasa", "maml"], ["maml", "nasa", "moml"])
    ['maml', 'nasa']
    """
    for each in given or ():
        one_of(name, each, known)
    return [each for each in known if given is None or each in given]


def printed(row: Record) -> tuple[float | None, ...]:
    """Mean and standard deviation in the paper; None where it has none.

    >>> maml = {"table": "sine", "dataset": "sine", "method": "maml", "metric": "test_error"}
    >>> printed(maml | {"setting": {"k": 1, "eta": 0.001}})
    (0.889, 0.021)
    """
    names = ("table", "dataset", "method", "metric")
    for known in PRINTED:
        same = all(known[name] == row[name] for name in names)
        if same and known["setting"].items() <= row["setting"].items():
            return known["mean"], known["std"]
    return None, None


def paper_row(**about: Any) -> Record:
    """A result row beside what the paper prints."""
    row = result_row(**about)
    mean, std = printed(row)
    return row | {"paper_mean": mean, "paper_std": std}


def compose(name: str, loss: Loss, p: Protocol, **options: Any) -> Method:
    """The method of a row under a protocol; both controls are MAML, `joint` with alpha = 0."""
    if name == "nasa":  # it visits all n tasks
        options.pop("tasks_per_step", None)
    known = {"untrained": "fo-maml", "joint": "fo-maml", "moml-searched": "moml"}.get(name, name)
    chosen = method(known, loss, **p.options(known), **options)
    return with_quirks(chosen, name, loss, p)


def step_sizes(name: str, chosen: Method, steps: Steps, p: Protocol) -> Grid:
    """The step sizes of a row under a protocol that its method has, as a grid of one setting."""
    through = p.through_average and name in ("moml-v1", "nasa", "localmoml")
    eta = steps.eta * (steps.beta if through else 1.0)  # the gradient runs through v1's average
    sizes = {"eta": eta, "beta": steps.beta, "gamma": steps.gamma}
    sizes["alpha"] = 0.0 if name == "joint" else ALPHA
    return {name: [value] for name, value in sizes.items() if hasattr(chosen.hyper, name)}


def size_of(run: Sweep, name: str) -> float:
    """The first member's number `name`; 1 where its method has none, as beta without a memory."""
    return float(np.asarray(run.hyper._asdict().get(name, [1.0]))[0])


def iterations_of(name: str, budget: int, *, tasks: int, n: int) -> int:
    """Iterations on the samples of `budget` iterations of MAML, as the released code counts.

    MAML visits `tasks` of the n tasks at each of them.
    """
    match name:
        case "untrained":
            return 0
        case "nasa":  # all n tasks at every iteration
            return max(1, budget * tasks // n)
        case "localmoml":  # whole rounds of H = 5, each of which draws K0 = 2K samples more
            return max(1, int(budget // 1.4) // 5) * 5
        case "bspiderboost":
            return max(1, int(budget * 3 // (10 / 3 + 3 * 2 / 3)))
    return budget


class Training(NamedTuple):
    """A trained cell: all its seeds and settings, with their scores on the way."""

    run: Sweep
    curve: list[tuple[int, PyTree]]  # calls of `step` so far, score
    seconds: float  # compilation included, scoring not

    def finite_curve(self) -> Curve:
        """The curve of one score a seed, NaN from its divergence on."""
        gone = lambda step: self.run.lost & (self.run.lost_at < step)
        return [(step, np.where(gone(step), np.nan, value)) for step, value in self.curve]


def train(
    *given: Any, score: Callable[[Meta, Hyper], PyTree] | None = None, **options: Any
) -> Training:
    """Call `sweep` with these arguments, and `score` after every stretch."""
    began, scoring = time.monotonic(), 0.0
    curve: list[tuple[int, PyTree]] = []

    def callback(info: TrainingInfo) -> None:
        nonlocal scoring
        start = time.monotonic()
        if score is not None:
            curve.append((info.step, score(info.meta, info.hyper)))
        scoring += time.monotonic() - start

    run = sweep(*given, callback=callback, **options)
    return Training(run, curve, time.monotonic() - began - scoring)
