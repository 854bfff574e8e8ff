"""FedAvg whose clients keep moving averages of the models that their rounds end with."""

from moml.algorithms.federated.client import ClientResult, Steps, Update
from moml.algorithms.federated.compose import Participation, federated
from moml.algorithms.federated.fedavg import fedavg_update
from moml.algorithms.federated.server import server_optimizer
from moml.algorithms.method import Method, factory
from moml.algorithms.parts.choices import Sampling, Use
from moml.algorithms.parts.memory import Ema, first_touch, moving_average
from moml.algorithms.signature import NonNegative, Positive, Probability, Transformation, Weight
from moml.types import Hyper, Loss, Meta, Task


def remembering(update: Update) -> Update:
    """The same update at a client that keeps u_i <- (1 - beta) u_i + beta w_i; u_i = w_i at first.

    The update itself must keep nothing; what it sends is unchanged.
    """

    def with_memory(meta: Meta, row: Ema, task: Task, steps: Steps, hyper: Hyper) -> ClientResult:
        done = update(meta, (), task, steps, hyper)
        beta = first_touch(row.visits, hyper.beta)
        return done._replace(row=moving_average(row.u, done.meta, beta))

    return with_memory


@factory
def fedavg_memory(
    loss: Loss,
    *,
    batch: Sampling,
    eta: Positive = 0.005,
    alpha: NonNegative = 0.01,
    beta: Weight = 0.1,
    mix: Probability = 1.0,
    use: Use,
    optimizer: Transformation | None = None,
    clients: Participation,
) -> Method:
    """FedAvg-memory: FedAvg, and at each client a moving average of its own models.

    u_i <- (1 - beta) u_i + beta w_i;    w_i and w as in FedAvg;    i uses (1 - mix) w + mix u_i

    Training and what travels are FedAvg's. A model that has just been trained on a client's data
    is the client's own, but has the noise of its last steps; the average keeps the first and loses
    the second.

    Parameters
    ----------
    beta : float
        Weight of the newest model in a client's memory. 1 is the model of its last round.
    mix : float
        Weight of the memory in the model that a client uses; the server's model has the rest.

    Examples
    --------
    >>> from moml.methods import fedavg_memory
    >>> fedavg_memory(lambda w, x: (w - x) ** 2, n=10).hyper
    Hyper(eta=0.005, alpha=0.01, beta=0.1)
    """
    return federated(
        use.adaptation(loss), remembering(fedavg_update(loss)),
        Hyper(eta=eta, alpha=alpha, beta=beta), batch, clients,
        begin=lambda meta: meta, kept=lambda meta, u: moving_average(meta, u, mix),
        server=server_optimizer(optimizer),
    )  # fmt: skip
