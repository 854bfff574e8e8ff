"""The clients of the federated table: who trains on what, what each is tested on, the scores."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from moml.algorithms.parts.task_map import in_batches
from moml.data.images.arrays import Images, by_group
from moml.data.images.sets import load
from moml.data.split.partition import half_and_half
from moml.errors import DataError
from moml.models import Model, accuracy, cross_entropy, masked_mean, mlp, shifted
from moml.paper.federated.cells import CLIENTS, SPLIT, TEST, TEST_STEPS, TRAIN, K, Protocol
from moml.paper.federated.released import bare_mlp, flat, picked, span_logits
from moml.tasks.clients import from_rows, unit
from moml.types import Batch, Loss, Meta, Params, Tasks

SEED, TEST_QUERIES = 31, 10  # seed of what a test draws; images of the released test
HIDDEN, MORE_MNIST = 40, 168  # both hidden layers of the MLP; a of the protocols with `more_mnist`
Rows = list[np.ndarray]


class Pool(NamedTuple):
    """Images with the rows of each client."""

    x: Array  # [rows, height, width, channels], bytes
    y: Int[Array, " rows"]
    rows: Rows


class Problem(NamedTuple):
    """All that the cells of one data set and protocol share."""

    train: Tasks
    test: Pool
    unseen: Pool | None  # clients that never take part
    net: Model
    loss: Loss


class Drawn(NamedTuple):
    """Rows that a test adapts on and is scored on, of every seed and client."""

    support: Int[np.ndarray, "seeds clients shots"]
    query: Int[np.ndarray, "seeds clients width"]
    mask: Bool[np.ndarray, "seeds clients width"]


def images_of(name: str, folder: Path | None) -> tuple[Images, Images]:
    """Training and test images, CIFAR-100's by superclass."""
    both = load(name, "train", folder), load(name, "test", folder)
    return (by_group(both[0]), by_group(both[1])) if name == "cifar100" else both


def problem_of(train: Images, test: Images, name: str, p: Protocol, split: int = SPLIT) -> Problem:
    """The paper's split of these images, drawn from a seed, under a protocol's switches."""
    more_mnist = p.more_mnist and name == "mnist"
    mine = half_and_half(train.y, CLIENTS, MORE_MNIST if more_mnist else TRAIN, split)
    pool = lambda x, y, rows: Pool(jnp.asarray(x), jnp.asarray(y, jnp.int32), rows)
    unseen = None
    if p.unseen:  # other clients of the same kinds, of images that nobody trains on
        free = np.setdiff1d(np.arange(len(train.y)), np.concatenate(mine))
        others = half_and_half(train.y[free], CLIENTS, TEST[name], split + 1)
        used, at = np.unique(free[np.concatenate(others)], return_inverse=True)
        ends = np.cumsum([len(rows) for rows in others])[:-1]
        unseen = pool(train.x[used], train.y[used], np.split(at, ends))
    sizes = (int(np.prod(train.x.shape[1:])), HIDDEN, HIDDEN, len(train.names))
    net = bare_mlp(*sizes) if p.bare_elu else mlp(*sizes)
    if p.standardised:
        own = train.x[np.concatenate(mine)] / np.float32(255)
        net = shifted(net, float(own.mean()), float(own.std()))
    return Problem(
        train=from_rows(train.x, np.asarray(train.y, np.int32), mine),
        test=pool(test.x, test.y, half_and_half(test.y, CLIENTS, TEST[name], split)),
        unseen=unseen,
        net=net,
        loss=cross_entropy(net.predict),
    )


def half(rows: Rows, which: int) -> Rows:
    """Every other row of each client: both halves have the same classes."""
    return [mine[which::2] for mine in rows]


def drawn(rows: Rows, seeds: int, *, few: bool, salt: int = 0, shots: int = K) -> Drawn:
    """`shots` rows to adapt on and others to score: 10 of them if `few`, else all that are left.

    A seed's draw is the same for all methods, and stays the same over a run.
    """
    least = min(len(mine) for mine in rows)
    if least < shots + (TEST_QUERIES if few else 1):
        raise DataError(f"the smallest client has {least} test images, too few for {shots} shots")
    width = TEST_QUERIES if few else max(len(mine) for mine in rows) - shots
    support = np.zeros((seeds, len(rows), shots), np.int32)
    query = np.zeros((seeds, len(rows), width), np.int32)
    mask = np.zeros(query.shape, bool)
    for seed in range(seeds):
        generator = np.random.default_rng([SEED, salt, seed])
        for i, mine in enumerate(rows):
            order = generator.permutation(mine)
            asked = order[shots : shots + width]
            support[seed, i] = order[:shots]
            query[seed, i, : len(asked)] = asked
            mask[seed, i, : len(asked)] = True
    return Drawn(support, query, mask)


Rate, Rates = Float[Array, ""], Float[Array, " members"]  # of fine-tuning
AT_ONCE = 8  # members scored side by side
Curves = Float[np.ndarray, "members clients steps"]  # accuracy before, and after each step
Scores = dict[str, Curves]  # the test of a name -> all members' clients
# models, fine-tuning rates, whether each client has its own model -> scores
Test = Callable[[Meta, Rates, bool], Scores]
Score = Callable[[Params], Float[Array, ""]]
Tuning = tuple[Params, Callable[[Params], Params], Score]  # start, gradient, accuracy


class Clients(NamedTuple):
    """What every member's clients score, in percent."""

    before: Float[np.ndarray, "members clients"]
    after: Float[np.ndarray, "members clients"]


def scorer(
    problem: Problem, pool: Pool, rows: Drawn, p: Protocol, *, steps: int
) -> Callable[..., Curves]:
    """Models and rates of all members -> what each of their clients scores, step by step.

    Members are settings x seeds, the seeds running faster. With a third argument, `own=True`, the
    models have an axis of clients.
    """
    loss, right = problem.loss, accuracy(problem.net.predict)

    def plain(meta: Meta, support: Batch, query: Batch) -> Tuning:
        return meta, lambda p: jax.grad(loss)(p, support), lambda p: right(p, query)

    def on_span(meta: Meta, support: Batch, query: Batch) -> Tuning:
        x = jnp.concatenate([flat(support.x), flat(query.x)])
        shots = len(support.y)
        mark = (jnp.arange(len(x)) < shots).astype(x.dtype)
        start, logits = span_logits(meta, x)
        few = picked(logits, jnp.concatenate([support.y, query.y]))

        def hits(params: Params) -> Float[Array, ""]:
            best = jnp.argmax(logits(params)[shots:], axis=-1).astype(query.y.dtype)
            return 100 * masked_mean((best == query.y).astype(x.dtype), query.mask)

        return start, lambda p: jax.grad(few)(p, mark), hits

    def client(meta: Meta, at: Drawn, rate: Rate) -> Float[Array, " points"]:
        """The accuracy before, and after each of `steps` steps p <- p - rate grad(p)."""
        fetch = lambda rows: unit(pool.x[rows])
        support = Batch(fetch(at.support), pool.y[at.support])
        query = Batch(fetch(at.query), pool.y[at.query], at.mask)
        start, grad, hits = (on_span if p.bare_elu else plain)(meta, support, query)

        def step(p: Params, _: None) -> tuple[Params, Float[Array, ""]]:
            p = jax.tree.map(lambda p, g: p - rate * g, p, grad(p))
            return p, hits(p)

        after = jax.lax.scan(step, start, length=steps)[1]
        return jnp.concatenate([hits(start)[None], after])

    fixed = jax.tree.map(jnp.asarray, rows)

    @partial(jax.jit, static_argnames="own")
    def program(meta: Meta, rates: Rates, own: bool) -> Float[Array, "members clients points"]:
        def member(given: tuple[Meta, Int[Array, ""], Rate]) -> Float[Array, "clients points"]:
            meta, seed, rate = given
            at = jax.tree.map(lambda x: x[seed], fixed)
            return jax.vmap(client, (0 if own else None, 0, None))(meta, at, rate)

        seeds = jnp.arange(len(rates), dtype=jnp.int32) % len(fixed.support)
        return in_batches(member, (meta, seeds, rates), AT_ONCE)

    return lambda meta, rates, own=False: np.asarray(program(meta, rates, own=own))


def reading(curves: Curves, steps: int | None) -> Clients:
    """Before, and after so many steps of fine-tuning; None: the mean over all steps."""
    after = curves[..., 1:].mean(axis=-1) if steps is None else curves[..., steps]
    return Clients(curves[..., 0], after)


def scores_of(problem: Problem, p: Protocol, seeds: int) -> Test:
    """Models and fine-tuning rates of all members -> what their clients score, compiled once.

    Where every client has its own model, those that never took part have none.
    """

    def program(pool: Pool, rows: Rows, salt: int) -> Callable[..., Curves]:
        few = drawn(rows, seeds, few=p.few_queries, salt=salt)
        return scorer(problem, pool, few, p, steps=TEST_STEPS)

    test = problem.test
    programs = {"seen": program(test, half(test.rows, 1) if p.tuned else test.rows, 2)}
    if p.tuned:
        programs["tuning"] = program(test, half(test.rows, 0), 1)
    if problem.unseen is not None:
        programs["unseen"] = program(problem.unseen, problem.unseen.rows, 0)
    return lambda meta, rates, own: {
        name: score(meta, jnp.asarray(rates), own)
        for name, score in programs.items()
        if not (own and name == "unseen")
    }
