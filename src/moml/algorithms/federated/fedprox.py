"""FedProx and FedDyn: local steps that a proximal term keeps near the model that was sent."""

import jax
import optax
from jaxtyping import PyTree

from moml.algorithms.federated.client import ClientResult, Steps, Update, descend, near
from moml.algorithms.federated.compose import Participation, federated
from moml.algorithms.federated.server import answered, server_optimizer
from moml.algorithms.method import Method, factory
from moml.algorithms.parts.choices import ANY, Sampling, Use
from moml.algorithms.parts.memory import Ema
from moml.algorithms.signature import NonNegative, Positive, Transformation
from moml.types import Answers, Hyper, Loss, Meta, Server, State, Task


def fedprox_update(loss: Loss) -> Update:
    """A client's round: H times w_i <- w_i - eta (grad L_S1(w_i) + prox (w_i - w))."""

    def update(meta: Meta, row: PyTree, task: Task, steps: Steps, hyper: Hyper) -> ClientResult:
        pull = near(meta, hyper.prox)
        w, value = descend(loss, meta, task, steps, hyper.eta, pull=pull)
        return ClientResult(w, (), value)

    return update


def feddyn_update(loss: Loss) -> Update:
    """A client's round: FedProx's with -h_i added to gradients, then h_i <- h_i - prox (w_i - w).

    h_i is the gradient of the client's own loss at its last model, were its steps exact.
    """

    def update(meta: Meta, row: Ema, task: Task, steps: Steps, hyper: Hyper) -> ClientResult:
        away = near(meta, hyper.prox)
        pull = lambda w: optax.tree.sub(away(w), row.u)
        w, value = descend(loss, meta, task, steps, hyper.eta, pull=pull)
        return ClientResult(w, optax.tree.sub(row.u, away(w)), value)

    return update


def feddyn_server(n: int) -> Server:
    """h <- h - prox / n sum (w_i - w),  w <- mean w_i - h / prox."""

    def step(h: State, meta: Meta, answers: Answers, hyper: Hyper) -> tuple[Meta, State]:
        share = lambda x: answered(answers).astype(x.dtype) / n
        move = lambda h, new, w: h - hyper.prox * share(h) * (new - w)
        h = jax.tree.map(move, h, answers.mean, meta)
        return jax.tree.map(lambda w, h: w - h / hyper.prox, answers.mean, h), h

    return Server(optax.tree.zeros_like, step)


@factory
def fedprox(
    loss: Loss,
    *,
    batch: Sampling = ANY,
    eta: Positive = 0.005,
    alpha: NonNegative = 0.01,
    prox: NonNegative = 0.1,
    use: Use,
    optimizer: Transformation | None = None,
    clients: Participation,
) -> Method:
    """FedProx: FedAvg with local steps that are pulled to the common model.

    H times:  w_i <- w_i - eta (grad L_S1(w_i) + mu (w_i - w));    w = mean w_i

    Parameters
    ----------
    prox : float
        The pull towards the common model, mu. 0 is FedAvg.

    Examples
    --------
    >>> from moml.methods import fedprox
    >>> fedprox(lambda w, x: (w - x) ** 2, prox=0.01).hyper
    Hyper(eta=0.005, alpha=0.01, prox=0.01)
    """
    hyper = Hyper(eta=eta, alpha=alpha, prox=prox)
    return federated(
        use.adaptation(loss), fedprox_update(loss), hyper, batch, clients,
        server=server_optimizer(optimizer),
    )  # fmt: skip


@factory
def feddyn(
    loss: Loss,
    *,
    batch: Sampling,
    eta: Positive = 0.005,
    alpha: NonNegative = 0.01,
    prox: Positive = 0.1,
    use: Use,
    clients: Participation,
) -> Method:
    """FedDyn: FedProx with linear terms that move the clients' optima to the common one.

    H times:  w_i <- w_i - eta (grad L_S1(w_i) - h_i + a (w_i - w));    h_i <- h_i - a (w_i - w)

    The server:  h <- h - a / n sum (w_i - w),    w = mean w_i - h / a

    Parameters
    ----------
    prox : float
        The pull towards the common model, a; the paper's alpha.

    Examples
    --------
    >>> from moml.methods import feddyn
    >>> feddyn(lambda w, x: (w - x) ** 2, n=10).hyper.prox
    0.1
    """
    hyper = Hyper(eta=eta, alpha=alpha, prox=prox)
    return federated(
        use.adaptation(loss), feddyn_update(loss), hyper, batch, clients,
        begin=optax.tree.zeros_like, server=feddyn_server(batch.count),
    )  # fmt: skip
