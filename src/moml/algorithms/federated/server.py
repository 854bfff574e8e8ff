"""Rules of the server: from its model and the clients' mean to the next model."""

import jax
import jax.numpy as jnp
import optax

from moml.algorithms.parts.adapt import Leaves, combine, pick
from moml.types import Answers, Hyper, Meta, Server, State

TAKE_MEAN = Server(lambda meta: (), lambda state, meta, answers, hyper: (answers.mean, state))


def towards_mean() -> Server:
    """A server's rule: w <- (1 - rate) w + rate mean(w_i), with rate = `hyper.server_rate`."""

    def step(state: State, meta: Meta, answers: Answers, hyper: Hyper) -> tuple[Meta, State]:
        return optax.incremental_update(answers.mean, meta, hyper.server_rate), state

    return Server(lambda meta: (), step)


def server_optimizer(optimizer: optax.GradientTransformation | None) -> Server:
    """A server's rule: an optax transformation, given w - mean(w_i) as the gradient."""
    if optimizer is None:
        return TAKE_MEAN

    def step(state: State, meta: Meta, answers: Answers, hyper: Hyper) -> tuple[Meta, State]:
        move, state = optimizer.update(optax.tree.sub(meta, answers.mean), state, meta)
        return optax.apply_updates(meta, move), state

    return Server(optimizer.init, step)


def on_leaves(server: Server, leaves: Leaves) -> Server:
    """The same rule for the chosen leaves of w; the others stay as they are."""
    chosen = lambda meta: pick(meta, leaves(meta))

    def step(state: State, meta: Meta, answers: Answers, hyper: Hyper) -> tuple[Meta, State]:
        some, state = server.step(state, chosen(meta), answers, hyper)
        return combine(some, meta), state

    return server._replace(init=lambda meta: server.init(chosen(meta)), step=step)


def answered(answers: Answers) -> jax.Array:
    """How many clients answered."""
    return jnp.sum(answers.weight > 0)
