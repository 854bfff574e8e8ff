"""LocalMOML and Per-FedAvg: H personal steps at each client, with a memory or without."""

import jax.numpy as jnp
from jaxtyping import PyTree

from moml.algorithms.federated.client import ClientResult, Steps, Update
from moml.algorithms.federated.client import local_steps as local
from moml.algorithms.federated.compose import Participation, federated
from moml.algorithms.federated.server import server_optimizer
from moml.algorithms.method import Method, Work, factory
from moml.algorithms.parts.choices import ANY, MEMORY_DTYPES, Inner, Sampling, private_leaves
from moml.algorithms.parts.memory import Ema, ema, none
from moml.algorithms.parts.personal import Step, personal_step
from moml.algorithms.signature import (
    Count,
    MemoryDtype,
    NonNegative,
    Positive,
    PrivateLeaves,
    Transformation,
    Weight,
)
from moml.algorithms.single.matching import match_beta, match_restart
from moml.errors import ConfigError
from moml.types import Adapt, Hyper, Loss, Meta, Task

# What one step of an adaptation costs on the way back: gradients, Hessian-vector products.
WAY_BACK = {"exact": (0, 1), "first-order": (0, 0), "finite-difference": (2, 0)}


def per_fedavg_update(loss: Loss, adapt: Adapt) -> Update:
    """A client's round without memory: H times w_i <- w_i - eta J_A(w_i; S2)' grad L_S3(v).

    v = A(w_i; S1); exact, first-order or Hessian-free by the curvature of `adapt`.
    """
    visit = personal_step(loss, adapt, none())

    def forget(meta: Meta, row: tuple[()], task: Task, hyper: Hyper) -> Step:
        return visit(meta, row, task, hyper)._replace(u=())

    train = local(forget, loss)
    return lambda meta, row, task, steps, hyper: train(meta, (), task, steps, hyper)


def localmoml_update(loss: Loss, adapt: Adapt) -> Update:
    """A client's round with a memory, restarted from S0 where there is one, else carried on.

        u_0 = A(w_r; S0)  (restart)    or what the last round left  (carried)
        H times:  u <- (1 - beta) u + beta A(w_i; S1),   w_i <- w_i - eta J_A(w_i; S2)' grad L_S3(u)

    A restarted memory does not outlive the round: it is not kept.
    """
    visit = personal_step(loss, adapt, ema(0))

    def remember(meta: Meta, row: Ema, task: Task, hyper: Hyper) -> Step:
        step = visit(meta, row, task, hyper)
        return step._replace(u=Ema(step.u, row.visits + 1))

    train = local(remember, loss)

    def update(meta: Meta, row: PyTree, task: Task, steps: Steps, hyper: Hyper) -> ClientResult:
        if task.restart is None:
            done = train(meta, row, task, steps, hyper)
            return done._replace(row=done.row.u)
        u = Ema(adapt.apply(meta, task.restart, hyper), jnp.ones((), jnp.int32))  # u_{r,0}
        return train(meta, u, task._replace(restart=None), steps, hyper)._replace(row=())

    return update


def personal_work(inner: Inner, independent_hessian: bool) -> Work:
    """A(w; S1), the gradient at u', the pull-back through k steps, A(w; S2) if drawn apart."""
    (gradients, products), k = WAY_BACK[inner.curvature], inner.inner_steps
    forward = 2 * k if independent_hessian else k
    return Work(forward + k * gradients + 1, k * products)


@factory
def localmoml(
    loss: Loss,
    *,
    batch: Sampling = ANY,
    shots: Count | None = None,
    test_steps: Count = 1,
    eta: Positive = 0.005,
    beta: Weight | None = None,
    alpha: NonNegative = 0.01,
    restart_samples: Count | None = None,
    carried: bool = False,
    inner: Inner,
    private: PrivateLeaves | None = None,
    optimizer: Transformation | None = None,
    independent_hessian: bool = False,
    memory_dtype: MemoryDtype = "float32",
    clients: Participation,
) -> Method:
    """LocalMOML: H local steps with a memory inside the round, then the mean.

    H times:  u <- (1 - beta) u + beta A(w_i; S1),    w_i <- w_i - eta J_A' grad L_S3(u)

    Parameters
    ----------
    shots : int
        Samples that a user will adapt on. Used to choose beta.
    test_steps : int
        Steps that a user will adapt with. Used to choose beta where carried is true.
    beta : float
        Weight of the newest point in a memory. By default it is matched to shots, by
        `match_restart` or, where carried is true, `moml.match_beta`; 0.3 without shots or with
        local_epochs. 1 is Per-FedAvg.
    restart_samples : int
        Samples of a round's first memory, K0. By default twice k.
    carried : bool
        Whether memories are kept between rounds instead of restarted.

    Examples
    --------
    >>> from moml.methods import localmoml
    >>> localmoml(lambda w, x: (w - x) ** 2, n=10, local_steps=4).algorithm.iterations
    4
    >>> localmoml(lambda w, x: (w - x) ** 2, n=10, k=1, shots=10, carried=True).hyper.beta
    0.18181818181818182
    """
    if carried and restart_samples is not None:
        raise ConfigError("restart_samples must be left out where carried is true")
    if not carried and private is None and memory_dtype != "float32":
        raise ConfigError("memory_dtype must be float32 where carried is false: no memory is kept")
    adaptation = inner.adaptation(loss)
    adapt = adaptation(inner.inner_steps)
    k = clients.k(batch)
    restart = 2 * k if restart_samples is None else restart_samples
    if beta is None:
        if shots is None or clients.local_epochs is not None:
            beta = 0.3
        elif carried:
            beta = match_beta(k, shots, steps=test_steps)
        else:
            h = clients.local_steps
            beta = match_restart(k, shots, local_steps=h, restart_samples=restart)
    work = personal_work(inner, independent_hessian)
    return federated(
        adaptation, localmoml_update(loss, adapt), Hyper(eta=eta, beta=beta, alpha=alpha),
        batch, clients, inner_steps=inner.inner_steps,
        work=work if carried else work._replace(begin=inner.inner_steps),
        query=True, hessian=independent_hessian, restart=0 if carried else restart,
        begin=adapt.start if carried else None, private=private_leaves(private),
        stored=MEMORY_DTYPES[memory_dtype], server=server_optimizer(optimizer),
    )  # fmt: skip


@factory
def per_fedavg(
    loss: Loss,
    *,
    batch: Sampling = ANY,
    eta: Positive = 0.005,
    alpha: NonNegative = 0.01,
    inner: Inner,
    private: PrivateLeaves | None = None,
    optimizer: Transformation | None = None,
    independent_hessian: bool = False,
    clients: Participation,
) -> Method:
    """Per-FedAvg: H local steps of MAML, then the mean.

    H times:  w_i <- w_i - eta J_A(w_i; S2)' grad L_S3(A(w_i; S1));    w = mean w_i

    Examples
    --------
    >>> from moml.methods import per_fedavg
    >>> per_fedavg(lambda w, x: (w - x) ** 2, curvature="first-order").work.products
    0
    """
    adaptation = inner.adaptation(loss)
    return federated(
        adaptation, per_fedavg_update(loss, adaptation(inner.inner_steps)),
        Hyper(eta=eta, alpha=alpha), batch, clients, inner_steps=inner.inner_steps,
        work=personal_work(inner, independent_hessian), query=True, hessian=independent_hessian,
        private=private_leaves(private), server=server_optimizer(optimizer),
    )  # fmt: skip
