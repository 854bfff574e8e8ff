"""FedAvg: plain gradient steps at each client, no adaptation in training."""

import jax

from moml.algorithms.federated.rounds import Participation, Update, rounds, server_optimizer
from moml.algorithms.federated.rounds import local_steps as local
from moml.algorithms.method import Method, Work, factory
from moml.algorithms.parts.adapt import all_leaves
from moml.algorithms.parts.choices import ANY, Sampling, by_steps
from moml.algorithms.parts.memory import none
from moml.algorithms.parts.personal import Step
from moml.algorithms.signature import Chosen, Count, NonNegative, Positive, Transformation
from moml.types import Hyper, Loss, Meta, Task


def fedavg_update(loss: Loss) -> Update:
    """A client's round: H times w_i <- w_i - eta grad L_S1(w_i); its loss is that before a step."""

    def gradient_step(meta: Meta, row: tuple[()], task: Task, hyper: Hyper) -> Step:
        value, grad = jax.value_and_grad(loss)(meta, task.support)
        return Step(row, grad, value)

    return local(gradient_step)


@factory
def fedavg(
    loss: Loss,
    *,
    batch: Sampling = ANY,
    local_steps: Count = 5,
    eta: Positive = 0.005,
    alpha: NonNegative = 0.01,
    inner_steps: Count = 1,
    leaves: Chosen = all_leaves,
    optimizer: Transformation | None = None,
    clients: Participation,
) -> Method:
    """FedAvg: H plain gradient steps, then the mean; it adapts only when used.

    H times:  w_i <- w_i - eta grad L_S1(w_i);    w = mean w_i

    Parameters
    ----------
    eta : float
        Step size of the clients.
    alpha : float
        Step size of the adaptation when the model is used.
    inner_steps : int
        Gradient steps of the adaptation when the model is used.

    Examples
    --------
    >>> from moml.methods import fedavg
    >>> fedavg(lambda w, x: (w - x) ** 2, n=10, tasks_per_step=5).work.gradients
    1
    """
    adaptation = by_steps(loss, curvature="first-order", leaves=leaves)
    algorithm = rounds(
        adaptation(inner_steps).init, fedavg_update(loss), clients.samples(batch, local_steps),
        server=server_optimizer(optimizer), at_once=clients.at_once,
    )  # fmt: skip
    hyper, used = Hyper(eta=eta, alpha=alpha), {"tasks_per_step": batch.size}
    return Method(algorithm, adaptation, hyper, none(), Work(1), used)
