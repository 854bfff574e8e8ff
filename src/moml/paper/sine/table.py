"""The paper's first table: sine regression, every method, K = 1 and 3."""

import json
import time
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from moml.algorithms.method import Method
from moml.algorithms.parts.schedule import constant, decay_at
from moml.errors import ConfigError
from moml.methods import method
from moml.paper.sine import released
from moml.paper.sine.protocols import NAMED, PRINTED, PROTOCOLS, Protocol, Steps
from moml.paper.sine.score import (
    FINAL,
    LOSS,
    NET,
    SHOTS,
    STEPS,
    TEST,
    TESTED_WITH,
    error_on_five_waves,
    example_waves,
    objective_of,
    unseen_error,
)
from moml.tasks import sine
from moml.training.sweep import Sweep, mean_of_seeds, sweep
from moml.types import Batch, Params

CONTROLS = ("untrained", "joint")
OURS = ("moml", "moml-searched")
SETTINGS = Path(__file__).with_name("settings.json")


@dataclass(frozen=True)
class Cell:
    """One figure of the table: what is trained, under which protocol."""

    protocol: str
    method: str
    k: int
    steps: Steps

    @property
    def switches(self) -> Protocol:
        """The protocol's switches."""
        return PROTOCOLS[self.protocol]


@dataclass(frozen=True)
class Outcome:
    """A trained and tested cell."""

    cell: Cell
    run: Sweep
    curve: list[tuple[int, np.ndarray]]  # samples drawn, objective of each seed
    errors: np.ndarray  # [seeds]
    iterations: int
    seconds: float  # training, compilation included, scoring not
    ms: float | None  # milliseconds per iteration and run, compiled, all seeds at once


def names_of(protocol: str) -> tuple[str, ...]:
    """The rows of a protocol's table."""
    return (*CONTROLS, *PRINTED, *(OURS if protocol == "strict" else ()))


@cache
def searched() -> dict[str, Any]:
    """The step sizes that `moml reproduce search` found on validation tasks."""
    return json.loads(SETTINGS.read_text())["steps"]


def steps_of(protocol: str, name: str, k: int) -> Steps:
    """Step sizes of a cell: named by the released code, or found by our search."""
    if protocol == "strict":
        known = {"untrained": "joint"}.get(name, name)
        found = searched().get(known, {}).get(str(k))
        if found is None:
            tried = sorted(searched().get(known, {}))
            raise ConfigError(f"no searched step sizes for {name} at k = {k}; known k: {tried}")
        return Steps(**found)
    like = "maml" if name in CONTROLS else name
    if k not in NAMED[like]:
        raise ConfigError(f"{protocol} has step sizes for k = 1 and k = 3; given k = {k}")
    return NAMED[like][k]


def cells(protocol: str, ks: list[int], methods: list[str] | None) -> list[Cell]:
    """The cells of a table, in its order."""
    known = names_of(protocol)
    for name in methods or ():
        if name not in known:
            raise ConfigError(f"unknown method {name!r}; {protocol} has: {', '.join(known)}")
    chosen = [name for name in known if methods is None or name in methods]
    return [Cell(protocol, name, k, steps_of(protocol, name, k)) for k in ks for name in chosen]


def recorded_init() -> Params:
    """The one network that the released code starts every seed from."""
    saved = np.load(Path(__file__).with_name("released.npz"))
    blank = NET.init(jax.random.key(0))
    layers = lambda net: [*net.body, net.head]
    where = lambda net: [leaf for layer in layers(net) for leaf in (layer.weight, layer.bias)]
    names = [f"{part}{i}" for i in range(3) for part in ("weight", "bias")]
    return eqx.tree_at(where, blank, [jnp.asarray(saved[name], float) for name in names])


def iterations_of(name: str, k: int, budget: int) -> int:
    """Iterations on the samples of `budget` iterations of MAML, as the released code counts."""
    match name:
        case "untrained":
            return 0
        case "nasa":
            return max(1, budget * 3 // 25)
        case "localmoml":  # whole rounds of H = 5, each of which draws K0 = 2K samples more
            return max(1, int(budget // 1.4) // 5) * 5
        case "bspiderboost":
            return max(1, int(budget * 3 // (10 / 3 + 3 * 2 / 3)))
    return budget


def compose(cell: Cell, budget: int = 40_000) -> Method:
    """The method of a cell, with its protocol's switches, for so many iterations."""
    p, name = cell.switches, cell.method
    shape: dict[str, Any] = {"n": 25, "k": cell.k}
    if name != "nasa":  # which visits all n tasks
        shape["tasks_per_step"] = 3
    match name:
        case "untrained" | "joint":  # joint training is MAML at alpha = 0
            chosen = method("fo-maml", LOSS, **shape)
        case "moml" | "moml-searched":
            users = {"shots": SHOTS, "test_steps": STEPS, "iterations": max(1, budget)}
            chosen = method("moml", LOSS, **shape, **users)
        case _:
            chosen = method(name, LOSS, **shape, **p.options(name))
    return released.with_quirks(chosen, name, LOSS, p)


def run_cell(cell: Cell, *, seeds: int, budget: int, progress: bool, points: int = 10) -> Outcome:
    """Train a cell with all its seeds at once and test it."""
    p, steps = cell.switches, cell.steps
    chosen = compose(cell, budget)
    iterations = iterations_of(cell.method, cell.k, budget)
    grid = {
        "eta": [released.eta_of(cell.method, steps, p)],
        "beta": [chosen.hyper.beta if cell.method == "moml" else steps.beta],
        "gamma": [steps.gamma],
        "alpha": [0.0 if cell.method == "joint" else 0.01],
    }
    grid = {name: values for name, values in grid.items() if hasattr(chosen.hyper, name)}
    count = -(-iterations // chosen.algorithm.iterations)  # calls of `step`
    decays = cell.method != "bspiderboost"
    objective = objective_of()
    curve: list[tuple[int, np.ndarray]] = []
    clock = {"start": time.monotonic(), "scoring": 0.0, "first": 0.0}

    def score(step: int, meta: Any, hyper: Any) -> None:
        began = time.monotonic()
        clock["first"] = clock["first"] or began
        curve.append((step, np.asarray(objective(meta))))
        clock["scoring"] += time.monotonic() - began

    init = recorded_init() if p.shared_init else None
    done = sweep(
        chosen,
        LOSS,
        NET.init if init is None else lambda key: init,
        sine(),
        seeds=seeds,
        grid=grid,
        iterations=iterations,
        schedule=decay_at(max(0, int(0.75 * count) - 1) * chosen.algorithm.iterations)
        if decays
        else constant,
        chunk=max(1, -(-count // points)),
        on_chunk=score,
        progress=progress,
    )
    ended = time.monotonic()
    steady = ended - clock["first"] - clock["scoring"]
    after = count - (curve[0][0] if curve else 0)
    per_call = chosen.algorithm.iterations * seeds
    ms = 1e3 * steady / (after * per_call) if after and iterations else None
    drawn = done.samples / max(1, count)
    seconds = ended - clock["start"] - clock["scoring"]
    gone = lambda step: done.lost & (done.lost_at < step)
    curve = [(round(step * drawn), np.where(gone(step), np.nan, error)) for step, error in curve]
    return Outcome(cell, done, curve, final_errors(cell, done), iterations, seconds, ms)


def final_errors(cell: Cell, done: Sweep) -> np.ndarray:
    """Test error of each seed under the cell's protocol."""
    test = error_on_five_waves() if cell.switches.five_waves else unseen_error(FINAL)
    return np.asarray(test(done.meta))


def printed_ms(cell: Cell) -> float | None:
    """The paper's milliseconds per iteration."""
    return PRINTED.get(cell.method, {}).get(cell.k, (None, None, None))[2]


def fitted(outcome: Outcome) -> np.ndarray:
    """What seed 0 predicts on the example waves after adapting to each: [5, points]."""
    few, many = example_waves()

    def wave(meta: Any, few: Batch, x: Any) -> Any:
        return NET.predict(TEST.merge(meta, TEST.apply(meta, few, TESTED_WITH)), x)[:, 0]

    first = jax.tree.map(lambda leaf: leaf[0], outcome.run.meta)
    return np.asarray(jax.jit(jax.vmap(wave, (None, 0, 0)))(first, few, many.x))


def row_of(outcome: Outcome) -> dict[str, Any]:
    """A result row, in the one form that all tables share."""
    cell, run = outcome.cell, outcome.run
    lost = run.lost | ~np.isfinite(outcome.errors)
    mean, std = mean_of_seeds(outcome.errors, lost)
    printed = PRINTED.get(cell.method, {}).get(cell.k, (None, None, None))
    used = asdict(cell.steps) | {
        "beta": float(np.asarray(run.hyper._asdict().get("beta", [1.0]))[0])
    }
    return {
        "table": "sine",
        "dataset": "sine",
        "setting": {"k": cell.k, "eta": used["eta"], "beta": round(used["beta"], 6)},
        "method": cell.method,
        "protocol": cell.protocol,
        "metric": "test_error",
        "mean": mean,
        "std": std,
        "seeds": len(run.settings),
        "lost": int(lost.sum()),
        "paper_mean": printed[0],
        "paper_std": printed[1],
        "samples": run.samples,
        "iterations": outcome.iterations,
        "seconds": round(outcome.seconds, 2),
    }
