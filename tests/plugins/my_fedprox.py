import jax

import moml
from moml import parts


def my_fedprox(
    loss, *, batch: parts.Sampling, eta: parts.Positive = 0.01, alpha: parts.NonNegative = 0.01,
    mu: parts.NonNegative = 0.1, clients: parts.Participation,
):  # fmt: skip
    """FedProx: FedAvg with a pull towards the server's model.

    H times:  w_i <- w_i - eta (grad L_S1(w_i) + mu (w_i - w));    w = mean w_i

    Parameters
    ----------
    mu : float
        The pull.
    """

    def update(meta, row, task, steps, hyper):
        pull = lambda own: jax.tree.map(lambda own, w: hyper.mu * (own - w), own, meta)
        w, value = parts.descend(loss, meta, task, steps, hyper.eta, pull=pull)
        return parts.ClientResult(w, (), value)

    hyper = moml.Hyper(eta=eta, alpha=alpha, mu=mu)
    return parts.federated(parts.by_steps(loss), update, hyper, batch, clients)


moml.plugins.register_method("my-fedprox", my_fedprox)
