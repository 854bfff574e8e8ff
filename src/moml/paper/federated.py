"""The paper's third table: federated image classification, 50 clients, beside its controls."""

import math
import time
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from moml.algorithms.recipes import Method, method
from moml.algorithms.schedule import Schedule, constant
from moml.errors import ConfigError
from moml.paper.federated_data import Pool, Problem, drawn, half
from moml.paper.federated_protocols import (
    ALPHA,
    BETA,
    BETAS,
    CLIENTS,
    CONTROLS,
    ETA,
    ETAS,
    GPUS,
    METHODS,
    PRINTED,
    PROTOCOLS,
    SETTINGS,
    TEST_STEPS,
    K,
    Protocol,
)
from moml.paper.federated_score import Clients, metrics_of, reading, scorer
from moml.paper.released_federated import builder, one_draw
from moml.run.sweep import Sweep, mean_of_seeds, sweep
from moml.run.train import init_key
from moml.runtime.account import cost
from moml.types import Hyper, Loss

LOCAL_STEPS, LOCAL_RATE = 100, 0.01  # of the control `local`
EVERY, POINTS = 50, 20  # rounds between two scores (released); scores of a run (the others)


@dataclass(frozen=True)
class Cell:
    """One figure of the table."""

    protocol: str
    dataset: str
    method: str
    h: int
    clients: int  # a round

    @property
    def switches(self) -> Protocol:
        """The protocol's switches."""
        return PROTOCOLS[self.protocol]

    @property
    def printed(self) -> tuple[float | None, float | None]:
        """The paper's mean and standard deviation."""
        found = PRINTED[self.dataset].get(self.method, {})
        return found.get((self.h, self.clients), (None, None))


@dataclass(frozen=True)
class Outcome:
    """A trained and tested cell."""

    cell: Cell
    run: Sweep
    rounds: int
    curve: list[tuple[int, np.ndarray]]  # rounds, accuracy of each seed
    seen: Clients  # at the round that the protocol reports
    unseen: Clients | None
    bytes_a_round: int
    seconds: float  # training and its compilation, scoring not


def cells(
    protocol: str, dataset: str, h: list[int], clients: list[int], methods: list[str] | None
) -> list[Cell]:
    """The cells of one data set under a protocol, in the table's order."""
    for name, value, known in (
        ("protocol", protocol, tuple(PROTOCOLS)),
        ("data set", dataset, tuple(SETTINGS)),
        *(("method", name, CONTROLS + METHODS) for name in methods or ()),
    ):
        if value not in known:
            raise ConfigError(f"unknown {name} {value!r}; allowed: {', '.join(known)}")
    most = CLIENTS // GPUS * GPUS if PROTOCOLS[protocol].stratified else CLIENTS
    for each in clients:
        if each > most or (PROTOCOLS[protocol].stratified and each % GPUS):
            whole = f"multiples of {GPUS} up" if PROTOCOLS[protocol].stratified else "1"
            raise ConfigError(f"{each} clients a round; {protocol} allows {whole} to {most}")
    chosen = [name for name in CONTROLS + METHODS if methods is None or name in methods]
    return [
        Cell(protocol, dataset, name, one, each) for one in h for each in clients for name in chosen
    ]


def compose(cell: Cell, loss: Loss) -> Method:
    """The method of a cell, as the library has it."""
    p, name = cell.switches, cell.method
    shape = {"n": CLIENTS, "tasks_per_step": cell.clients, "k": K, "local_steps": cell.h}
    curvature = "exact" if p.exact else "first-order"
    personal = {"curvature": curvature, "independent_hessian": p.independent_hessian}
    whole = shape | {"k": K + p.queries}  # a method without query takes support and query as one
    match name:
        case "localmoml":
            chosen = method(name, loss, **shape, **personal, restart_samples=K)
        case "pfedme":
            chosen = method(name, loss, **whole, prox=p.prox, prox_steps=p.prox_steps)
        case "fedavg":
            chosen = method(name, loss, **whole)
        case _:  # the controls without training have the shape of Per-FedAvg
            chosen = method("per-fedavg", loss, **shape, **personal)
    needs = chosen.algorithm.needs
    needs = needs._replace(
        query=p.queries if needs.query else 0, groups=GPUS if p.stratified else 1
    )
    return chosen._replace(algorithm=chosen.algorithm._replace(needs=needs))


def with_quirks(chosen: Method, cell: Cell) -> Method:
    """The same with one draw a round, where the protocol wants that."""
    p = cell.switches
    if not p.reused:
        return chosen
    build = builder(chosen.name, p.prox, p.prox_steps)
    scale = 255.0 if p.unscaled_restart else 1.0
    made = one_draw(build, chosen.algorithm.needs, cell.h, restart_scale=scale)
    return chosen._replace(algorithm=made)


def decays_twice(iterations: int) -> Schedule:
    """eta / 10 at 50 % and again at 75 %: what the released code writes down, and never does.

    >>> at = lambda t: float(decays_twice(100)(Hyper(1.0), jnp.array(t)).eta)
    >>> [round(at(t), 3) for t in (49, 50, 75)]
    [1.0, 0.1, 0.01]
    """

    marks = (iterations // 2, iterations * 3 // 4)

    def schedule(hyper: Hyper, step: Any) -> Hyper:
        first, second = (jnp.where(step < at, 1.0, 0.1) for at in marks)
        eta = jnp.asarray(hyper.eta)
        return hyper._replace(eta=eta * (first * second).astype(eta.dtype))

    return schedule


def rounds_in(cell: Cell, budget: int) -> int:
    """Rounds of a cell, where the table has `budget`."""
    if cell.method in ("untrained", "local"):
        return 0
    return max(1, budget // cell.h) if cell.switches.by_iterations else budget


def run_cell(cell: Cell, problem: Problem, *, seeds: int, budget: int, progress: bool) -> Outcome:
    """Train a cell with all its seeds at once, and score it on the way."""
    p, plain = cell.switches, compose(cell, problem.loss)
    chosen, count = with_quirks(plain, cell), rounds_in(cell, budget)
    began, scoring = time.monotonic(), 0.0
    grid = choose(cell, problem, seeds=seeds, count=count, progress=progress)
    score = _scores(cell, problem, problem.test, seeds, which=1)
    curve: list[tuple[int, Clients]] = []

    def on_chunk(done: int, meta: Any, hyper: Hyper) -> None:
        nonlocal scoring
        start = time.monotonic()
        curve.append((done, score(meta)))
        scoring += time.monotonic() - start

    every = EVERY if p.best_round else math.ceil(count / POINTS)
    run = _train(
        cell, chosen, problem, grid, seeds=seeds, count=count,
        chunk=max(1, every), on_chunk=on_chunk, progress=progress,
    )  # fmt: skip
    if not count:
        on_chunk(0, run.meta, run.hyper)
    unseen = None
    if problem.unseen is not None:
        unseen = _scores(cell, problem, problem.unseen, seeds, which=None)(run.meta)
    example = problem.net.init(init_key(0))
    once = cost(plain, example)
    return Outcome(
        cell=cell,
        run=run,
        rounds=count,
        curve=[(done, clients.after.mean(axis=1)) for done, clients in curve],
        seen=reported([clients for _, clients in curve], best=p.best_round),
        unseen=unseen,
        bytes_a_round=int(once.down + once.up),
        seconds=time.monotonic() - began - scoring,
    )


def reported(clients: list[Clients], *, best: bool) -> Clients:
    """Each seed's clients at its best round, or at the last."""
    means = np.stack([one.after.mean(axis=1) for one in clients])
    at = np.nanargmax(means, axis=0) if best else np.full(means.shape[1], len(clients) - 1)
    pick = lambda field: np.stack([getattr(clients[t], field)[s] for s, t in enumerate(at)])
    return Clients(pick("before"), pick("after"))


def choose(
    cell: Cell, problem: Problem, *, seeds: int, count: int, progress: bool
) -> dict[str, list[float]]:
    """Step sizes: the released code's, or the best of a grid on the tuning half of the test."""
    memory = cell.method == "localmoml"
    named = {"alpha": [ALPHA], "eta": [ETA]} | ({"beta": [BETA]} if memory else {})
    if not cell.switches.tuned or not count:
        return named
    grid = named | {"eta": list(ETAS)} | ({"beta": list(BETAS)} if memory else {})
    chosen = with_quirks(compose(cell, problem.loss), cell)
    run = _train(cell, chosen, problem, grid, seeds=seeds, count=count, progress=progress)
    combinations = len(run.settings) // seeds
    score = _scores(cell, problem, problem.test, seeds, which=0)
    of_seeds = lambda i: jax.tree.map(lambda leaf: leaf[i * seeds : (i + 1) * seeds], run.meta)
    means = np.stack([score(of_seeds(i)).after.mean(axis=1) for i in range(combinations)])
    means = np.where(run.lost.reshape(means.shape), -np.inf, means).mean(axis=1)
    best = run.settings[int(np.argmax(means)) * seeds]
    return {name: [best[name]] for name in grid}


def _train(
    cell: Cell, chosen: Method, problem: Problem, grid: Any, *, seeds: int, count: int, **how: Any
) -> Sweep:
    schedule = decays_twice(max(1, count * cell.h)) if cell.switches.decays else constant
    return sweep(
        chosen, problem.loss, problem.net.init, problem.train,
        seeds=seeds, grid=grid, iterations=count * cell.h, schedule=schedule, **how,
    )  # fmt: skip


def _scores(cell: Cell, problem: Problem, pool: Pool, seeds: int, *, which: int | None) -> Any:
    """Models of all seeds -> their clients, on the half of the test images that `which` says."""
    p, alone = cell.switches, cell.method == "local"
    halved = which is not None and not p.few_queries
    rows = half(pool.rows, which or 0) if halved else pool.rows
    each = drawn(rows, seeds, few=p.few_queries, salt=0 if which is None else which + 1)
    steps, rate = (LOCAL_STEPS, LOCAL_RATE) if alone else (TEST_STEPS, ALPHA)
    score = scorer(problem.net, problem.loss, pool, each, p, steps=steps, rate=rate)
    return lambda meta: reading(score(meta), p.mean_of_steps and not alone)


def rows_of(outcome: Outcome) -> list[dict[str, Any]]:
    """Result rows, one a metric, in the one form that all tables share."""
    cell, run = outcome.cell, outcome.run
    used = {"eta": run.hyper.eta} | ({"beta": run.hyper.beta} if run.method.beta != 1 else {})
    step_sizes = {name: round(float(np.asarray(value)[0]), 6) for name, value in used.items()}
    axes = {"h": cell.h, "clients": cell.clients, "rounds": outcome.rounds}
    setting = {**axes, **step_sizes} if outcome.rounds else axes
    metrics = metrics_of(outcome.seen)
    if outcome.unseen is not None:
        found = metrics_of(outcome.unseen)
        metrics |= {f"{name}_unseen": values for name, values in found.items()}
    rows = []
    for name, values in metrics.items():
        lost = run.lost | ~np.isfinite(values)
        mean, std = mean_of_seeds(values, lost)
        printed = cell.printed if name == "accuracy" else (None, None)
        rows.append(
            {
                "table": "federated",
                "dataset": cell.dataset,
                "setting": setting,
                "method": cell.method,
                "protocol": cell.protocol,
                "metric": name,
                "mean": mean,
                "std": std,
                "seeds": len(values),
                "lost": int(lost.sum()),
                "paper_mean": printed[0],
                "paper_std": printed[1],
                "samples": run.samples,
                "iterations": outcome.rounds * cell.h,
                "seconds": round(outcome.seconds, 2),
            }
        )
    return rows
