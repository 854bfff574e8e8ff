"""FedPrior: FedAvg in which every client knows its own classes' frequencies, and has a memory.

A composition of the leaderboard, written as a user would write a method of their own.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from moml.algorithms.federated.client import ClientResult, Steps, Update, descend
from moml.algorithms.federated.compose import Participation, federated
from moml.algorithms.method import Method, factory
from moml.algorithms.parts.choices import Sampling, Use
from moml.algorithms.parts.heads import LinearHead, head_of, with_head
from moml.algorithms.parts.memory import Ema, first_touch, moving_average
from moml.algorithms.signature import NonNegative, Positive, Probability, Weight
from moml.types import Hyper, Loss, Meta, Params, Samples, Task

LogPrior = Float[Array, " classes"]


class Own(NamedTuple):
    """What a client keeps: log p, and the moving average of its models."""

    log_prior: LogPrior
    u: Params


def shifted(params: Params, log_prior: LogPrior) -> Params:
    """The same network with log p added to its logits."""
    head = head_of(params)
    return with_head(params, head_of, LinearHead(head.weight, head.bias + log_prior))


def log_prior(samples: Samples, steps: Steps, classes: int, smoothing: Array) -> LogPrior:
    """log (n_c + s) / (n + C s), from the labels of the batches that a client trains on."""
    labels: Int[Array, " h k"] = samples.y
    real = jnp.ones(labels.shape, bool) if samples.mask is None else samples.mask
    if steps is not None:
        real &= (jnp.arange(len(labels), dtype=steps.dtype) < steps)[:, None]
    found = jnp.where(real[..., None], jax.nn.one_hot(labels, classes, dtype=smoothing.dtype), 0)
    counts = found.sum(axis=(0, 1)) + smoothing
    return jnp.log(counts / counts.sum())


def fedprior_update(loss: Loss) -> Update:
    """A client's round: H times w_i <- w_i - eta (grad L_S1(w_i) + decay w_i), then its memory.

    L_S1 is that of the model with log p added to its logits.
    """

    def update(meta: Meta, row: Ema, task: Task, steps: Steps, hyper: Hyper) -> ClientResult:
        bias = head_of(meta).bias
        p = log_prior(task.support, steps, len(bias), jnp.asarray(hyper.smoothing, bias.dtype))
        on_logits = lambda w, samples: loss(shifted(w, p), samples)
        decay = lambda w: jax.tree.map(lambda w: hyper.decay * w, w)
        w, value = descend(on_logits, meta, task, steps, hyper.eta, pull=decay)
        u = moving_average(row.u.u, w, first_touch(row.visits, hyper.beta))
        return ClientResult(w, Own(p, u), value)

    return update


@factory
def fedprior(
    loss: Loss,
    *,
    batch: Sampling,
    eta: Positive = 0.005,
    smoothing: Positive = 1.0,
    decay: NonNegative = 0.0,
    beta: Weight = 1.0,
    mix: Probability = 0.0,
    use: Use,
    clients: Participation,
) -> Method:
    """FedPrior: FedAvg on logits to which each client adds the logarithm of its class frequencies.

    L_i(w) = CE(softmax(W f(x) + b + log p_i), y);    w = mean w_i;    u_i as in FedAvg-memory

    Client i uses (1 - mix) w + mix u_i with log p_i. The common model need not learn any client's
    frequencies: the balanced softmax of Ren et al. (2020), which FedRoD's common head has too, used
    with the prior at prediction.

    Parameters
    ----------
    smoothing : float
        What is added to the count of every class.
    decay : float
        Weight decay of the local steps.
    beta : float
        Weight of the newest model in a client's memory u_i.
    mix : float
        Weight of the memory in the model that a client uses.

    Examples
    --------
    >>> import moml
    >>> net = moml.mlp(2, 8, 3)
    >>> fedprior(moml.cross_entropy(net.predict), n=10).hyper.smoothing
    1.0
    """
    kept = lambda meta, row: shifted(moving_average(meta, row.u, mix), row.log_prior)
    begin = lambda meta: Own(jnp.zeros_like(head_of(meta).bias), meta)
    hyper = Hyper(eta=eta, smoothing=smoothing, decay=decay, beta=beta)
    return federated(
        use.adaptation(loss), fedprior_update(loss), hyper, batch, clients,
        inner_steps=use.inner_steps, begin=begin, kept=kept,
    )  # fmt: skip
