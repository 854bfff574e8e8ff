"""What training costs: bytes between devices, and bytes, gradients and samples of rounds."""

import math
import re
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.stages import Compiled, Wrapped
from jaxtyping import Array, Int, PyTree

from moml.algorithms.method import Method
from moml.errors import ConfigError
from moml.kept import kept
from moml.tasks.sampler import draw, sets_in
from moml.types import Key, Meta, Tasks, Turnout

_KINDS = "all-reduce|all-gather|all-to-all|reduce-scatter|collective-permute|collective-broadcast"
_CALL = re.compile(rf"= (?P<result>.+?) (?P<kind>{_KINDS})(-start)?\(")
_SHAPE = re.compile(r"(?P<dtype>[a-z]+\d*)\[(?P<axes>[\d,]*)\]")


class Cost(NamedTuple):
    """Of one round, or of many: leading axes are the rounds, `clients` comes last."""

    down: np.ndarray  # [...] bytes from the server to its clients
    up: np.ndarray  # [...] bytes back
    gradients: np.ndarray  # [..., clients] gradient evaluations, on a batch each
    products: np.ndarray  # [..., clients] Hessian-vector products
    samples: np.ndarray  # [..., clients] samples drawn


@kept
def _answers(needs: PyTree, *, members: bool = False) -> Wrapped:
    """(tasks, key, rounds) -> who answered in each of these rounds of a run with this key."""

    def one(tasks: Tasks, key: Key, t: Int[Array, ""]) -> Turnout | None:
        return draw(jax.random.fold_in(key, t), needs, tasks).turnout

    answers = jax.vmap(one, (None, None, 0))
    return jax.jit(jax.vmap(answers, (None, 0, None)) if members else answers)


def turnouts(chosen: Method, tasks: Tasks, key: Key, rounds: int) -> Turnout | None:
    """Return who answered in each of the first rounds of a run; None where all always do."""
    every = jnp.arange(rounds, dtype=jnp.int32)
    return _answers(chosen.algorithm.needs)(tasks, key, every)


def spending(
    chosen: Method, meta: Meta, tasks: Tasks, keys: Key
) -> Callable[[int, int], Cost] | None:
    """Return (start, rounds) -> the cost of these rounds, summed; None for methods without rounds.

    Who answered is drawn again from the key, as the run drew it. `keys` is the key of a run, or
    one of each member [members]: a Cost then has such an axis where members may differ.
    """
    if chosen.work is None:
        return None
    need = chosen.algorithm.needs
    unequal = need.epochs is not None and tasks.least != tasks.most
    if not (need.dropout or need.straggle or unequal):
        once = _summed(cost(chosen, meta, each=tasks.most), tasks)
        return lambda start, rounds: Cost(*(rounds * value for value in once))
    drawn = _answers(need, members=bool(keys.ndim))

    def spent(start: int, rounds: int) -> Cost:
        who = drawn(tasks, keys, start + jnp.arange(rounds, dtype=jnp.int32))
        return Cost(*(value.sum(axis=-1) for value in _summed(cost(chosen, meta, who), tasks)))

    return spent


def _summed(each: Cost, tasks: Tasks) -> Cost:
    """The sum over clients; a sample of an episode is one image of every class."""
    down, up, *clients = each
    gradients, products, samples = (value.sum(axis=-1) for value in clients)
    return Cost(down, up, gradients, products, tasks.ways * samples)


def cost(
    chosen: Method, meta: Meta, turnout: Turnout | None = None, *, each: int | None = None
) -> Cost:
    """Return the cost of a round, from the shapes of the model and who answers.

    The shared leaves of w travel, and what the server's rule sends besides: to every sampled
    client, and back from those that answer. A client whose answer is lost has done its work all
    the same; a straggler has done less. Without a turnout, local epochs are over `each` samples.

    >>> import moml
    >>> loss = lambda w, batch: jnp.mean((w - batch.x) ** 2)
    >>> local = moml.methods.method("fedavg", loss, tasks_per_step=4, local_steps=5, k=2)
    >>> once = cost(local, jnp.zeros(1000, jnp.float32))
    >>> int(once.down), int(once.up), once.gradients.tolist(), once.samples.tolist()
    (16000, 16000, [5, 5, 5, 5], [10, 10, 10, 10])
    """
    if chosen.work is None:
        raise ConfigError(f"{chosen.name} has no rounds: nothing travels")
    need, work, size = chosen.algorithm.needs, chosen.work, nbytes(message(chosen, meta))
    if turnout is None and need.epochs is not None and each is None:
        raise ConfigError("local epochs need a turnout, or the samples of each client")
    whole = np.ones(need.tasks, int)
    alike = need.visits if need.epochs is None else int(sets_in(need, each or 0))
    steps = alike * whole if turnout is None else np.asarray(turnout.steps, int)
    present = whole if turnout is None else np.asarray(turnout.present, int)
    return Cost(
        down=size * np.ones_like(present).sum(axis=-1),
        up=size * present.sum(axis=-1),
        gradients=work.begin + work.gradients * steps,
        products=work.products * steps,
        samples=need.restart + (need.support + need.query + need.hessian) * steps,
    )


def message(chosen: Method, meta: Meta) -> PyTree:
    """Return the shapes of what travels between a server with this model and a client."""
    parts = chosen.algorithm.rounds
    if parts is None:  # a method without the parts of rounds sends its model
        return meta
    rule = parts.server

    def sent(meta: Meta) -> PyTree:
        extra = () if rule.extra is None else rule.extra(rule.init(meta))
        return parts.shared(meta), extra

    return jax.eval_shape(sent, meta)


def nbytes(tree: PyTree) -> int:
    """Return the bytes of all arrays in a tree."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def collectives(program: Compiled) -> list[tuple[str, int]]:
    """Return kind and bytes of every collective of a program; one in a loop counts once.

    >>> import jax
    >>> collectives(jax.jit(lambda x: x + 1).lower(1.0).compile())
    []
    """
    calls = _CALL.finditer(program.as_text() or "")
    return [(call["kind"], sum(map(_bytes, _SHAPE.finditer(call["result"])))) for call in calls]


def all_reduced(program: Compiled) -> int:
    """Return the bytes summed over all devices in a step, where `program` is a stretch."""
    return sum(size for kind, size in collectives(program) if kind == "all-reduce")


def _bytes(shape: re.Match[str]) -> int:
    bits = re.sub(r"^[a-z]+", "", shape["dtype"]) or "8"  # pred is a byte
    return max(1, int(bits) // 8) * math.prod(map(int, filter(None, shape["axes"].split(","))))
