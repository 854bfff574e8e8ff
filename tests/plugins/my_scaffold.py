import jax
import optax

import moml
from moml import parts


def my_scaffold(
    loss, *, batch: parts.Sampling, eta: parts.Positive = 0.01, alpha: parts.NonNegative = 0.01,
    clients: parts.Participation,
):  # fmt: skip
    """SCAFFOLD: steps corrected by how a client's gradients differ from all clients'.

    H times:  w_i <- w_i - eta (grad L_S1(w_i) - c_i + c);    c_i <- c_i - c + (w - w_i) / (H eta)
    w = mean w_i,    c <- c + (answers / n) mean(change of c_i)
    """
    nothing = optax.tree.zeros_like

    def update(meta, row, task, steps, hyper, c):
        pull = lambda own: optax.tree.sub(c, row.u)
        w, value = parts.descend(loss, meta, task, steps, hyper.eta, pull=pull)
        h = len(jax.tree.leaves(task)[0]) if steps is None else steps.astype(hyper.eta.dtype)
        new = lambda u, c, start, end: u - c + (start - end) / (h * hyper.eta)
        u = jax.tree.map(new, row.u, c, meta, w)
        return parts.ClientResult(w, u, value, extra=optax.tree.sub(u, row.u))

    def step(c, meta, answers, hyper):
        move = lambda c, d: c + parts.answered(answers).astype(c.dtype) / batch.count * d
        return answers.mean, jax.tree.map(move, c, answers.extra)

    server, hyper = parts.Server(nothing, step, lambda c: c), moml.Hyper(eta=eta, alpha=alpha)
    by = {"begin": nothing, "server": server}
    return parts.federated(parts.by_steps(loss), update, hyper, batch, clients, **by)


moml.plugins.register_method("my-scaffold", my_scaffold)
