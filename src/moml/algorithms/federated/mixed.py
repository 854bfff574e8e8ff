"""APFL and FedALA: personal models that mix a client's own model with the common one."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from moml.algorithms.federated.client import ClientResult, Steps, Update, descend, renewed, repeat
from moml.algorithms.federated.compose import Participation, federated
from moml.algorithms.federated.server import server_optimizer
from moml.algorithms.method import Method, Work, factory
from moml.algorithms.parts.adapt import Leaves, combine, pick
from moml.algorithms.parts.choices import Sampling, Use, private_leaves
from moml.algorithms.parts.memory import Ema, moving_average
from moml.algorithms.signature import (
    Count,
    NonNegative,
    Positive,
    PrivateLeaves,
    Probability,
    Transformation,
)
from moml.types import Hyper, Loss, Meta, Params, Personal, Samples, Task


class Mixture(NamedTuple):
    """What a client of APFL keeps."""

    v: Params  # its own part
    weight: Float[Array, ""]  # of v in its model


def mixed(own: Mixture, w: Meta) -> Params:
    """The client's model, vbar = a v + (1 - a) w."""
    return moving_average(w, own.v, own.weight)


def apfl_update(loss: Loss, adaptive: bool) -> Update:
    """A client's round, Algorithm 1 of Deng, Kamani and Mahdavi (2020).

        H times, with vbar = a v + (1 - a) w_i:
            w_i <- w_i - eta grad L_S1(w_i)
            v   <- v - eta a grad L_S1(vbar)                  the gradient in v of L_S1(vbar)
            a   <- a - eta <v - w_i, grad L_S1(vbar)>         likewise in a; clipped to [0, 1]

    All are computed from the values before the step. Its loss is that of vbar.
    """

    def update(meta: Meta, row: Ema, task: Task, steps: Steps, hyper: Hyper) -> ClientResult:
        def step(
            at: tuple[Meta, Mixture], samples: Samples
        ) -> tuple[tuple[Meta, Mixture], Float[Array, ""]]:
            w, own = at
            of_mixture = lambda own: loss(mixed(own, w), samples)
            value, slope = jax.value_and_grad(of_mixture)(own)
            down = lambda x, g: x - hyper.eta * g
            new = jax.tree.map(down, own, slope)
            new_w = jax.tree.map(down, w, jax.grad(loss)(w, samples))
            weight = jnp.clip(new.weight, 0, 1) if adaptive else own.weight
            v = renewed(loss, new.v, mixed(own, w), samples)
            return (renewed(loss, new_w, w, samples), Mixture(v, weight)), value

        (w, own), value = repeat(step, (meta, row.u), task.support, steps)
        return ClientResult(w, own, value)

    return update


@factory
def apfl(
    loss: Loss,
    *,
    batch: Sampling,
    eta: Positive = 0.005,
    alpha: NonNegative = 0.01,
    mix: Probability = 0.5,
    adaptive: bool = True,
    use: Use,
    optimizer: Transformation | None = None,
    clients: Participation,
) -> Method:
    """APFL: FedAvg, and a personal model that mixes a client's own with the common one.

    vbar = a v + (1 - a) w_i;    w_i as in FedAvg,  v and a by their gradients of L_S1(vbar)

    Parameters
    ----------
    eta : float
        Step size of the common model, of the clients' own and of their weights.
    mix : float
        The first weight a of a client's own model.
    adaptive : bool
        Whether the weights are learned.

    Examples
    --------
    >>> from moml.methods import apfl
    >>> apfl(lambda w, x: (w - x) ** 2, n=10, mix=0.25).options["mix"]
    0.25
    """
    weight = lambda meta: jnp.full((), mix, jnp.result_type(*jax.tree.leaves(meta)))
    return federated(
        use.adaptation(loss), apfl_update(loss, adaptive), Hyper(eta=eta, alpha=alpha), batch,
        clients, work=Work(2), begin=lambda meta: Mixture(meta, weight(meta)),
        kept=lambda meta, own: mixed(own, meta), server=server_optimizer(optimizer),
    )  # fmt: skip


class Aggregation(NamedTuple):
    """What a client of FedALA keeps."""

    w: Params  # its model at the end of its last round
    weight: Personal  # of the server's leaves in its next one, a number in [0, 1] each


def fedala_update(loss: Loss, upper: Leaves, mix_steps: int) -> Update:
    """A client's round, Algorithm 1 of Zhang et al. (2023); w_i is what its last round left.

    first(W) = w_i + (w - w_i) * W  in the upper leaves,  w  in the others
    for each batch of S0:  W <- W - mix_eta (w - w_i) * grad L_S0(first(W)),  clipped to [0, 1]
    from first(W), H times:  w_i <- w_i - eta grad L_S1(w_i)
    """

    def update(meta: Meta, row: Ema, task: Task, steps: Steps, hyper: Hyper) -> ClientResult:
        own, server = (pick(w, upper(meta)) for w in (row.u.w, meta))

        def first(weight: Personal) -> Params:
            return combine(jax.tree.map(lambda a, b, x: a + (b - a) * x, own, server, weight), meta)

        def step(weight: Personal, samples: Samples) -> tuple[Personal, None]:
            slope = jax.grad(lambda weight: loss(first(weight), samples))(weight)
            down = lambda x, g: jnp.clip(x - hyper.mix_eta * g, 0, 1)
            return jax.tree.map(down, weight, slope), None

        batches = jax.tree.map(lambda x: x.reshape(mix_steps, -1, *x.shape[1:]), task.restart)
        weight, _ = jax.lax.scan(step, row.u.weight, batches)
        w, value = descend(loss, first(weight), task, steps, hyper.eta)
        return ClientResult(w, Aggregation(w, weight), value)

    return update


@factory
def fedala(
    loss: Loss,
    *,
    batch: Sampling,
    eta: Positive = 0.005,
    alpha: NonNegative = 0.01,
    personal: PrivateLeaves = "head",
    mix_eta: NonNegative = 1.0,
    mix_steps: Count = 5,
    use: Use,
    optimizer: Transformation | None = None,
    clients: Participation,
) -> Method:
    """FedALA: FedAvg from a start that each client mixes of its last model and the common one.

    start = w_i + (w - w_i) * W,  W in [0, 1] learned by each client, element by element

    Parameters
    ----------
    personal : str
        The upper leaves, which are mixed, as a regular expression of their names; the others are
        the server's.
    mix_eta : float
        Step size of the weights W.
    mix_steps : int
        Gradient steps on W in a round, each with its own k samples.

    Examples
    --------
    >>> from moml.methods import fedala
    >>> fedala(lambda w, x: (w["head"] - x) ** 2, n=10, k=8).algorithm.needs.restart
    40
    """
    upper = private_leaves(personal, "personal")
    ones = lambda meta: optax.tree.ones_like(pick(meta, upper(meta)))
    return federated(
        use.adaptation(loss), fedala_update(loss, upper, mix_steps),
        Hyper(eta=eta, alpha=alpha, mix_eta=mix_eta), batch, clients,
        work=Work(1, begin=mix_steps), restart=mix_steps * clients.k(batch),
        begin=lambda meta: Aggregation(meta, ones(meta)), kept=lambda meta, u: u.w,
        server=server_optimizer(optimizer),
    )  # fmt: skip
