"""The federated methods as options describe them, and what a round of each asks of a client."""

from typing import NamedTuple

from moml.algorithms.federated.fedavg import fedavg
from moml.algorithms.federated.local import localmoml, per_fedavg
from moml.algorithms.federated.pfedme import ditto, pfedme
from moml.algorithms.federated.rounds import rounds, towards_mean
from moml.algorithms.options import MEMORY_DTYPES, WAY_BACK, Options, number_of_tasks
from moml.algorithms.parts import memory as memories
from moml.types import Adapt, Algorithm, Loss, Memory, Need

Parts = tuple[Algorithm, Memory]


class Work(NamedTuple):
    """Gradient evaluations of one client, on a batch each."""

    gradients: int  # in a local step
    products: int = 0  # Hessian-vector products in a local step
    begin: int = 0  # gradients at the start of a round


def _need(o: Options, *, query: int = 0, hessian: int = 0, restart: int = 0) -> Need:
    return Need(
        o.tasks_per_step,
        support=o.k,
        query=query,
        hessian=hessian,
        restart=restart,
        visits=o.local_steps,
        dropout=o.dropout,
        straggle=o.straggle,
        weighted=o.weighted,
    )


def _personal_need(o: Options, restart: int = 0) -> Need:
    return _need(o, query=o.k, hessian=o.k if o.independent_hessian else 0, restart=restart)


def _restart(o: Options) -> int:
    return 2 * o.k if o.restart_samples is None else o.restart_samples


def with_memory(loss: Loss, adapt: Adapt, o: Options) -> Parts:
    """LocalMOML."""
    update = localmoml(loss, adapt)
    if not o.carried:
        need = _personal_need(o, _restart(o))
        return rounds(adapt.init, update, need, at_once=o.at_once), memories.none()
    stored = MEMORY_DTYPES[o.memory_dtype]
    kept = stored.memory(memories.ema(number_of_tasks(o)))
    store = lambda meta: kept.init(adapt.start(meta))
    need = _personal_need(o)
    return rounds(adapt.init, update, need, store=store, rows=stored.rows, at_once=o.at_once), kept


def without_memory(loss: Loss, adapt: Adapt, o: Options) -> Parts:
    """Per-FedAvg."""
    update = per_fedavg(loss, adapt)
    return rounds(adapt.init, update, _personal_need(o), at_once=o.at_once), memories.none()


def without_adaptation(loss: Loss, adapt: Adapt, o: Options) -> Parts:
    """FedAvg."""
    return rounds(adapt.init, fedavg(loss), _need(o), at_once=o.at_once), memories.none()


def by_subproblems(loss: Loss, adapt: Adapt, o: Options) -> Parts:
    """pFedMe."""
    update, server = pfedme(loss, o.prox, o.prox_steps), towards_mean(o.server_rate)
    made = rounds(adapt.init, update, _need(o), server=server, at_once=o.at_once)
    return made, memories.none()


def with_own_models(loss: Loss, adapt: Adapt, o: Options) -> Parts:
    """Ditto: what a client keeps is its whole model, whichever leaves adapt."""
    kept, update = memories.ema(number_of_tasks(o)), ditto(loss, o.prox)
    return rounds(adapt.init, update, _need(o), store=kept.init, at_once=o.at_once), kept


def personal_work(o: Options) -> Work:
    """A(w; S1), the gradient at u', the pull-back through k steps, A(w; S2) if drawn apart."""
    k, (gradients, products) = o.inner_steps, WAY_BACK[o.curvature]
    forward = 2 * k if o.independent_hessian else k
    return Work(forward + k * gradients + 1, k * products)


def memory_work(o: Options) -> Work:
    """The same, and the adaptation that restarts a memory."""
    return personal_work(o)._replace(begin=0 if o.carried else o.inner_steps)
