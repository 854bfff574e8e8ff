"""The federated table: its protocols and settings, its cells, their methods."""

import itertools
import warnings
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int

from moml.algorithms.federated.fedavg import fedavg_update
from moml.algorithms.federated.rounds import RoundState
from moml.algorithms.method import Method
from moml.algorithms.parts.schedule import Schedule
from moml.algorithms.parts.task_map import mean, norm
from moml.errors import ConfigError, MomlWarning
from moml.methods import method
from moml.paper.cells import Grid, choose
from moml.paper.federated.released import builder, one_draw
from moml.types import Algorithm, Hyper, Info, Loss, Params, Record, SampleSpec, TaskBatch

CLIENTS, K, TEST_STEPS = 50, 5, 10  # n; support; fine-tuning steps
ALPHA, ETA, BETA = 0.001, 0.001, 0.9  # (r): inner and fine-tuning rate, outer rate, LocalMOML's
GPUS = 4  # groups that clients are split over
SPLIT = 7  # seed of who owns what, where none is named


@dataclass(frozen=True)
class Protocol:
    """How the table is made. Every switch as it is here is `strict`, our own protocol."""

    exact: bool = True  # curvature of the inner gradient; else first-order
    independent_hessian: bool = False  # S2 is drawn independently of S1
    queries: int = K  # size of S3
    reused: bool = False  # one draw of S1 and S3 serves all H local steps of a round, and one
    # gradient all steps of pFedMe's subproblem
    decays: bool = True  # eta / 10 at 50 % and again at 75 % of the rounds; not in the paper's text
    unscaled_restart: bool = False  # the batch that fills u keeps its pixels in 0 .. 255
    standardised: bool = True  # pixels less their mean over their deviation; else 0 .. 1
    bare_elu: bool = False  # ELU, Xavier normal, no biases; else ReLU with biases
    stratified: bool = False  # as many clients from each of 4 groups
    mean_of_steps: bool = False  # accuracy: mean over the fine-tuning steps; else after the last
    best_round: bool = False  # the best of all rounds that are scored; else the last
    few_queries: bool = False  # scored on 10 images; else on all the rest of a half of the test set
    prox: float = 15.0  # pFedMe's lambda
    prox_steps: int = 3  # its R; 3 gradients cost what a personal step with its curvature costs
    more_mnist: bool = False  # a = 168 for MNIST's training images
    by_iterations: bool = False  # "10,000" counts local steps: rounds are divided by H
    tuned: bool = True  # step sizes are chosen on the other half of the test images
    stops: bool = True  # so are the round and the number of fine-tuning steps
    unseen: bool = True  # clients that never took part are scored too


_RELEASED = Protocol(
    exact=False, queries=10, reused=True, decays=False, unscaled_restart=True, standardised=False,
    bare_elu=True, stratified=True, mean_of_steps=True, best_round=True, few_queries=True,
    prox=500.0, prox_steps=10, more_mnist=True, tuned=False, stops=False, unseen=False,
)  # fmt: skip
PROTOCOLS = {
    "released": _RELEASED,
    "released-scaled": replace(_RELEASED, unscaled_restart=False),
    "paper": Protocol(
        independent_hessian=True, decays=False, standardised=False, stratified=True,
        prox=100.0, prox_steps=50, by_iterations=True, stops=False, unseen=False,
    ),
    "strict": Protocol(),
}  # fmt: skip
# What `strict` chooses from: 6 settings of every method. alpha is the fine-tuning rate too.
_ALPHAS = (0.01, 0.03)
_PLAIN = {"alpha": _ALPHAS, "eta": (0.02, 0.03, 0.05)}
_MEMORY = {"alpha": _ALPHAS, "eta": (0.03,), "beta": (0.3, 0.5, 0.7)}
GRIDS: dict[str, dict[str, tuple[float, ...]]] = {
    "untrained": {"alpha": (0.003, *_ALPHAS, 0.1)},
    **dict.fromkeys(("local", "fedavg", "per-fedavg", "pfedme"), _PLAIN),
    **dict.fromkeys(("localmoml", "localmoml-carried"), _MEMORY),
}
# What `paper` chooses from: its alpha, eta from its range for sine, beta in [.1, .9].
PAPER_ETAS, PAPER_BETAS = (0.1, 0.01, 0.001), (0.1, 0.3, 0.5, 0.7, 0.9)
TRAIN = 68  # a of the training images, see `half_and_half`
TEST = {"mnist": 34, "cifar10": 34, "cifar100": 15}  # that of a data set's test images
CONTROLS = ("untrained", "local", "fedavg")
CARRIED = "localmoml-carried"  # a memory that clients keep between rounds; not in the paper's table
METHODS = ("per-fedavg", "localmoml", CARRIED, "pfedme")


class Cell(NamedTuple):
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


def cells(
    protocol: str, dataset: str, h: list[int], clients: list[int], methods: list[str] | None,
    k: list[int] | None = None, split: int = SPLIT,
) -> list[Cell]:  # fmt: skip
    """The cells of one data set under a protocol, in the table's order."""
    choose("protocol", [protocol], [*PROTOCOLS])
    choose("dataset", [dataset], [*TEST])
    p = PROTOCOLS[protocol]
    chosen = choose("methods", methods, CONTROLS + METHODS)
    if p.reused and CARRIED in chosen:
        if methods is not None:
            raise ConfigError(f"{protocol} has no {CARRIED}: its one draw a round leaves no memory")
        chosen.remove(CARRIED)
    unit = GPUS if p.stratified else 1
    for each in clients:
        if each > CLIENTS or each % unit:
            allowed = f"a multiple of {unit} up to" if p.stratified else "from 1 to"
            whole = f"{allowed} {CLIENTS // unit * unit}"
            raise ConfigError(f"{protocol}: clients_per_round must be {whole}; got {each}")
    axes = itertools.product(k or [K], h, clients, chosen)
    return [Cell(protocol, dataset, name, h, b, k, split) for k, h, b, name in axes]


def compose(cell: Cell, loss: Loss) -> Method:
    """The method of a cell, as the library has it."""
    p, name = cell.switches, cell.method
    queries = p.queries if p.queries != K else cell.k
    shape: Record = {"n": CLIENTS, "tasks_per_step": cell.clients, "local_steps": cell.h}
    personal: Record = {"k": cell.k, "independent_hessian": p.independent_hessian}
    personal["curvature"] = "exact" if p.exact else "first-order"
    whole: Record = {"k": cell.k + queries}  # without query: support and query as one
    known, options = {
        "localmoml": ("localmoml", personal | {"restart_samples": cell.k}),
        CARRIED: ("localmoml", personal | {"carried": True}),
        "pfedme": ("pfedme", whole | {"prox": p.prox, "prox_steps": p.prox_steps}),
        "fedavg": ("fedavg", whole),
        "local": ("fedavg", whole | {"tasks_per_step": CLIENTS}),
    }.get(name, ("per-fedavg", personal))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MomlWarning)  # the paper's lambda is what it is
        chosen = method(known, loss, **shape | options)
    if name == "local":
        return chosen._replace(algorithm=alone(loss, chosen.algorithm.needs, cell.h))
    needs = chosen.algorithm.needs
    needs = needs._replace(query=queries if needs.query else 0, groups=GPUS if p.stratified else 1)
    return chosen._replace(algorithm=chosen.algorithm._replace(needs=needs))


def with_quirks(chosen: Method, cell: Cell) -> Method:
    """The same with one draw a round, where the protocol has that."""
    p = cell.switches
    if not p.reused or cell.method == "local":
        return chosen
    build, scale = builder(chosen.name, p.prox, p.prox_steps), 255.0 if p.unscaled_restart else 1.0
    made = one_draw(build, chosen.algorithm.needs, cell.h, restart_scale=scale)
    return chosen._replace(algorithm=made)


def alone(loss: Loss, need: SampleSpec, h: int) -> Algorithm:
    """Every client on its own, all from one start: H times w_i <- w_i - eta grad L_S(w_i)."""
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
    """eta / 10 at 50 % and again at 75 %: in the released code, but never reached there.

    `strict` and `federated-memory` use it; `paper` does not, as its text names none.

    >>> at = lambda t: float(decays_twice(100)(Hyper(eta=1.0), jnp.array(t)).eta)
    >>> [round(at(t), 3) for t in (49, 50, 75)]
    [1.0, 0.1, 0.01]
    """

    def schedule(hyper: Hyper, step: Int[Array, ""]) -> Hyper:
        marks = (iterations // 2, iterations * 3 // 4)
        first, second = (jnp.where(step < at, 1.0, 0.1) for at in marks)
        eta = jnp.asarray(hyper.eta)
        return hyper._replace(eta=eta * (first * second).astype(eta.dtype))

    return schedule


def grid_of(cell: Cell) -> Grid:
    """Step sizes: the released code's, or all that are to be tried."""
    p = cell.switches
    if p.tuned and p.stops:
        return {name: list(values) for name, values in GRIDS[cell.method].items()}
    etas, betas = (PAPER_ETAS, PAPER_BETAS) if p.tuned else ((ETA,), (BETA,))
    grid = {"alpha": [ALPHA]} | ({"eta": [*etas]} if cell.method != "untrained" else {})
    return grid | ({"beta": [*betas]} if cell.method.startswith("localmoml") else {})


def rounds_in(cell: Cell, budget: int) -> int:
    """Rounds of a cell of a table with `budget`; in those of `local` all clients take part."""
    count = max(1, budget // cell.h) if cell.switches.by_iterations else budget
    alone = max(1, count * cell.clients // CLIENTS)
    return {"untrained": 0, "local": alone}.get(cell.method, count)
