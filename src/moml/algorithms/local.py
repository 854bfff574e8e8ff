"""LocalMOML: each sampled client makes H personal steps of its own, then the models are averaged.

`client_update` is all that a client does in a round. Whatever runs clients (vmap here, devices,
Flower) calls this one function; only the meta-model ever leaves it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from moml.algorithms.memory import Ema, none
from moml.algorithms.moml import mean, norm
from moml.algorithms.personal import personal_step
from moml.types import Adapt, Algorithm, Hyper, Info, Loss, Memory, Meta, Need, Params, Task, Visit


class LocalState(NamedTuple):
    """The server's model, and the clients' carried memories where there are any."""

    meta: Meta
    memory: Any


class ClientResult(NamedTuple):
    """What a round leaves at a client: the model it sends, the memory it keeps."""

    meta: Meta
    u: Any
    loss: Float[Array, ""]


def client_update(loss: Loss, adapt: Adapt, memory: Memory) -> Callable[..., ClientResult]:
    """A client's round, from (w_r, row of its memory, samples of H visits, hyper).

        u_0 = A(w_r; S0)  (restart)    or what the last round left  (carried)
        H times:  u <- memory(u, A(w_i; S1)),   w_i <- w_i - eta J_A(w_i; S2)' grad L_S3(u)

    A task with restart samples starts its memory from them; else the given row is carried on.
    """
    visit = personal_step(loss, adapt, memory)

    def update(meta: Meta, row: Any, task: Task, hyper: Hyper) -> ClientResult:
        one_visit = jnp.ones((), jnp.int32)
        if task.restart is not None:
            row = Ema(adapt.apply(meta, task.restart, hyper), one_visit)  # u_{r,0}
        elif row == ():
            row = Ema(adapt.start(meta), one_visit)  # no memory at all: never looked at

        def local_step(carry: Any, samples: Task) -> Any:
            meta, row = carry
            step = visit(meta, row, samples, hyper)
            meta = jax.tree.map(lambda w, d: w - hyper.eta * d, meta, step.delta)
            return (meta, Ema(step.u, row.visits + 1)), step.loss

        (meta, row), losses = jax.lax.scan(local_step, (meta, row), task._replace(restart=None))
        return ClientResult(meta, row.u, jnp.mean(losses))

    return update


def localmoml(
    loss: Loss, adapt: Adapt, memory: Memory, need: Need, store: Memory | None = None
) -> Algorithm:
    """Rounds of `client_update` over sampled clients; the server takes the plain mean.

    `memory` is the rule inside a round, `store` what is carried between rounds: with restart
    (`need.restart` samples) or no memory at all nothing is, and `store` is left out.
    """
    kept = none() if store is None else store
    update = client_update(loss, adapt, memory)

    def init(params: Params, hyper: Hyper) -> LocalState:
        meta = adapt.init(params, hyper)
        return LocalState(meta, kept.init(adapt.start(meta)))

    def step(state: LocalState, visit: Visit, hyper: Hyper) -> tuple[LocalState, Info]:
        rows = kept.read(state.memory, visit.ids)
        clients = jax.vmap(update, (None, 0, 0, None))(state.meta, rows, visit.task, hyper)
        meta = mean(clients.meta)  # w_{r+1} = 1/B sum w_i
        moved = norm(optax.tree.sub(state.meta, meta))
        store = kept.write(state.memory, visit.ids, clients.u)
        return LocalState(meta, store), Info(jnp.mean(clients.loss), moved)

    return Algorithm(init, step, need, iterations=need.visits or 1)
