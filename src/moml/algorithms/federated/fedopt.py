"""FedAvgM, FedAdam and FedYogi: FedAvg's clients, and an optimizer at the server."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool

from moml.algorithms.federated.compose import Participation, federated
from moml.algorithms.federated.fedavg import fedavg_update
from moml.algorithms.method import Method, factory
from moml.algorithms.parts.choices import ANY, Sampling, Use
from moml.algorithms.signature import Below1, Group, NonNegative, Positive
from moml.types import Answers, Hyper, Loss, Meta, Server, State

Second = Callable[[Array, Array, Array], Array]  # v, the squared change, b2 -> the next v


def momentum() -> Server:
    """m <- b1 m + (mean w_i - w),  w <- w + rate m."""

    def step(m: State, meta: Meta, answers: Answers, hyper: Hyper) -> tuple[Meta, State]:
        m = jax.tree.map(lambda m, new, w: hyper.b1 * m + (new - w), m, answers.mean, meta)
        return jax.tree.map(lambda w, m: w + hyper.server_rate * m, meta, m), m

    return Server(optax.tree.zeros_like, step)


class Moments(NamedTuple):
    """What an adaptive server keeps: averages of the change and of its square."""

    m: Meta
    v: Meta
    begun: Bool[Array, ""]  # before that v is tau^2


def adaptive_step(second: Second) -> Server:
    """m <- b1 m + (1 - b1) d,  v <- second(v, d^2),  w <- w + rate m / (sqrt v + tau).

    d = mean w_i - w. v begins at tau^2; neither average is corrected for its start.
    """

    def init(meta: Meta) -> Moments:
        nothing = optax.tree.zeros_like(meta)
        return Moments(nothing, nothing, jnp.zeros((), bool))

    def step(at: Moments, meta: Meta, answers: Answers, hyper: Hyper) -> tuple[Meta, Moments]:
        d = optax.tree.sub(answers.mean, meta)
        m = optax.incremental_update(d, at.m, 1 - hyper.b1)
        v = jax.tree.map(lambda v: jnp.where(at.begun, v, hyper.tau**2), at.v)
        v = jax.tree.map(lambda v, d: second(v, d**2, hyper.b2), v, d)
        move = lambda w, m, v: w + hyper.server_rate * m / (jnp.sqrt(v) + hyper.tau)
        return jax.tree.map(move, meta, m, v), Moments(m, v, jnp.ones((), bool))

    return Server(init, step)


ADAM = adaptive_step(lambda v, d2, b2: b2 * v + (1 - b2) * d2)
YOGI = adaptive_step(lambda v, d2, b2: v - (1 - b2) * d2 * jnp.sign(v - d2))


@dataclass(frozen=True)
class Adaptive(Group):
    """The numbers of an adaptive server."""

    server_rate: Positive = 0.01
    b1: Below1 = 0.9
    b2: Below1 = 0.99
    tau: Positive = 0.001


def _fedopt(
    server: Server, loss: Loss, hyper: Hyper, batch: Sampling, use: Use, clients: Participation
) -> Method:  # fmt: skip
    """FedAvg's clients with this rule of the server."""
    update = fedavg_update(loss)
    return federated(use.adaptation(loss), update, hyper, batch, clients, server=server)


@factory
def fedavgm(
    loss: Loss,
    *,
    batch: Sampling = ANY,
    eta: Positive = 0.005,
    alpha: NonNegative = 0.01,
    server_rate: Positive = 1.0,
    b1: Below1 = 0.9,
    use: Use,
    clients: Participation,
) -> Method:
    """FedAvgM: FedAvg with momentum at the server.

    w_i as in FedAvg;    m <- b1 m + (mean w_i - w),    w <- w + server_rate m

    Parameters
    ----------
    b1 : float
        How much of the momentum stays. 0, with server_rate 1, is FedAvg.

    Examples
    --------
    >>> from moml.methods import fedavgm
    >>> fedavgm(lambda w, x: (w - x) ** 2).hyper
    Hyper(eta=0.005, alpha=0.01, server_rate=1.0, b1=0.9)
    """
    hyper = Hyper(eta=eta, alpha=alpha, server_rate=server_rate, b1=b1)
    return _fedopt(momentum(), loss, hyper, batch, use, clients)


@factory
def fedadam(
    loss: Loss,
    *,
    batch: Sampling = ANY,
    eta: Positive = 0.005,
    alpha: NonNegative = 0.01,
    adaptive: Adaptive,
    use: Use,
    clients: Participation,
) -> Method:
    """FedAdam: FedAvg with Adam at the server.

    w_i as in FedAvg, d = mean w_i - w;    w <- w + server_rate m / (sqrt v + tau)

    m <- b1 m + (1 - b1) d,    v <- b2 v + (1 - b2) d^2

    Examples
    --------
    >>> from moml.methods import fedadam
    >>> fedadam(lambda w, x: (w - x) ** 2).hyper.tau
    0.001
    """
    hyper = Hyper(eta=eta, alpha=alpha, **asdict(adaptive))
    return _fedopt(ADAM, loss, hyper, batch, use, clients)


@factory
def fedyogi(
    loss: Loss,
    *,
    batch: Sampling = ANY,
    eta: Positive = 0.005,
    alpha: NonNegative = 0.01,
    adaptive: Adaptive,
    use: Use,
    clients: Participation,
) -> Method:
    """FedYogi: FedAvg with Yogi at the server.

    w_i as in FedAvg, d = mean w_i - w;    w <- w + server_rate m / (sqrt v + tau)

    m <- b1 m + (1 - b1) d,    v <- v - (1 - b2) d^2 sign(v - d^2)

    Examples
    --------
    >>> from moml.methods import fedyogi
    >>> fedyogi(lambda w, x: (w - x) ** 2, b2=0.9).hyper.b2
    0.9
    """
    hyper = Hyper(eta=eta, alpha=alpha, **asdict(adaptive))
    return _fedopt(YOGI, loss, hyper, batch, use, clients)
