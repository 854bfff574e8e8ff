"""FedAvg: plain gradient steps at each client, no adaptation in training; and the same alone."""

from jaxtyping import PyTree

from moml.algorithms.federated.client import ClientResult, Steps, Update, descend
from moml.algorithms.federated.compose import Participation, federated
from moml.algorithms.federated.server import server_optimizer
from moml.algorithms.method import Method, factory
from moml.algorithms.parts.adapt import Leaves, all_leaves
from moml.algorithms.parts.choices import ANY, Sampling, Use
from moml.algorithms.signature import NonNegative, Positive, Transformation
from moml.types import Hyper, Loss, Meta, Task


def fedavg_update(loss: Loss, leaves: Leaves = all_leaves) -> Update:
    """A client's round: H times w_i <- w_i - eta grad L_S1(w_i); its loss is that before a step.

    Other leaves than the chosen ones are frozen.
    """

    def update(meta: Meta, row: PyTree, task: Task, steps: Steps, hyper: Hyper) -> ClientResult:
        w, value = descend(loss, meta, task, steps, hyper.eta, leaves=leaves)
        return ClientResult(w, (), value)

    return update


@factory
def fedavg(
    loss: Loss,
    *,
    batch: Sampling = ANY,
    eta: Positive = 0.005,
    alpha: NonNegative = 0.01,
    use: Use,
    optimizer: Transformation | None = None,
    clients: Participation,
) -> Method:
    """FedAvg: H plain gradient steps, then the mean; it adapts only when used.

    H times:  w_i <- w_i - eta grad L_S1(w_i);    w = mean w_i

    Examples
    --------
    >>> from moml.methods import fedavg
    >>> fedavg(lambda w, x: (w - x) ** 2, n=10, tasks_per_step=5).work.gradients
    1
    """
    return federated(
        use.adaptation(loss), fedavg_update(loss), Hyper(eta=eta, alpha=alpha), batch, clients,
        server=server_optimizer(optimizer),
    )  # fmt: skip


@factory
def local(
    loss: Loss,
    *,
    batch: Sampling,
    eta: Positive = 0.005,
    alpha: NonNegative = 0.01,
    use: Use,
    clients: Participation,
) -> Method:
    """Local: each client trains a model alone, and nothing travels.

    H times:  u_i <- u_i - eta grad L_S1(u_i);    u_i begins as the first model

    Examples
    --------
    >>> from moml.methods import local
    >>> local(lambda w, x: (w - x) ** 2, n=10).algorithm.rounds.shared({"w": 1.0})
    {'w': None}
    """
    return federated(
        use.adaptation(loss), fedavg_update(loss), Hyper(eta=eta, alpha=alpha), batch, clients,
        private=all_leaves,
    )  # fmt: skip
