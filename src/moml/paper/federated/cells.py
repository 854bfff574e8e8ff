"""The cells of the federated table, and the method that each of them trains."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax

from moml.algorithms.federated.fedavg import fedavg_update
from moml.algorithms.federated.rounds import RoundState
from moml.algorithms.method import Method
from moml.algorithms.parts.schedule import Schedule
from moml.algorithms.parts.task_map import mean, norm
from moml.errors import ConfigError
from moml.methods import method
from moml.paper.federated.protocols import (
    CARRIED,
    CLIENTS,
    CONTROLS,
    GPUS,
    METHODS,
    PRINTED,
    PROTOCOLS,
    SETTINGS,
    SPLIT,
    K,
    Protocol,
)
from moml.paper.federated.released import builder, one_draw
from moml.types import Algorithm, Hyper, Info, Loss, Params, SampleSpec, TaskBatch


@dataclass(frozen=True)
class Cell:
    """One figure of the table."""

    protocol: str
    dataset: str
    method: str
    h: int
    clients: int  # a round
    k: int = K
    split: int = SPLIT  # seed of who owns what

    @property
    def switches(self) -> Protocol:
        """The protocol's switches."""
        return PROTOCOLS[self.protocol]

    @property
    def printed(self) -> tuple[float | None, float | None]:
        """The paper's mean and standard deviation."""
        found = PRINTED[self.dataset].get(self.method, {}) if self.k == K else {}
        return found.get((self.h, self.clients), (None, None))


def cells(
    protocol: str,
    dataset: str,
    h: list[int],
    clients: list[int],
    methods: list[str] | None,
    k: list[int] | None = None,
    split: int = SPLIT,
) -> list[Cell]:
    """The cells of one data set under a protocol, in the table's order."""
    known = CONTROLS + METHODS
    for name, value, allowed in (
        ("protocol", protocol, tuple(PROTOCOLS)),
        ("data set", dataset, tuple(SETTINGS)),
        *(("method", name, known) for name in methods or ()),
    ):
        if value not in allowed:
            raise ConfigError(f"unknown {name} {value!r}; allowed: {', '.join(allowed)}")
    p = PROTOCOLS[protocol]
    most = CLIENTS // GPUS * GPUS if p.stratified else CLIENTS
    for each in clients:
        if each > most or (p.stratified and each % GPUS):
            whole = f"multiples of {GPUS} up" if p.stratified else "1"
            raise ConfigError(f"{each} clients a round; {protocol} allows {whole} to {most}")
    if p.reused and CARRIED in (methods or ()):
        raise ConfigError(f"{protocol} has no {CARRIED}: its one draw a round leaves no memory")
    chosen = [
        name
        for name in known
        if (name != CARRIED or not p.reused if methods is None else name in methods)
    ]
    return [
        Cell(protocol, dataset, name, one, each, size, split)
        for size in k or [K]
        for one in h
        for each in clients
        for name in chosen
    ]


def compose(cell: Cell, loss: Loss) -> Method:
    """The method of a cell, as the library has it."""
    p, name = cell.switches, cell.method
    queries = p.queries if p.queries != K else cell.k
    shape = {"n": CLIENTS, "tasks_per_step": cell.clients, "k": cell.k, "local_steps": cell.h}
    curvature = "exact" if p.exact else "first-order"
    personal = {"curvature": curvature, "independent_hessian": p.independent_hessian}
    whole = shape | {"k": cell.k + queries}  # without query: support and query as one
    match name:
        case "localmoml":
            chosen = method(name, loss, **shape, **personal, restart_samples=cell.k)
        case "localmoml-carried":
            chosen = method("localmoml", loss, **shape, **personal, carried=True)
        case "pfedme":
            chosen = method(name, loss, **whole, prox=p.prox, prox_steps=p.prox_steps)
        case "fedavg":
            chosen = method(name, loss, **whole)
        case "local":
            chosen = method("fedavg", loss, **whole | {"tasks_per_step": CLIENTS})
            made = alone(loss, chosen.algorithm.needs, cell.h)
            return chosen._replace(algorithm=made)
        case _:  # what has no training has the shape of Per-FedAvg
            chosen = method("per-fedavg", loss, **shape, **personal)
    needs = chosen.algorithm.needs
    needs = needs._replace(query=queries if needs.query else 0, groups=GPUS if p.stratified else 1)
    return chosen._replace(algorithm=chosen.algorithm._replace(needs=needs))


def with_quirks(chosen: Method, cell: Cell) -> Method:
    """The same with one draw a round, where the protocol wants that."""
    p = cell.switches
    if not p.reused or cell.method == "local":
        return chosen
    build = builder(chosen.name, p.prox, p.prox_steps)
    scale = 255.0 if p.unscaled_restart else 1.0
    made = one_draw(build, chosen.algorithm.needs, cell.h, restart_scale=scale)
    return chosen._replace(algorithm=made)


def alone(loss: Loss, need: SampleSpec, h: int) -> Algorithm:
    """Every client by itself, all from one start: H times w_i <- w_i - eta grad L_S(w_i)."""
    update = fedavg_update(loss)

    def first(params: Params, hyper: Hyper) -> RoundState:
        each = lambda x: jnp.broadcast_to(x, (need.tasks, *x.shape))
        return RoundState(jax.tree.map(each, params), ())

    def step(state: RoundState, visit: TaskBatch, hyper: Hyper) -> tuple[RoundState, Info]:
        client = lambda w, task: update(w, (), task, None, hyper)
        done = jax.vmap(client)(state.meta, visit.task)
        moved = norm(optax.tree.sub(state.meta, done.meta))
        return RoundState(done.meta, ()), Info(mean(done.loss), moved)

    return Algorithm(first, step, need, iterations=h)


def decays_twice(iterations: int) -> Schedule:
    """eta / 10 at 50 % and again at 75 %: what the released code writes down, and never does.

    >>> at = lambda t: float(decays_twice(100)(Hyper(eta=1.0), jnp.array(t)).eta)
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
    """Rounds of a cell, where the table has `budget`; alone, all clients take part in each."""
    count = max(1, budget // cell.h) if cell.switches.by_iterations else budget
    match cell.method:
        case "untrained":
            return 0
        case "local":
            return max(1, count * cell.clients // CLIENTS)
    return count
