"""What rounds cost: bytes over the network, gradients at the clients, samples."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from moml.algorithms.method import Method
from moml.errors import ConfigError
from moml.tasks.sampler import draw
from moml.types import Key, Meta, Tasks, Turnout


class Cost(NamedTuple):
    """Of one round, or of many: leading axes are the rounds, `clients` comes last."""

    down: np.ndarray  # [...] bytes from the server to its clients
    up: np.ndarray  # [...] bytes back
    gradients: np.ndarray  # [..., clients] gradient evaluations, on a batch each
    products: np.ndarray  # [..., clients] Hessian-vector products
    samples: np.ndarray  # [..., clients] samples drawn


def _answers(chosen: Method, tasks: Tasks) -> Callable[[Key, Any], Turnout | None]:
    """(key, rounds [rounds]) -> who answered in each of these rounds of a run with this key."""
    one = lambda key, t: draw(jax.random.fold_in(key, t), chosen.algorithm.needs, tasks).turnout
    return jax.vmap(one, (None, 0))


def turnouts(chosen: Method, tasks: Tasks, key: Key, rounds: int) -> Turnout | None:
    """Who answered in each of the first rounds of a run with this key; None where all do alike."""
    return jax.jit(_answers(chosen, tasks))(key, jnp.arange(rounds, dtype=jnp.int32))


def spending(
    chosen: Method, meta: Meta, tasks: Tasks, keys: Key
) -> Callable[[int, int], Cost] | None:
    """(start, rounds) -> what these rounds of a run cost, summed; None where there are no rounds.

    Who answered is drawn again from the key, so it is what the run drew. `keys` is the key of a
    run, or one of each member [members]: a Cost then has such an axis where members may differ.
    """
    if chosen.work is None:
        return None
    need = chosen.algorithm.needs
    if not (need.dropout or need.straggle):
        once = _summed(cost(chosen, meta), tasks)
        return lambda start, rounds: Cost(*(rounds * value for value in once))
    answers = _answers(chosen, tasks)
    drawn = jax.jit(jax.vmap(answers, (0, None)) if keys.ndim else answers)

    def spent(start: int, rounds: int) -> Cost:
        who = drawn(keys, start + jnp.arange(rounds, dtype=jnp.int32))
        return Cost(*(value.sum(axis=-1) for value in _summed(cost(chosen, meta, who), tasks)))

    return spent


def _summed(each: Cost, tasks: Tasks) -> Cost:
    """Of all clients together; a sample of an episode is one image of every class."""
    down, up, *clients = each
    gradients, products, samples = (value.sum(axis=-1) for value in clients)
    return Cost(down, up, gradients, products, tasks.ways * samples)


def cost(chosen: Method, meta: Meta, turnout: Turnout | None = None) -> Cost:
    """What a round costs, from the shapes of the model and who answers.

    Only w travels: every sampled client is sent it, those that answer send theirs back. A client
    whose answer is lost has done its work all the same; a straggler has done less.

    >>> import moml
    >>> loss = lambda w, batch: jnp.mean((w - batch.x) ** 2)
    >>> local = moml.methods.method("fedavg", loss, tasks_per_step=4, local_steps=5, k=2)
    >>> once = cost(local, jnp.zeros(1000, jnp.float32))
    >>> int(once.down), int(once.up), once.gradients.tolist(), once.samples.tolist()
    (16000, 16000, [5, 5, 5, 5], [10, 10, 10, 10])
    """
    if chosen.work is None:
        raise ConfigError(f"{chosen.name} has no rounds: nothing travels")
    need, work, size = chosen.algorithm.needs, chosen.work, nbytes(meta)
    whole = np.ones(need.tasks, int)
    steps = need.visits * whole if turnout is None else np.asarray(turnout.steps, int)
    present = whole if turnout is None else np.asarray(turnout.present, int)
    return Cost(
        down=size * np.ones_like(present).sum(axis=-1),
        up=size * present.sum(axis=-1),
        gradients=work.begin + work.gradients * steps,
        products=work.products * steps,
        samples=need.restart + (need.support + need.query + need.hessian) * steps,
    )


def nbytes(tree: Any) -> int:
    """The bytes of all arrays in a tree."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
