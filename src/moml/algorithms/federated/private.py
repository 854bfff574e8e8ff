"""FedAvg with leaves that clients keep or freeze: FedPer, LG-FedAvg, FedBN, FedRep, FedBABU."""

import jax
from jaxtyping import PyTree

from moml.algorithms.federated.client import ClientResult, Steps, Update, descend, others
from moml.algorithms.federated.compose import Participation, federated
from moml.algorithms.federated.fedavg import fedavg_update
from moml.algorithms.federated.server import server_optimizer
from moml.algorithms.method import Method, Work, factory, variant
from moml.algorithms.parts.adapt import Leaves
from moml.algorithms.parts.choices import ANY, Sampling, Use, private_leaves
from moml.algorithms.signature import Count, NonNegative, Positive, PrivateLeaves, Transformation
from moml.types import Hyper, Loss, Meta, Task


@factory
def fedper(
    loss: Loss,
    *,
    batch: Sampling,
    eta: Positive = 0.005,
    alpha: NonNegative = 0.01,
    private: PrivateLeaves = "head",
    use: Use,
    optimizer: Transformation | None = None,
    clients: Participation,
) -> Method:
    """FedPer: FedAvg of the body; every client keeps a head of its own.

    H times:  (b_i, h_i) <- (b_i, h_i) - eta grad L_S1(b_i, h_i);    b = mean b_i,  h_i is kept

    Parameters
    ----------
    private : str
        Leaves that stay at their client, as a regular expression of their names.

    Examples
    --------
    >>> from moml.methods import fedper
    >>> fedper(lambda w, x: (w["head"] - x) ** 2, n=10).options["private"]
    'head'
    """
    return federated(
        use.adaptation(loss), fedavg_update(loss), Hyper(eta=eta, alpha=alpha), batch, clients,
        private=private_leaves(private), server=server_optimizer(optimizer),
    )  # fmt: skip


@variant(fedper, {}, private="^(?!.*head)")
def lg_fedavg() -> None:
    """LG-FedAvg: FedAvg of the head; every client keeps a body of its own.

    H times:  (b_i, h_i) <- (b_i, h_i) - eta grad L_S1(b_i, h_i);    h = mean h_i,  b_i is kept

    Parameters
    ----------
    private : str
        Leaves that stay at their client, as a regular expression of their names. By default those
        without "head" in their names.

    Examples
    --------
    >>> from moml.methods import lg_fedavg
    >>> lg_fedavg(lambda w, x: (w["head"] - x) ** 2, n=10).options["private"]
    '^(?!.*head)'
    """


@variant(fedper, {}, private="norm|scale|offset")
def fedbn() -> None:
    """FedBN: FedAvg of all but the normalisation layers, which stay at their client.

    H times:  w_i <- w_i - eta grad L_S1(w_i);    all but its norm leaves are averaged

    Parameters
    ----------
    private : str
        Leaves that stay at their client, as a regular expression of their names: those of the
        normalisation, its statistics too.

    Examples
    --------
    >>> from moml.methods import fedbn
    >>> fedbn(lambda w, x: (w["norm"] - x) ** 2, n=10).name
    'fedbn'
    """


def fedrep_update(loss: Loss, head: Leaves, head_passes: int) -> Update:
    """A client's round: the head with the body frozen, then the body with the head frozen.

        `head_passes` times H:  h_i <- h_i - eta grad_h L_S1(b, h_i)
        H times:                b_i <- b_i - eta grad_b L_S1(b_i, h_i)

    All passes are over the same H batches; its loss is that of the last pass, before each step.
    """

    def update(meta: Meta, row: PyTree, task: Task, steps: Steps, hyper: Hyper) -> ClientResult:
        of_head = lambda _, w: descend(loss, w, task, steps, hyper.eta, leaves=head)[0]
        w = jax.lax.fori_loop(0, head_passes, of_head, meta)
        w, value = descend(loss, w, task, steps, hyper.eta, leaves=others(head))
        return ClientResult(w, (), value)

    return update


@factory
def fedrep(
    loss: Loss,
    *,
    batch: Sampling,
    eta: Positive = 0.005,
    alpha: NonNegative = 0.01,
    private: PrivateLeaves = "head",
    head_passes: Count = 1,
    use: Use,
    optimizer: Transformation | None = None,
    clients: Participation,
) -> Method:
    """FedRep: each client fits its own head first, then the common body.

    h_i <- h_i - eta grad_h L_S1(b, h_i),  then  b_i <- b_i - eta grad_b L_S1(b_i, h_i);
    b = mean b_i,  h_i is kept

    Parameters
    ----------
    private : str
        The head: leaves that stay at their client, as a regular expression of their names.
    head_passes : int
        Passes of the head over the round's batches, before the one of the body.

    Examples
    --------
    >>> from moml.methods import fedrep
    >>> fedrep(lambda w, x: (w["head"] - x) ** 2, n=10, head_passes=10).work.gradients
    11
    """
    head = private_leaves(private)
    return federated(
        use.adaptation(loss), fedrep_update(loss, head, head_passes),
        Hyper(eta=eta, alpha=alpha), batch, clients,
        work=Work(1 + head_passes), private=head, server=server_optimizer(optimizer),
    )  # fmt: skip


@factory
def fedbabu(
    loss: Loss,
    *,
    batch: Sampling = ANY,
    eta: Positive = 0.005,
    alpha: NonNegative = 0.01,
    frozen: PrivateLeaves = "head",
    use: Use,
    optimizer: Transformation | None = None,
    clients: Participation,
) -> Method:
    """FedBABU: FedAvg of the body with the head as it began; all is fine-tuned when used.

    H times:  b_i <- b_i - eta grad_b L_S1(b_i, h_0);    b = mean b_i

    Parameters
    ----------
    frozen : str
        Leaves that are not trained and do not travel, as a regular expression of their names.

    Examples
    --------
    >>> from moml.methods import fedbabu
    >>> fedbabu(lambda w, x: (w["head"] - x) ** 2, n=10).hyper
    Hyper(eta=0.005, alpha=0.01)
    """
    head = private_leaves(frozen, "frozen")
    return federated(
        use.adaptation(loss), fedavg_update(loss, others(head)), Hyper(eta=eta, alpha=alpha),
        batch, clients, frozen=head, server=server_optimizer(optimizer),
    )  # fmt: skip
