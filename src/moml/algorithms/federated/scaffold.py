"""SCAFFOLD: control variates correct the clients' gradients for the drift of local steps."""

import jax
import jax.numpy as jnp
import optax

from moml.algorithms.federated.client import ClientResult, Steps, Update, descend
from moml.algorithms.federated.compose import Participation, federated
from moml.algorithms.federated.server import answered
from moml.algorithms.method import Method, factory
from moml.algorithms.parts.choices import Sampling, Use
from moml.algorithms.parts.memory import Ema
from moml.algorithms.signature import NonNegative, Positive
from moml.types import Answers, Hyper, Loss, Meta, Server, State, Task


def scaffold_update(loss: Loss) -> Update:
    """A client's round: K times w_i <- w_i - eta (grad L_S1(w_i) + c - c_i), then option II.

    c_i <- c_i - c + (w - w_i) / (K eta). c_i stays, its change is sent; K are the steps it did.
    """

    def update(
        meta: Meta, row: Ema, task: Task, steps: Steps, hyper: Hyper, c: State
    ) -> ClientResult:
        drift = optax.tree.sub(c, row.u)
        w, value = descend(loss, meta, task, steps, hyper.eta, pull=lambda w: drift)
        K = len(jax.tree.leaves(task.support)[0]) if steps is None else steps
        rate = lambda x: jnp.asarray(K, x.dtype) * hyper.eta
        change = jax.tree.map(lambda c, w, w_i: (w - w_i) / rate(w) - c, c, meta, w)
        return ClientResult(w, optax.tree.add(row.u, change), value, change)

    return update


def scaffold_server(n: int) -> Server:
    """w <- w + rate (mean w_i - w),  c <- c + |S| / n mean (change of c_i); c is sent with w."""

    def step(c: State, meta: Meta, answers: Answers, hyper: Hyper) -> tuple[Meta, State]:
        share = lambda x: answered(answers).astype(x.dtype) / n
        c = jax.tree.map(lambda c, change: c + share(c) * change, c, answers.extra)
        return optax.incremental_update(answers.mean, meta, hyper.server_rate), c

    return Server(optax.tree.zeros_like, step, extra=lambda c: c)


@factory
def scaffold(
    loss: Loss,
    *,
    batch: Sampling,
    eta: Positive = 0.005,
    alpha: NonNegative = 0.01,
    server_rate: Positive = 1.0,
    use: Use,
    clients: Participation,
) -> Method:
    """SCAFFOLD: FedAvg with control variates against the drift of clients.

    K times:  w_i <- w_i - eta (grad L_S1(w_i) + c - c_i);    c_i <- c_i - c + (w - w_i) / (K eta)

    Parameters
    ----------
    server_rate : float
        How far the server goes towards the mean, the paper's global step size.

    Examples
    --------
    >>> from moml.methods import scaffold
    >>> scaffold(lambda w, x: (w - x) ** 2, n=10).hyper.server_rate
    1.0
    """
    hyper = Hyper(eta=eta, alpha=alpha, server_rate=server_rate)
    return federated(
        use.adaptation(loss), scaffold_update(loss), hyper, batch, clients,
        begin=optax.tree.zeros_like, server=scaffold_server(batch.count),
    )  # fmt: skip
