import jax

import moml
from moml import parts


def my_fedrep(
    loss, *, batch: parts.Sampling, eta: parts.Positive = 0.01, alpha: parts.NonNegative = 0.01,
    clients: parts.Participation,
):  # fmt: skip
    """FedRep: a common body, and a head of its own at each client.

    H times:  head_i <- head_i - eta grad L_S1;    H times:  body_i <- body_i - eta grad L_S1
    """
    head = parts.named("head")
    body = lambda params: jax.tree.map(lambda chosen: not chosen, head(params))

    def update(meta, row, task, steps, hyper):
        w, value = parts.descend(loss, meta, task, steps, hyper.eta, leaves=head)
        w, _ = parts.descend(loss, w, task, steps, hyper.eta, leaves=body)
        return parts.ClientResult(w, (), value)

    hyper, adapts = moml.Hyper(eta=eta, alpha=alpha), parts.by_steps(loss, leaves=head)
    work = parts.Work(2)
    return parts.federated(adapts, update, hyper, batch, clients, private=head, work=work)


moml.plugins.register_method("my-fedrep", my_fedrep)
