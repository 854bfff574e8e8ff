"""The paper's first table: sine regression, every method, K = 1 and 3."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from moml.algorithms.method import Method
from moml.algorithms.parts.schedule import constant, decay_at
from moml.errors import ConfigError
from moml.models.networks import MLP, Layer
from moml.paper.cells import CONTROLS, Curve, choose, iterations_of, size_of, step_sizes, train
from moml.paper.cells import compose as composed
from moml.paper.protocols import PROTOCOLS, Steps
from moml.paper.sine import score
from moml.paper.sine.score import LOSS, NET, SHOTS, STEPS
from moml.tasks import sine
from moml.training.rows import result_row
from moml.training.sweep import Sweep
from moml.types import Params, Record

OURS = ("moml", "moml-searched")
SETTINGS = Path(__file__).with_name("settings.json")
N, B = 25, 3  # tasks; of these, visited at each step

# Test error and milliseconds per iteration as printed: method -> K -> (mean, std, ms).
PRINTED = {
    "maml": {1: (0.889, 0.021, 1.713), 3: (0.321, 0.015, 1.729)},
    "reptile": {1: (1.212, 0.054, 1.380), 3: (1.132, 0.028, 1.430)},
    "nasa": {1: (0.361, 0.010, 17.524), 3: (0.214, 0.050, 17.608)},
    "bspiderboost": {1: (1.300, 0.104, 3.960), 3: (0.650, 0.042, 4.159)},
    "moml-v1": {1: (0.291, 0.012, 2.180), 3: (0.196, 0.068, 2.294)},
    "moml-v2": {1: (0.448, 0.012, 7.863), 3: (0.268, 0.026, 8.016)},
    "localmoml": {1: (0.462, 0.043, 2.556), 3: (0.170, 0.020, 2.624)},
}
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


@dataclass(frozen=True)
class Cell:
    """One figure of the table: what is trained, under which protocol."""

    protocol: str
    method: str
    k: int
    steps: Steps

    @property
    def printed(self) -> tuple[float | None, float | None, float | None]:
        """The paper's mean, standard deviation and milliseconds per iteration."""
        return PRINTED.get(self.method, {}).get(self.k, (None, None, None))


class Outcome(NamedTuple):
    """A trained and tested cell."""

    cell: Cell
    rows: list[Record]
    run: Sweep
    curve: Curve  # samples drawn, objective of each seed
    ms: float | None  # milliseconds per iteration and run, compiled, all seeds at once


def names_of(protocol: str) -> tuple[str, ...]:
    """The rows of a protocol's table."""
    return (*CONTROLS, *PRINTED, *(OURS if protocol == "strict" else ()))


@cache
def searched() -> dict[str, dict[str, dict[str, float]]]:
    """The step sizes that `moml reproduce search` found on validation tasks."""
    return json.loads(SETTINGS.read_text())["steps"]


def steps_of(protocol: str, name: str, k: int) -> Steps:
    """Step sizes of a cell: named by the released code, or found by our search."""
    if protocol == "strict":
        of_k = searched().get({"untrained": "joint"}.get(name, name), {})
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
    return composed(cell.method, LOSS, PROTOCOLS[cell.protocol], **options)


def run_cell(cell: Cell, *, seeds: int, budget: int, progress: bool, points: int = 10) -> Outcome:
    """Train a cell with all its seeds at once and test it."""
    p, chosen = PROTOCOLS[cell.protocol], compose(cell, budget)
    iterations = iterations_of(cell.method, budget, tasks=B, n=N)
    a_call = chosen.algorithm.iterations
    calls = -(-iterations // a_call)  # of `step`
    grid = step_sizes(cell.method, chosen, cell.steps, p)
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
    run, after = done.run, calls - done.curve[0][0] if done.curve else 0
    test = score.error_on_five_waves() if p.five_waves else score.unseen_error(score.FINAL)
    beta = round(size_of(run, "beta"), 6)
    row = result_row(
        table="sine", dataset="sine", setting={"k": cell.k, "eta": cell.steps.eta, "beta": beta},
        method=cell.method, protocol=cell.protocol, metric="test_error",
        values=np.asarray(test(run.meta)), lost=run.lost, printed=cell.printed,
        samples=run.samples, iterations=iterations, seconds=done.seconds,
    )  # fmt: skip
    drawn = run.samples / max(1, calls)
    curve = [(round(step * drawn), values) for step, values in done.finite_curve()]
    ms = 1e3 * done.steady / (after * a_call * seeds) if after else None
    return Outcome(cell, [row], run, curve, ms)
