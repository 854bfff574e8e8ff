"""The search behind the strict one-shot table's tuned rows: small grids, on validation tasks.

The test classes are never touched. Omniglot has hundreds of classes that no task of the table uses;
CIFAR-100 has none, so training tasks are held out in turn and the others trained on.
"""

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from moml.paper import search as grids
from moml.paper.cells import ALPHA
from moml.paper.oneshot.table import Tuned, score, train_plan, tuned_plan
from moml.paper.oneshot.tasks import SETTINGS, problem_of
from moml.training.sweep import Sweep
from moml.types import Record

KEYS = {"rows", "tables"}  # of the file
Lists = dict[str, Sequence[float | int]]


class Variant(NamedTuple):
    """A row of the table, and the lists that its fields are chosen from."""

    base: Tuned
    lists: Lists


SIZES: Lists = {"eta": [0.003, 0.01, 0.03], "decay": [0.5, 2.0]}
SMALL: Lists = {"eta": [0.0003, 0.001, 0.003], "decay": [0.5, 3.0]}
BETAS: Lists = {"beta": [0.7, 0.5, 0.3, 0.1]}
TESTS: Lists = {"inner_steps": [5, 20], "alpha": [0.1, 0.5, 1.0, 2.0]}
MOML = Tuned("moml", 0.003, 3000, 4, 0.5, alpha=0.4, inner_steps=5, both_ways=False)
SHORT = MOML._replace(iterations=1000, eta=0.001, alpha=0.1, leaves="head")  # 3,072 inputs: faster


def _variants(base: Tuned, sizes: Lists, tests: Lists) -> dict[str, Variant]:
    """The rows of a data set; moml-memory takes what was chosen for moml, and another beta."""
    proto = base._replace(method="protonet", alpha=ALPHA, inner_steps=1)
    return {
        "moml": Variant(base, sizes),
        "moml-memory": Variant(base, BETAS),
        "protonet-tuned": Variant(proto, sizes),
        "joint-tuned": Variant(base._replace(method="joint"), sizes | tests),
    }


VARIANTS = {
    "omniglot": _variants(MOML, SIZES, TESTS),
    "cifar100": _variants(SHORT, SMALL, {"inner_steps": [5], "alpha": [0.1, 0.5]}),
}
FOLDS = {"omniglot": 1, "cifar100": 2}
CHOSEN_ON = {
    "omniglot": "10 tasks of classes that no task of the table has, 100 episodes each",
    "cifar100": "2 times 3 held-out training tasks, 14 trained on, 100 episodes",
}


def search_row(
    pool: np.ndarray, dataset: str, row: str, content: Record, *, seeds: int, budget: int | None,
    command: str,
) -> Record:  # fmt: skip
    """The file's content with this row chosen anew, and the whole grid beside it."""
    began = time.monotonic()
    variant = VARIANTS[dataset][row]
    rows = content.setdefault("rows", {}).setdefault(dataset, {})
    base = Tuned(**rows["moml"]) if row == "moml-memory" and "moml" in rows else variant.base
    problems = [problem_of(pool, SETTINGS[dataset], fold=i) for i in range(FOLDS[dataset])]
    runs: dict[tuple[int, Tuned], Sweep] = {}

    def evaluate(fixed: dict[str, Any], grid: grids.Lists) -> grids.Scores:
        how = base._replace(**fixed)
        joint = how.method == "joint"  # its training does not depend on how it is tested
        trained = how._replace(alpha=0.0, inner_steps=0) if joint else how
        found = []
        for fold, problem in enumerate(problems):
            plan = tuned_plan(how, problem, budget)
            other = {name: values for name, values in plan.grid.items() if name not in grid}
            plan = plan._replace(grid={**grid, **other})
            if (fold, trained) not in runs:
                runs[fold, trained] = train_plan(plan, problem, seeds).run
            run = runs[fold, trained]
            found.append((score(plan, run, problem).mean(axis=(1, 2)), run.lost))
        by_setting = lambda part: np.concatenate([x.reshape(-1, seeds) for x in part], axis=1)
        right, lost = zip(*found, strict=True)
        return by_setting(right), by_setting(lost)

    chosen = lambda found: {name: found[name] for name in variant.lists}

    def show(found: Record) -> None:
        mean = np.nan if found["mean"] is None else found["mean"]
        print(f"{dataset} {row}: {chosen(found)} {mean:.2f} %", flush=True)

    tried = grids.search(variant.lists, evaluate, swept=("eta", "beta"), on_row=show)
    rows[row] = base._replace(**chosen(tried[0]))._asdict()
    content.setdefault("tables", {}).setdefault(dataset, {})[row] = {
        "command": command, "machine": grids.machine(), "chosen on": CHOSEN_ON[dataset],
        "seconds": round(time.monotonic() - began),
        "tried": [
            chosen(found) | {"accuracy": found["mean"] and round(found["mean"], 2)}
            for found in tried
        ],
    }  # fmt: skip
    return content
