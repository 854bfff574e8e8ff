"""pFedMe and Ditto: personal models held near the common one by a proximal term."""

from collections.abc import Callable
from typing import Any

import jax

from moml.algorithms.federated.fedavg import fedavg
from moml.algorithms.federated.rounds import ClientResult, Steps, Update, local_steps, repeat, where
from moml.algorithms.parts.memory import Ema
from moml.algorithms.parts.personal import Step
from moml.types import Hyper, Loss, Meta, Params, Task


def proximal_step(loss: Loss, prox: float) -> Callable[[Params, Meta, Any, Hyper], Params]:
    """One step on L_S(p) + prox/2 |p - w|^2:  p <- p - alpha (grad L_S(p) + prox (p - w))."""

    def step(p: Params, w: Meta, samples: Any, hyper: Hyper) -> Params:
        g = jax.grad(loss)(p, samples)
        return jax.tree.map(lambda p, g, w: p - hyper.alpha * (g + prox * (p - w)), p, g, w)

    return step


def pfedme(loss: Loss, prox: float, prox_steps: int) -> Update:
    """A client's round: H times theta near w_i, then w_i towards theta; `prox` is lambda.

        R times from theta = w_i:  theta <- theta - alpha (grad L_S1(theta) + lambda (theta - w_i))
        w_i <- w_i - eta lambda (w_i - theta)

    One batch a subproblem, the gradient anew at each of its R steps; its loss is that at theta.
    """
    towards = proximal_step(loss, prox)

    def subproblem(meta: Meta, row: tuple[()], task: Task, hyper: Hyper) -> Step:
        step = lambda theta, _: (towards(theta, meta, task.support, hyper), None)
        theta = jax.lax.scan(step, meta, length=prox_steps)[0]
        delta = jax.tree.map(lambda w, t: prox * (w - t), meta, theta)  # gradient of the envelope
        return Step(row, delta, loss(theta, task.support))

    return local_steps(subproblem)


def ditto(loss: Loss, prox: float) -> Update:
    """A client's round: FedAvg's for w_i, and as many steps of its own u near the w_r it was sent.

        H times:  u <- u - alpha (grad L_S1(u) + prox (u - w_r)),   w_i <- w_i - eta grad L_S1(w_i)

    Both see the same samples. u stays with its client and starts at the first w_r it was sent.
    """
    common, towards = fedavg(loss), proximal_step(loss, prox)

    def update(meta: Meta, row: Ema, task: Task, steps: Steps, hyper: Hyper) -> ClientResult:
        def own_step(u: Params, samples: Any) -> tuple[Params, Any]:
            return towards(u, meta, samples, hyper), loss(u, samples)

        u = where(row.visits > 0, row.u, meta)
        u, value = repeat(own_step, u, task.support, steps)
        done = common(meta, (), task, steps, hyper)
        return ClientResult(done.meta, Ema(u, row.visits + 1), value)

    return update
