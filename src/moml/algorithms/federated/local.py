"""LocalMOML and Per-FedAvg: H personal steps of a client's own, with a memory or without."""

from typing import Any

import jax.numpy as jnp

from moml.algorithms.federated.rounds import ClientResult, Steps, Update, local_steps
from moml.algorithms.parts.memory import Ema, ema, none
from moml.algorithms.parts.personal import Step, personal_step
from moml.types import Adapt, Hyper, Loss, Meta, Task


def per_fedavg(loss: Loss, adapt: Adapt) -> Update:
    """A client's round without memory: H times w_i <- w_i - eta J_A(w_i; S2)' grad L_S3(v).

    v = A(w_i; S1); exact, first-order or Hessian-free by the curvature of `adapt`.
    """
    visit = personal_step(loss, adapt, none())

    def forget(meta: Meta, row: tuple[()], task: Task, hyper: Hyper) -> Step:
        return visit(meta, row, task, hyper)._replace(u=())

    return local_steps(forget)


def localmoml(loss: Loss, adapt: Adapt) -> Update:
    """A client's round with a memory, restarted from S0 where there is one, else carried on.

        u_0 = A(w_r; S0)  (restart)    or what the last round left  (carried)
        H times:  u <- (1 - beta) u + beta A(w_i; S1),   w_i <- w_i - eta J_A(w_i; S2)' grad L_S3(u)

    A restarted memory does not outlive the round: its row is (). A carried one is an `Ema`.
    """
    visit = personal_step(loss, adapt, ema(0))

    def remember(meta: Meta, row: Ema, task: Task, hyper: Hyper) -> Step:
        step = visit(meta, row, task, hyper)
        return step._replace(u=Ema(step.u, row.visits + 1))

    train = local_steps(remember)

    def update(meta: Meta, row: Any, task: Task, steps: Steps, hyper: Hyper) -> ClientResult:
        if task.restart is None:
            done = train(meta, row, task, steps, hyper)
            return done._replace(row=Ema(done.row.u, row.visits + 1))  # visits count rounds
        u = Ema(adapt.apply(meta, task.restart, hyper), jnp.ones((), jnp.int32))  # u_{r,0}
        return train(meta, u, task._replace(restart=None), steps, hyper)._replace(row=row)

    return update
