"""FedDBE: a vector of each client's own is added to the features, whose mean is held in place."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from moml.algorithms.federated.client import ClientResult, Steps, Update, renewed, repeat, where
from moml.algorithms.federated.compose import Participation, federated
from moml.algorithms.federated.server import server_optimizer
from moml.algorithms.method import Method, factory
from moml.algorithms.parts.choices import Sampling, Use
from moml.algorithms.parts.heads import LinearHead, head_of, with_head
from moml.algorithms.parts.memory import Ema
from moml.algorithms.signature import Function, NonNegative, Positive, Transformation
from moml.errors import ConfigError
from moml.models.losses import masked_mean
from moml.types import Answers, Hyper, Loss, Meta, Params, Samples, Server, State, Task

Vector = Float[Array, " inputs"]  # of the head


class GlobalMean(NamedTuple):
    """What travels besides w: the clients' mean features, 0 before the first round is over."""

    z: Vector
    known: Float[Array, ""]  # 0 or 1


def shifted(params: Params, m: Vector) -> Params:
    """The same network with m added to its features: a linear head with bias b + W m."""
    head = head_of(params)
    return with_head(params, head_of, LinearHead(head.weight, head.bias + head.weight @ m))


def mean_features(
    features: Callable[[Params, Array], Array], w: Params, samples: Samples
) -> Vector:
    """The mean of f(x) over the real samples of a batch."""
    found, inputs = features(w, samples.x), head_of(w).weight.shape[1]
    if found.shape[1:] != (inputs,):
        raise ConfigError(
            f"features must be the head's inputs, {inputs} numbers a sample; got {found.shape[1:]}"
        )
    return jax.vmap(masked_mean, (1, None))(found, samples.mask)


def feddbe_update(loss: Loss, features: Callable[[Params, Array], Array]) -> Update:
    """A client's round; `sent` has z, the mean of features that the first round found.

    H times, both by their gradients at (w_i, m):
        w_i <- w_i - eta grad_w R,    m <- m - shift_rate eta grad_m R
    R = L_S1(w_i shifted by m) + kappa/2 mean_j (mean_S1 f_j(x) - z_j)^2
    """

    def update(
        meta: Meta, row: Ema, task: Task, steps: Steps, hyper: Hyper, sent: GlobalMean
    ) -> ClientResult:
        def objective(at: tuple[Meta, Vector], samples: Samples) -> tuple[Array, Array]:
            value = loss(shifted(*at), samples)
            away = mean_features(features, at[0], samples) - sent.z
            return value + sent.known * hyper.kappa / 2 * jnp.mean(away**2), value

        def step(at: tuple[Meta, Vector], samples: Samples) -> tuple[tuple[Meta, Vector], Array]:
            (_, value), (g, g_m) = jax.value_and_grad(objective, has_aux=True)(at, samples)
            w, m = jax.tree.map(lambda x, g: x - hyper.eta * g, at, (g, hyper.shift_rate * g_m))
            return (renewed(loss, w, shifted(*at), samples), m), value

        (w, m), value = repeat(step, (meta, row.u), task.support, steps)
        known = sent.known > 0
        length = len(jax.tree.leaves(task.support)[0]) if steps is None else steps
        of_trained = lambda _, samples: ((), mean_features(features, w, samples))
        passes = jnp.where(known, 0, jnp.asarray(length, jnp.int32))  # one, in the first round
        found = repeat(of_trained, (), task.support, passes)[1]
        return ClientResult(
            w, m, value, GlobalMean(where(known, sent.z, found), jnp.ones_like(sent.known))
        )

    return update


def with_first_mean(rule: Server) -> Server:
    """The same rule at a server that keeps and sends what the first round found of features."""

    def init(meta: Meta) -> State:
        z = jnp.zeros_like(head_of(meta).weight[0])
        return rule.init(meta), GlobalMean(z, jnp.zeros_like(z[0]))

    def step(state: State, meta: Meta, answers: Answers, hyper: Hyper) -> tuple[Meta, State]:
        inner, mean = state
        meta, inner = rule.step(inner, meta, answers, hyper)
        first = GlobalMean(answers.extra.z, jnp.ones_like(mean.known))
        return meta, (inner, where(mean.known > 0, mean, first))

    def extra(state: State) -> GlobalMean:
        _, mean = state
        return mean

    return Server(init, step, extra)


def _no_shift(meta: Meta) -> Vector:
    """m before a client's first round; raises where the head is not linear with a bias."""
    has = "head" in meta if isinstance(meta, dict) else hasattr(meta, "head")
    head = head_of(meta) if has else None
    weight, bias = getattr(head, "weight", None), getattr(head, "bias", None)
    if weight is None or bias is None or weight.ndim != 2 or bias.shape != weight.shape[:1]:
        got = "parameters without head" if head is None else f"{type(head).__name__} as head"
        raise ConfigError(f"feddbe needs a head with weight [out, in] and bias [out]; got {got}")
    return jnp.zeros_like(weight[0])


@factory
def feddbe(
    loss: Loss,
    *,
    batch: Sampling,
    eta: Positive = 0.005,
    alpha: NonNegative = 0.01,
    kappa: NonNegative = 50.0,
    shift_rate: NonNegative = 1.0,
    features: Function | None = None,
    use: Use,
    optimizer: Transformation | None = None,
    clients: Participation,
) -> Method:
    """FedDBE: a vector of each client's own is added to features that stay alike.

    L_S1 of head(f(x) + m_i) + kappa/2 mean_j (mean f_j(x) - z_j)^2;    w = mean w_i, m_i is kept

    Parameters
    ----------
    kappa : float
        How much mean features are held at z, their mean over the clients at the end of the first
        round.
    shift_rate : float
        Step size of m_i, in multiples of eta.
    features : callable
        `features(params, x)`, the inputs of the linear head, such as `net.features`; required.

    Examples
    --------
    >>> import moml
    >>> net = moml.mlp(2, 8, 3)
    >>> loss = moml.cross_entropy(net.predict)
    >>> moml.methods.feddbe(loss, n=10, features=net.features).hyper.kappa
    50.0
    """
    if features is None:
        raise ConfigError("feddbe needs the network's features: give features=net.features")
    hyper = Hyper(eta=eta, alpha=alpha, kappa=kappa, shift_rate=shift_rate)
    return federated(
        use.adaptation(loss), feddbe_update(loss, features), hyper, batch, clients,
        begin=_no_shift, kept=shifted, server=with_first_mean(server_optimizer(optimizer)),
    )  # fmt: skip
