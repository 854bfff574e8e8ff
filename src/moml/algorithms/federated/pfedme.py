"""pFedMe and Ditto: personal models that a proximal term keeps near the common one."""

import warnings

import jax

from moml.algorithms.federated.client import ClientResult, Steps, Update, descend, near
from moml.algorithms.federated.client import local_steps as local
from moml.algorithms.federated.compose import Participation, federated
from moml.algorithms.federated.fedavg import fedavg_update
from moml.algorithms.federated.server import server_optimizer, towards_mean
from moml.algorithms.method import Method, Work, factory
from moml.algorithms.parts.choices import ANY, Sampling, Use
from moml.algorithms.parts.memory import Ema
from moml.algorithms.parts.personal import Step
from moml.algorithms.signature import Count, NonNegative, Positive, Transformation, Weight
from moml.errors import MomlWarning
from moml.types import Hyper, Loss, Meta, Params, Samples, Task


def proximal_step(loss: Loss, p: Params, w: Meta, samples: Samples, hyper: Hyper) -> Params:
    """One step on L_S(p) + prox/2 |p - w|^2:  p <- p - alpha (grad L_S(p) + prox (p - w))."""
    step = lambda p, g, w: p - hyper.alpha * (g + hyper.prox * (p - w))
    return jax.tree.map(step, p, jax.grad(loss)(p, samples), w)


def pfedme_update(loss: Loss, prox_steps: int) -> Update:
    """A client's round: H times theta near w_i, then w_i towards theta; `hyper.prox` is lambda.

        R times from theta = w_i:  theta <- theta - alpha (grad L_S1(theta) + lambda (theta - w_i))
        w_i <- w_i - eta lambda (w_i - theta)

    One batch a subproblem, the gradient anew at each of its R steps; its loss is that at theta.
    """

    def subproblem(meta: Meta, row: tuple[()], task: Task, hyper: Hyper) -> Step:
        step = lambda theta, _: (proximal_step(loss, theta, meta, task.support, hyper), None)
        theta = jax.lax.scan(step, meta, length=prox_steps)[0]
        delta = jax.tree.map(lambda w, t: hyper.prox * (w - t), meta, theta)  # of the envelope
        return Step(row, delta, loss(theta, task.support))

    return local(subproblem, loss)


def ditto_update(loss: Loss) -> Update:
    """A client's round: FedAvg's for w_i, and as many steps of a personal u near the w_r it got.

        H times:  u <- u - alpha (grad L_S1(u) + prox (u - w_r)),   w_i <- w_i - eta grad L_S1(w_i)

    Both see the same samples. u stays with its client and starts at the first w_r it got.
    """
    common = fedavg_update(loss)

    def update(meta: Meta, row: Ema, task: Task, steps: Steps, hyper: Hyper) -> ClientResult:
        pull = near(meta, hyper.prox)
        u, value = descend(loss, row.u, task, steps, hyper.alpha, pull=pull)
        return common(meta, (), task, steps, hyper)._replace(row=u, loss=value)

    return update


@factory
def pfedme(
    loss: Loss,
    *,
    batch: Sampling = ANY,
    eta: Positive = 0.005,
    alpha: NonNegative = 0.01,
    prox: Positive = 15.0,
    prox_steps: Count = 50,
    server_rate: Weight = 1.0,
    use: Use,
    clients: Participation,
) -> Method:
    """pFedMe: towards personal models that a proximal term keeps near.

    theta = argmin L_S1(theta) + lambda/2 |theta - w_i|^2,    w_i <- w_i - eta lambda (w_i - theta)

    Parameters
    ----------
    alpha : float
        Step size of the subproblem, and of the adaptation when the model is used.
    prox : float
        The pull towards the common model, lambda. From alpha * prox = 1 on, theta is never more
        than one gradient step from w_i, however many steps there are: a warning.
    prox_steps : int
        Gradient steps on a subproblem, R.
    server_rate : float
        How far the server goes towards the mean, beta_s.

    Examples
    --------
    >>> from moml.methods import pfedme
    >>> pfedme(lambda w, x: (w - x) ** 2, prox=20.0).hyper.prox
    20.0
    """
    if alpha * prox >= 1:
        text = f"alpha * prox must be below 1 for more than one step's work; got {alpha * prox:g}"
        warnings.warn(f"pfedme: {text}", MomlWarning, stacklevel=4)
    hyper = Hyper(eta=eta, alpha=alpha, prox=prox, server_rate=server_rate)
    return federated(
        use.adaptation(loss), pfedme_update(loss, prox_steps), hyper, batch, clients,
        work=Work(prox_steps), server=towards_mean(),
    )  # fmt: skip


@factory
def ditto(
    loss: Loss,
    *,
    batch: Sampling,
    eta: Positive = 0.005,
    alpha: NonNegative = 0.01,
    prox: Positive = 1.0,
    use: Use,
    optimizer: Transformation | None = None,
    clients: Participation,
) -> Method:
    """Ditto: FedAvg, and a personal model at each client that is kept near.

    H times:  u_i <- u_i - alpha (grad L_S1(u_i) + lambda (u_i - w));    w as in FedAvg

    Parameters
    ----------
    alpha : float
        Step size of the personal models, and of the adaptation when the model is used.
    prox : float
        The pull towards the common model, lambda.

    Examples
    --------
    >>> from moml.methods import ditto
    >>> ditto(lambda w, x: (w - x) ** 2, n=10).hyper
    Hyper(eta=0.005, alpha=0.01, prox=1.0)
    """
    return federated(  # a client keeps its whole model, whichever leaves adapt
        use.adaptation(loss), ditto_update(loss), Hyper(eta=eta, alpha=alpha, prox=prox), batch,
        clients, work=Work(2), begin=lambda meta: meta, kept=lambda meta, u: u,
        server=server_optimizer(optimizer),
    )  # fmt: skip
