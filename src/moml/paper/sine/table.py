"""The paper's first table, sine regression at K = 1 and 3; and the demonstration, at K = 1."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from moml.algorithms.method import Method
from moml.algorithms.parts.schedule import constant, decay_at
from moml.errors import ConfigError
from moml.models.networks import MLP, Layer
from moml.paper import cells as common
from moml.paper.cells import CONTROLS, Grid, Training, choose, paper_row, size_of, train
from moml.paper.protocols import PROTOCOLS, Steps
from moml.paper.sine import score
from moml.paper.sine.score import FINAL, LOSS, NET, SHOTS, STEPS, unseen_error
from moml.report.figures import Curve
from moml.tasks import sine
from moml.training.rows import result_row
from moml.training.sweep import Sweep
from moml.types import Hyper, Meta, Params, Record

OURS = ("moml", "moml-searched")
SETTINGS = Path(__file__).with_name("settings.json")
N, B = 25, 3  # tasks; of these, visited at each step

# The step sizes that the released code names, for `released` and `paper`.
NAMED = {
    "maml": {1: Steps(0.001), 3: Steps(0.005)},
    "reptile": {1: Steps(0.05), 3: Steps(0.1)},
    "nasa": {1: Steps(0.05, 0.5, 0.1), 3: Steps(0.05, 0.5, 0.1)},
    "bspiderboost": {1: Steps(0.001), 3: Steps(0.001)},
    "moml-v1": {1: Steps(0.005, 0.3), 3: Steps(0.01, 0.5)},
    "moml-v2": {1: Steps(0.005, 0.1), 3: Steps(0.01, 0.1)},
    "localmoml": {1: Steps(0.005, 0.3), 3: Steps(0.01, 0.5)},
}


class Cell(NamedTuple):
    """One figure of the table: what is trained, under which protocol."""

    protocol: str
    method: str
    k: int
    steps: Steps


class Outcome(NamedTuple):
    """A trained and tested cell."""

    cell: Cell
    rows: list[Record]
    run: Sweep
    curve: Curve  # samples drawn, objective of each seed


def names_of(protocol: str) -> tuple[str, ...]:
    """The rows of a protocol's table."""
    return (*CONTROLS, *NAMED, *(OURS if protocol == "strict" else ()))


def steps_of(protocol: str, name: str, k: int) -> Steps:
    """Step sizes of a cell: named by the released code, or found by `moml reproduce search`."""
    if protocol == "strict":
        searched = json.loads(SETTINGS.read_text("utf-8"))["steps"]
        of_k = searched.get({"untrained": "joint"}.get(name, name), {})
        known = {int(k): Steps(**sizes) for k, sizes in of_k.items()}
    else:
        known = NAMED["maml" if name in CONTROLS else name]
    if k not in known:
        raise ConfigError(f"{protocol} has step sizes of {name} for k in {[*known]}; got k = {k}")
    return known[k]


def cells(protocol: str, ks: list[int], methods: list[str] | None) -> list[Cell]:
    """The cells of a table, in its order."""
    choose("protocol", [protocol], [*PROTOCOLS])
    chosen = choose(f"methods of {protocol}", methods, names_of(protocol))
    return [Cell(protocol, name, k, steps_of(protocol, name, k)) for k in ks for name in chosen]


def recorded_init() -> Params:
    """The one network that the released code starts every seed from."""
    saved = np.load(Path(__file__).with_name("released.npz"))
    tensor = lambda name: jnp.asarray(saved[name], float)
    first, second, head = (Layer(tensor(f"weight{i}"), tensor(f"bias{i}")) for i in range(3))
    return MLP((first, second), head)


def compose(cell: Cell, budget: int = 40_000) -> Method:
    """The method of a cell, with its protocol's switches, for so many iterations."""
    users = {"shots": SHOTS, "test_steps": STEPS, "iterations": max(1, budget)}
    options = {"n": N, "tasks_per_step": B, "k": cell.k} | (users if cell.method in OURS else {})
    return common.compose(cell.method, LOSS, PROTOCOLS[cell.protocol], **options)


def run_cell(cell: Cell, *, seeds: int, budget: int, progress: bool, points: int = 10) -> Outcome:
    """Train a cell with all its seeds at once and test it."""
    p, chosen = PROTOCOLS[cell.protocol], compose(cell, budget)
    iterations = common.iterations_of(cell.method, budget, tasks=B, n=N)
    a_call = chosen.algorithm.iterations
    calls = -(-iterations // a_call)  # of `step`
    grid = common.step_sizes(cell.method, chosen, cell.steps, p)
    if cell.method == "moml":
        grid["beta"] = [chosen.hyper.beta]
    later = decay_at(max(0, int(0.75 * calls) - 1) * a_call)
    init, objective = recorded_init() if p.shared_init else None, score.objective_of()
    done = train(
        chosen, LOSS, NET.init if init is None else lambda key: init, sine(), seeds=seeds,
        grid=grid, iterations=iterations, chunk=max(1, -(-calls // points)),
        schedule=constant if cell.method == "bspiderboost" else later,
        score=lambda meta, hyper: np.asarray(objective(meta)), progress=progress,
    )  # fmt: skip
    run = done.run
    test = score.error_on_five_waves() if p.five_waves else score.unseen_error(score.FINAL)
    beta = round(size_of(run, "beta"), 6)
    row = paper_row(
        table="sine", dataset="sine", setting={"k": cell.k, "eta": cell.steps.eta, "beta": beta},
        method=cell.method, protocol=cell.protocol, metric="test_error",
        values=np.asarray(test(run.meta)), lost=run.lost,
        samples=run.samples, iterations=iterations, seconds=done.seconds,
    )  # fmt: skip
    drawn = run.samples / max(1, calls)
    curve = [(round(step * drawn), values) for step, values in done.finite_curve()]
    return Outcome(cell, [row], run, curve)


K = 1
ENTRIES: dict[str, tuple[str, Grid, dict[str, Any]]] = {  # method, good step sizes, options
    "untrained": ("maml", {"eta": [0.005]}, {}),
    "maml": ("maml", {"eta": [0.005]}, {}),
    "moml-v1": ("moml-v1", {"eta": [0.005], "beta": [0.1]}, {}),
    "moml": ("moml", {"eta": [0.005]}, {"shots": SHOTS, "test_steps": STEPS, "beta": "rule"}),
}


def run_entry(
    label: str, *, iterations: int, seeds: int, moved: Callable[[int], None]
) -> tuple[Training, Record]:
    """Train a line with all its seeds at once, scored on unseen tasks; its training and its row.

    `moved` is called with a number of steps when they are done.
    """
    method, grid, options = ENTRIES[label]
    chunk, error = max(1, iterations // 10), unseen_error(FINAL)

    def on_the_way(meta: Meta, hyper: Hyper) -> np.ndarray:
        moved(chunk)
        return np.asarray(error(meta))

    done = train(
        method, LOSS, NET.init, sine(), seeds=seeds, grid=grid,
        iterations=0 if label == "untrained" else iterations,
        schedule=decay_at(max(1, iterations * 3 // 4)), chunk=chunk, score=on_the_way, k=K,
        **options,
    )  # fmt: skip
    run = done.run
    used = {name: size_of(run, name) for name in ("beta", "eta")}
    row = result_row(
        table="sine", dataset="sine", setting={"k": K, **used}, method=label, metric="test_error",
        values=done.curve[-1][1] if done.curve else np.asarray(error(run.meta)), lost=run.lost,
        samples=run.samples,
        iterations=done.curve[-1][0] if done.curve else 0, seconds=done.seconds,
    )  # fmt: skip
    return done, row
