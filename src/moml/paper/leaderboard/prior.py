"""FedPrior: FedAvg in which every client knows its own classes' frequencies.

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
from moml.algorithms.parts.memory import Ema
from moml.algorithms.signature import Positive
from moml.types import Hyper, Loss, Meta, Params, Samples, Task

LogPrior = Float[Array, " classes"]


class Own(NamedTuple):
    """What a client keeps: log p, and the model that its last round left, or ()."""

    log_prior: LogPrior
    w: Params


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


def fedprior_update(loss: Loss, own: bool) -> Update:
    """A client's round: H times w_i <- w_i - eta grad L_S1(w_i with log p added to its logits)."""

    def update(meta: Meta, row: Ema, task: Task, steps: Steps, hyper: Hyper) -> ClientResult:
        bias = head_of(meta).bias
        p = log_prior(task.support, steps, len(bias), jnp.asarray(hyper.smoothing, bias.dtype))
        on_logits = lambda w, samples: loss(shifted(w, p), samples)
        w, value = descend(on_logits, meta, task, steps, hyper.eta)
        return ClientResult(w, Own(p, w if own else ()), value)

    return update


@factory
def fedprior(
    loss: Loss,
    *,
    batch: Sampling,
    eta: Positive = 0.005,
    smoothing: Positive = 1.0,
    own: bool = False,
    use: Use,
    clients: Participation,
) -> Method:
    """FedPrior: FedAvg on logits to which each client adds the logarithm of its class frequencies.

    L_i(w) = CE(softmax(W f(x) + b + log p_i), y);    w = mean w_i;    client i uses w and log p_i

    The common model then need not learn any client's frequencies: the balanced softmax of Ren et
    al. (2020), which FedRoD's common head has too, used with the prior at prediction.

    Parameters
    ----------
    smoothing : float
        What is added to the count of every class.
    own : bool
        Whether a client uses the model that its own last round left, instead of the server's.

    Examples
    --------
    >>> import moml
    >>> net = moml.mlp(2, 8, 3)
    >>> fedprior(moml.cross_entropy(net.predict), n=10).hyper.smoothing
    1.0
    """
    kept = lambda meta, row: shifted(row.w if own else meta, row.log_prior)
    begin = lambda meta: Own(jnp.zeros_like(head_of(meta).bias), meta if own else ())
    return federated(
        use.adaptation(loss), fedprior_update(loss, own), Hyper(eta=eta, smoothing=smoothing),
        batch, clients, inner_steps=use.inner_steps, begin=begin, kept=kept,
    )  # fmt: skip
