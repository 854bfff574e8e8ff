"""The search behind the strict one-shot table's own rows: small grids, on validation tasks.

The test classes are never touched. Omniglot has hundreds of classes that no task of the table uses;
CIFAR-100 has none, so training tasks are held out in turn and the others trained on.
"""

import itertools
import json
import platform
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from moml.errors import DataError
from moml.paper.oneshot.plan import ALPHA, Tuned, tuned_plan
from moml.paper.oneshot.table import score, train
from moml.paper.oneshot.tasks import SETTINGS, problem_of
from moml.storage.files import write_text


class Variant(NamedTuple):
    """A row of the table, and the lists that its fields are chosen from."""

    base: Tuned
    lists: dict[str, list[Any]]


SIZES = {"eta": [0.003, 0.01, 0.03], "decay": [0.5, 2.0]}
SMALL = {"eta": [0.0003, 0.001, 0.003], "decay": [0.5, 3.0]}
BETAS = {"beta": [0.7, 0.5, 0.3, 0.1]}
TESTS: dict[str, list[Any]] = {"inner_steps": [5, 20], "alpha": [0.1, 0.5, 1.0, 2.0]}
MOML = Tuned("moml", 0.003, 3000, 4, 0.5, alpha=0.4, inner_steps=5, both_ways=False)
SHORT = MOML._replace(iterations=1000, eta=0.001, alpha=0.1, leaves="head")  # 3,072 inputs: faster


def _variants(
    base: Tuned, sizes: dict[str, list[Any]], tests: dict[str, list[Any]]
) -> dict[str, Variant]:
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
SWEPT = ("eta", "beta")  # side by side; the others change the program


def search(
    pool: np.ndarray, dataset: str, variant: Variant, *, seeds: int, budget: int | None
) -> Iterator[tuple[Tuned, list[float]]]:
    """Every candidate and its accuracy in each fold, the mean of all seeds."""
    setting, lists = SETTINGS[dataset], variant.lists
    inside = {name: lists[name] for name in SWEPT if name in lists}
    outside = {name: values for name, values in lists.items() if name not in inside}
    runs: dict[Any, Any] = {}  # joint training does not know how it will be tested
    for values in itertools.product(*outside.values()):
        base = variant.base._replace(**dict(zip(outside, values, strict=True)))
        each = [dict(zip(inside, row, strict=True)) for row in itertools.product(*inside.values())]
        found: list[list[float]] = [[] for _ in each]
        for fold in range(FOLDS[dataset]):
            problem = problem_of(pool, setting, fold=fold)
            plan = tuned_plan(base, problem, budget)
            plan = plan._replace(grid=plan.grid | inside)
            tested: dict[str, Any] = {}
            if base.method == "joint":
                tested = {"alpha": 0.0, "inner_steps": 0}
            same = (fold, base._replace(**tested))
            if same not in runs:
                runs[same] = train(plan, problem, seeds=seeds, progress=False)
            run = runs[same]
            right = score(plan, run, problem, keeps_learning=False, count=100).mean(axis=(1, 2))
            right = np.where(run.lost, np.nan, right).reshape(-1, seeds).mean(axis=1)
            rows = [{name: row[name] for name in inside} for row in run.settings[::seeds]]
            for i, one in enumerate(each):
                found[i].append(float(right[rows.index(one)]))
        for one, accuracy in zip(each, found, strict=True):
            yield base._replace(**one), accuracy


def search_row(
    pool: np.ndarray, dataset: str, row: str, content: dict[str, Any], *, seeds: int,
    budget: int | None, command: str,
) -> dict[str, Any]:  # fmt: skip
    """The file's content with this row chosen anew, and the whole grid beside it."""
    began = time.monotonic()
    variant = VARIANTS[dataset][row]
    rows = content.setdefault("rows", {}).setdefault(dataset, {})
    if row == "moml-memory" and "moml" in rows:
        variant = variant._replace(base=Tuned(**rows["moml"]))
    tried = []
    for how, folds in search(pool, dataset, variant, seeds=seeds, budget=budget):
        mean = float(np.mean(folds))
        at = {name: getattr(how, name) for name in variant.lists}
        tried.append((mean, how, at | {"accuracy": None if np.isnan(mean) else round(mean, 2)}))
        print(f"{dataset} {row}: {at} {mean:.2f} %", flush=True)
    tried.sort(key=lambda one: -1 if np.isnan(one[0]) else one[0], reverse=True)  # lost: last
    rows[row] = tried[0][1]._asdict()
    device = jax.devices()[0]
    tables = content.setdefault("tables", {}).setdefault(dataset, {})
    tables[row] = {
        "command": command,
        "machine": f"{device.device_kind}, jax {jax.__version__}, {platform.python_version()}",
        "chosen on": _chosen_on(dataset),
        "seconds": round(time.monotonic() - began),
        "tried": [one[2] for one in tried],
    }
    return content


def _chosen_on(dataset: str) -> str:
    setting, folds = SETTINGS[dataset], FOLDS[dataset]
    if dataset == "omniglot":
        return f"{setting.test} tasks of classes that no task of the table has, 100 episodes each"
    left = setting.train - setting.test
    return f"{folds} times {setting.test} held-out training tasks, {left} trained on, 100 episodes"


def read_content(path: Path) -> dict[str, Any]:
    """What an earlier search left; nothing where there is no file."""
    try:
        found = json.loads(path.read_text()) if path.exists() else {}
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read settings from {path}: {error}") from error
    if not isinstance(found, dict) or not {"rows", "tables"} >= set(found):
        raise DataError(f"{path} does not hold one-shot settings: give another file, or remove it")
    return found


def write_content(content: dict[str, Any], path: Path) -> None:
    """Put the file down whole."""
    write_text(json.dumps(content, indent=1) + "\n", path)
