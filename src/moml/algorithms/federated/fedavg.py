"""FedAvg: plain gradient steps at each client, no adaptation in training."""

import jax

from moml.algorithms.federated.rounds import (
    Update,
    client_samples,
    rounds,
    server_optimizer,
)
from moml.algorithms.federated.rounds import local_steps as local
from moml.algorithms.method import Method, Work, factory
from moml.algorithms.parts.adapt import all_leaves
from moml.algorithms.parts.choices import batch_size, by_steps
from moml.algorithms.parts.memory import none
from moml.algorithms.parts.personal import Step
from moml.algorithms.signature import (
    Below1,
    Chosen,
    Count,
    NonNegative,
    Positive,
    Probability,
    Transformation,
)
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
    n: Count | None = None,
    k: Count = 1,
    tasks_per_step: Count | None = None,
    local_steps: Count = 5,
    eta: Positive = 0.005,
    alpha: NonNegative = 0.01,
    inner_steps: Count = 1,
    leaves: Chosen = all_leaves,
    optimizer: Transformation | None = None,
    dropout: Below1 = 0.0,
    straggle: Probability = 0.0,
    weighted: bool = False,
    at_once: Count | None = None,
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
    b = batch_size("tasks_per_step", tasks_per_step, 3, n)
    samples = client_samples(b, k, local_steps, dropout, straggle, weighted)
    algorithm = rounds(
        adaptation(inner_steps).init, fedavg_update(loss), samples,
        server=server_optimizer(optimizer), at_once=at_once,
    )  # fmt: skip
    hyper = Hyper(eta=eta, alpha=alpha)
    return Method(algorithm, adaptation, hyper, none(), Work(1), {"tasks_per_step": b})
