"""The search that gives `strict` its step sizes: every method over a grid, on validation tasks."""

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np

from moml.algorithms.parts.schedule import constant, decay_at
from moml.algorithms.single.matching import match_beta
from moml.errors import ConfigError
from moml.paper import search as grids
from moml.paper.cells import iterations_of, train
from moml.paper.sine.score import LOSS, NET, SHOTS, STEPS, VALIDATION, unseen_error
from moml.paper.sine.table import B, N
from moml.tasks import sine
from moml.training.progress import bar
from moml.types import Record

ETA = [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1]
BETA = [0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0]
ADAM = {"optimizer": "adam"}
KEYS = {"test", "steps", "tables"}  # of the file


class Variant(NamedTuple):
    """What is searched over, and under which names `strict` knows its best."""

    label: str
    method: str
    options: dict[str, Any]
    grid: dict[str, list[float]]


GRID = {"eta": ETA, "beta": BETA}
FIRST = {"curvature": "first-order"}
V1 = (  # the 1,120 trainings a K; beta = 1 is MAML
    Variant("v1, first-order, sgd", "moml-v1", FIRST, GRID),
    Variant("v1, first-order, adam", "moml-v1", FIRST | ADAM, GRID),
    Variant("v1, exact, sgd", "moml-v1", {}, GRID),
    Variant("v1, exact, adam", "moml-v1", ADAM, GRID),
)
OTHERS = (
    Variant("v1, exact, adam, both ways", "moml-v1", ADAM | {"both_ways": True}, GRID),
    Variant("v1, exact, adam, 3 inner steps", "moml-v1", ADAM | {"inner_steps": 3}, GRID),
    Variant("joint", "fo-maml", {}, {"eta": ETA, "alpha": [0.0]}),
    Variant("reptile", "reptile", {}, {"eta": [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0]}),
    Variant("nasa", "nasa", {}, GRID | {"gamma": [0.1]}),
    Variant("bspiderboost", "bspiderboost", {}, {"eta": ETA}),
    Variant("moml-v2", "moml-v2", {}, GRID),
    Variant("localmoml", "localmoml", {}, GRID),
)


class Found(NamedTuple):
    """A variant's table: a row a setting, the best first."""

    variant: Variant
    k: int
    rows: list[Record]


def search(variant: Variant, k: int, *, seeds: int, budget: int) -> Found:
    """Train the whole grid with all seeds as one program; rank by the error on validation tasks."""
    iterations = iterations_of(variant.method, budget, tasks=B, n=N)
    decays = variant.method != "bspiderboost"

    def evaluate(fixed: dict[str, float | int], grid: grids.Lists) -> grids.Scores:
        run = train(
            variant.method, LOSS, NET.init, sine(), seeds=seeds, grid=grid, iterations=iterations,
            schedule=decay_at(iterations * 3 // 4) if decays else constant, k=k, **variant.options,
        ).run  # fmt: skip
        errors = np.asarray(unseen_error(VALIDATION)(run.meta))
        return errors.reshape(-1, seeds), run.lost.reshape(-1, seeds)

    return Found(variant, k, grids.search(variant.grid, evaluate, swept=variant.grid, sign=-1))


def search_all(variants: Sequence[Variant], k: int, seeds: int, budget: int) -> Iterator[Found]:
    """Every variant in its turn; while one trains on an accelerator the next ones compile."""
    one = lambda variant: search(variant, k, seeds=seeds, budget=budget)
    pool = ThreadPoolExecutor(1 if jax.default_backend() == "cpu" else 4)
    with pool, bar(f"search, K = {k}", len(variants), shown=True) as advance:
        for done, found in enumerate(pool.map(one, variants), start=1):
            advance(done, found.rows[0]["mean"] or math.nan)
            yield found


def best(found: Found, keep: Callable[[Record], bool] = lambda row: True) -> dict[str, float]:
    """The step sizes of the best row that `keep` accepts."""
    row = next((row for row in found.rows if row["mean"] is not None and keep(row)), None)
    if row is None:
        raise ConfigError(f"{found.variant.label}, k = {found.k}: every setting lost a seed")
    return {name: row[name] for name in ("eta", "beta", "gamma") if name in row}


def steps_of(found: Found) -> dict[str, dict[str, float]]:
    """The rows of `strict` that a variant decides: name -> step sizes."""
    label = found.variant.label
    if label == "v1, exact, sgd":
        memory = best(found, lambda row: row["beta"] < 1)
        return {"maml": best(found, lambda row: row["beta"] == 1), "moml-v1": memory}
    if label == "v1, exact, adam, both ways":  # moml takes its eta; its beta is the rule's
        rule = match_beta(found.k, SHOTS, steps=STEPS, both_ways=True)
        near = min(BETA, key=lambda beta: abs(math.log(beta / rule)))
        return {"moml-searched": best(found), "moml": best(found, lambda row: row["beta"] == near)}
    return {} if "," in label else {label: best(found)}


def add_to(content: Record, found: Found, command: str) -> Record:
    """The file that `strict` reads, with this table in the place of an older one of its kind."""
    steps = {name: dict(of_k) for name, of_k in content.get("steps", {}).items()}
    for name, sizes in steps_of(found).items():
        steps.setdefault(name, {})[str(found.k)] = sizes
    tables = {(table["variant"], table["k"]): table for table in content.get("tables", [])}
    label, rows = found.variant.label, {"machine": grids.machine(), "best": found.rows[:3]}
    tables[label, found.k] = {"variant": label, "k": found.k, "command": command} | rows
    test = f"{SHOTS} shots, {STEPS} steps, validation tasks of seed {VALIDATION}"
    return {"test": test, "steps": steps, "tables": list(tables.values())}
