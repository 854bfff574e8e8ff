"""A trained table model: from the known rows of a task to its predictions."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree
from numpy.typing import ArrayLike

from moml.algorithms.tabular.members import PersonalParams, Shape, answers_of, parts
from moml.algorithms.tabular.simple import (
    Simple,
    SimpleHead,
    known_rows,
    simple_answers,
    simple_extend,
    simple_start,
)
from moml.algorithms.tabular.stack import Stack, averaged
from moml.algorithms.tabular.summary import WithSummary
from moml.algorithms.tabular.update import update_program
from moml.models.table import Knots
from moml.runtime.compiling import quick_jit
from moml.tabular.rows import CHUNK, as_input, as_target, by_size
from moml.types import Batch, Hyper, Meta, Record

ROWS = 8192  # predicted at a time by numpy: fewer do not occupy the threads of its matrix products
_HYPER = Hyper(eta=0.0)  # not used: members have learned all that their adaptation needs


@dataclass(frozen=True)
class TableModel:
    """Members of some kinds, averaged; plain arrays and numbers.

    With a `stack` the members of each kind are averaged, and the kinds, networks first, weighed.
    """

    shape: Shape
    knots: Knots
    metas: dict[str, Meta]  # kind -> leaves [members, ...]
    shots: int
    held_out: tuple[int, ...] = ()  # numbers of the groups that training did not see
    scores: tuple[Record, ...] = ()  # the candidates, and which of them are averaged
    simple: dict[str, Simple] = field(default_factory=dict)  # members that are no networks
    stack: Stack | None = None  # None: all members weigh equally

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds in the order of the stack's weights."""
        return (*self.metas, *self.simple)

    def personal(self, x: ArrayLike, y: ArrayLike, groups: Sequence[ArrayLike]) -> PersonalParams:
        """Personal parameters of each group from its rows groups[i] of x and y; may be none."""
        return by_size(as_input(x), as_target(self.shape, y), groups, self._adapted)

    def _simple(self, old: Mapping[str, PyTree], batch: Batch) -> dict[str, SimpleHead]:
        """What simple members keep of tasks after further rows."""
        return {
            kind: simple_extend(model, self.knots, old[kind], batch)
            for kind, model in self.simple.items()
        }

    def _adapted(self, _: np.ndarray, batch: Batch) -> PersonalParams:
        """Personal parameters of a batch of tasks, member by member."""
        start = self.start()
        each: dict[str, list[WithSummary]] = {}
        has_heads = lambda kind: bool(jax.tree.leaves(start.heads[kind]))
        for kind in sorted(self.metas, key=has_heads, reverse=True):
            if has_heads(kind) or not each:
                adapt = partial(_adapt_program(self.shape, kind), self.knots)
                members = len(jax.tree.leaves(self.metas[kind])[0]) if has_heads(kind) else 1
                meta = lambda i, kind=kind: jax.tree.map(lambda leaf: leaf[i], self.metas[kind])
                each[kind] = [adapt(meta(i), batch) for i in range(members)]
        summary = max((np.asarray(p[0].summary) for p in each.values()), key=lambda s: s.shape[1])
        join = lambda *leaves: np.stack(leaves, axis=1)
        heads = {
            kind: jax.tree.map(join, *(p.params for p in each[kind])) if kind in each else ()
            for kind in self.metas
        }
        many = lambda leaf: np.repeat(leaf, len(batch.mask), axis=0)
        begun = {kind: jax.tree.map(many, start.heads[kind]) for kind in self.simple}
        return PersonalParams(summary, heads | self._simple(begun, batch))

    def start(self) -> PersonalParams:
        """Personal parameters of one task without known rows."""
        one = lambda tree: jax.tree.map(lambda leaf: np.asarray(leaf)[None], tree)
        each: dict[str, WithSummary] = {
            kind: parts(kind, self.shape, self.knots).adapt.start(meta)
            for kind, meta in self.metas.items()
        }
        summary = max((np.asarray(p.summary) for p in each.values()), key=len)
        heads = {kind: one(p.params) for kind, p in each.items()}
        more = {kind: simple_start(model) for kind, model in self.simple.items()}
        return PersonalParams(summary[None], heads | more)

    def extend(
        self,
        personal: PersonalParams,
        counts: ArrayLike,
        x: ArrayLike,
        y: ArrayLike,
        groups: Sequence[ArrayLike],
    ) -> PersonalParams:
        """Personal parameters after later rows groups[i]; `counts` are the earlier rows of each."""
        x, y = as_input(x), as_target(self.shape, y)
        counts = np.asarray(counts, x.dtype)
        update = _update_program(self.shape, tuple(self.metas))

        def run(some: np.ndarray, batch: Batch) -> PersonalParams:
            at = np.concatenate([some, np.repeat(some[:1], len(batch.mask) - some.size)])
            old = jax.tree.map(lambda leaf: leaf[at], personal)
            nets = old._replace(heads={kind: old.heads[kind] for kind in self.metas})
            new = update(self.knots, self.metas, nets, counts[at], batch)
            return new._replace(heads=new.heads | self._simple(old.heads, batch))

        return by_size(x, y, groups, run)

    def answers(self, personal: PersonalParams, which: ArrayLike, x: ArrayLike) -> np.ndarray:
        """Predictions for rows x, row i being of task which[i] of `personal`.

        Standardised targets [rows], or the probabilities of the classes [rows, classes].
        """
        return self.answers_and_spread(personal, which, x)[0]

    def answers_and_spread(
        self, personal: PersonalParams, which: ArrayLike, x: ArrayLike
    ) -> tuple[np.ndarray, np.ndarray]:
        """`answers`, and of each row the spread of the kinds' answers by the weights of a stack.

        Without a stack the spread is 0.
        """
        found = [self._answer(*part) for part in self._parts(personal, which, x)]
        answers, spread = map(np.concatenate, zip(*found, strict=True))
        return answers, spread

    def each(self, personal: PersonalParams, which: ArrayLike, x: ArrayLike) -> np.ndarray:
        """The answers [kinds, rows] of all kinds, the members of each averaged."""
        found = [self._each(*part) for part in self._parts(personal, which, x)]
        return np.concatenate(found, axis=1)

    def _parts(
        self, personal: PersonalParams, which: ArrayLike, x: ArrayLike
    ) -> Iterator[tuple[PersonalParams, np.ndarray]]:
        """Some rows after the other, each with the personal parameters of its task."""
        x, which = as_input(x), np.asarray(which, int)
        size = CHUNK if "custom" in self.metas else ROWS
        for first in range(0, len(x), size):
            some = slice(first, first + size)
            yield jax.tree.map(lambda leaf, some=some: leaf[which[some]], personal), x[some]

    def _answer(self, mine: PersonalParams, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self.stack is not None:
            known = known_rows(mine.summary, self.shape.classes or 1)
            return averaged(self.stack.of(known), self._each(mine, x))
        none = np.zeros(len(x))
        if "custom" in self.metas:
            return self._answer_custom(mine, x), none
        return np.concatenate(self._members(mine, x)).mean(axis=0), none

    def _members(self, mine: PersonalParams, x: np.ndarray) -> list[np.ndarray]:
        """The answers of the networks, kind after kind."""
        made = {kind: parts(kind, self.shape, self.knots) for kind in self.metas}
        return [
            answers_of(made[kind], meta, mine.heads[kind], mine.summary, x)
            for kind, meta in self.metas.items()
        ]

    def _each(self, mine: PersonalParams, x: np.ndarray) -> np.ndarray:
        nets = [members.mean(axis=0) for members in self._members(mine, x)]
        simple = [
            simple_answers(model, self.knots, mine.heads[kind], mine.summary, x)
            for kind, model in self.simple.items()
        ]
        return np.stack([*nets, *simple])

    def _answer_custom(self, mine: PersonalParams, x: np.ndarray) -> np.ndarray:
        at = np.minimum(np.arange(CHUNK), len(x) - 1)
        mine = jax.tree.map(lambda leaf: leaf[at], mine)
        answer = _answer_program(self.shape, tuple(self.metas))
        return np.asarray(answer(self.knots, self.metas, mine, x[at]))[: len(x)]

    def unadapted(self, x: np.ndarray) -> np.ndarray:
        """Predictions for rows of tasks without known rows."""
        return self.answers(self.start(), np.zeros(len(x), int), x)


@cache
def _adapt_program(shape: Shape, kind: str) -> Callable[..., WithSummary]:
    """The compiled adaptation of one member to a batch of tasks."""

    def adapt(at: Knots, meta: Meta, batch: Batch) -> WithSummary:
        made = parts(kind, shape, at)
        return jax.vmap(lambda samples: made.adapt.apply(meta, samples, _HYPER))(batch)

    return quick_jit(adapt)


@cache
def _update_program(shape: Shape, kinds: tuple[str, ...]) -> Callable[..., PersonalParams]:
    """The compiled update of a batch of tasks by all members."""
    return quick_jit(update_program(shape, kinds))


@cache
def _answer_program(shape: Shape, kinds: tuple[str, ...]) -> Callable[..., jax.Array]:
    """The compiled prediction of rows by a user's network, each by its task's members, averaged."""

    def run(at: Knots, metas: dict[str, Meta], personal: PersonalParams, x: jax.Array) -> jax.Array:
        made = {kind: parts(kind, shape, at) for kind in kinds}

        def one(mine: PersonalParams, row: jax.Array) -> jax.Array:
            def member(kind: str, meta: Meta, head: PyTree) -> jax.Array:
                adapt = made[kind].adapt
                empty: WithSummary = adapt.start(meta)
                summary = mine.summary[: len(empty.summary)]
                params = adapt.merge(meta, WithSummary(head, summary))
                return made[kind].answer(params, row[None])[0]

            each = [
                jax.vmap(lambda meta, head, kind=kind: member(kind, meta, head))(
                    metas[kind], mine.heads[kind]
                )
                for kind in kinds
            ]
            return jnp.mean(jnp.concatenate(each), axis=0)

        return jax.vmap(one)(personal, x)

    return quick_jit(run)
