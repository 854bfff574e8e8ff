"""The loop that all training shares: stretches of steps, a check after each, and a callback.

`fit` calls it with one training, `sweep` with the members of a vmap, a run in a folder with a
callback that writes metrics and checkpoints, the Flower server with rounds of remote clients.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PyTree

from moml.errors import Diverged
from moml.training.progress import bar
from moml.types import Info, Meta, State

Advance = Callable[[State, int, int], tuple[State, Info]]  # carry, first step, number of steps


class TrainingInfo(NamedTuple):
    """What a callback is given after a stretch of steps; in a sweep with an axis of members.

    Loss and norm of a member that diverged are not a number; its `meta` is the last finite one.
    """

    step: int  # steps done in all
    meta: Meta
    loss: np.ndarray  # mean over the stretch, after adaptation
    norm: np.ndarray  # mean norm of the estimated meta-gradient
    losses: np.ndarray  # of each step of the stretch
    carry: State  # consumed by the next stretch
    hyper: PyTree = None  # a Hyper
    score: np.ndarray | None = None  # on unseen tasks, where the training computes one


Callback = Callable[[TrainingInfo], bool | None]  # True asks to stop


class Members(NamedTuple):
    """The carry of trainings side by side; leaves [members, ...]."""

    state: State
    good: Meta  # of each member the last finite model
    lost_at: Int[Array | np.ndarray, " members"]  # the step at which each diverged, -1: it did not

    @property
    def meta(self) -> Meta:
        """The last finite models."""
        return self.good


def members(state: State) -> Members:
    """Members that begin with these states."""
    good = copy(state.meta)
    return Members(state, good, jnp.full(len(jax.tree.leaves(good)[0]), -1, jnp.int32))


def side_by_side(advance: Advance) -> Advance:
    """Stretches of `Members`, from those of their states."""

    def all_(carry: Members, begin: int, size: int) -> tuple[Members, Info]:
        state, info = advance(carry.state, begin, size)
        return carry._replace(state=state), info

    return all_


def loop(
    name: str,
    advance: Advance,
    carry: State,
    *,
    steps: int,
    length: int,
    done: int = 0,
    after: Callable[[TrainingInfo], bool | str | None] = lambda info: None,
    about: str = "",
    unit: str = "step",
    note: str = "",
    progress: bool = False,
) -> tuple[State, int]:
    """Train from step `done` to `steps`, `length` steps at a time; the last carry and its step.

    After each stretch the losses and the meta-model must be finite: one training raises `Diverged`,
    of `Members` those that diverge are marked and the others continue. Then `after` is called; True
    ends the loop, a string is shown in the progress line.
    """
    with bar(name, steps, shown=progress and done < steps, done=done) as show:
        while done < steps:
            size = min(length, steps - done)
            carry, info = advance(carry, done, size)
            losses, norms = np.asarray(info.loss), np.asarray(info.norm)
            side = isinstance(carry, Members)
            lost = diverged_at((carry.state if side else carry).meta, losses, done)
            if side:
                carry = _marked(carry, lost)
            elif lost >= 0:
                raise Diverged(
                    f"{name}{about and f' ({about})'} diverged at {unit} {lost + 1} of {steps}: "
                    "loss or parameters are not finite"
                )
            done += size
            alive = np.asarray(carry.lost_at) < 0 if side else np.asarray(True)
            loss, norm = (
                np.where(alive, values.mean(axis=-1), np.nan) for values in (losses, norms)
            )
            meta = carry.good if side else copy(carry.meta)
            answer = after(TrainingInfo(done, meta, loss, norm, losses, carry))
            note = answer if isinstance(answer, str) else note
            show(done, float(np.mean(loss[alive])) if alive.any() else math.nan, note)
            if answer and not isinstance(answer, str):
                break
    return carry, done


@jax.jit
def copy(tree: PyTree) -> PyTree:
    """Copy all arrays, by one program: a state is consumed."""
    return jax.tree.map(jnp.copy, tree)


@jax.jit
def all_finite(tree: PyTree) -> Bool[Array, ""]:
    """Whether every number of a tree is finite."""
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]))


_finite_each = jax.jit(jax.vmap(all_finite))


def diverged_at(meta: Meta, losses: np.ndarray, begin: int) -> np.ndarray:
    """The first step whose loss is not finite, else the last if the model is not; -1: all is.

    `losses` is [steps] of one training or [members, steps].
    """
    finite = np.isfinite(losses)
    good = finite.all(axis=-1)
    first = np.where(good, losses.shape[-1] - 1, finite.argmin(axis=-1))
    model = np.asarray((_finite_each if losses.ndim > 1 else all_finite)(meta))
    return np.where(good & model, -1, begin + first)


@jax.jit
@jax.vmap
def keep(ok: Bool[Array, ""], new: Meta, old: Meta) -> Meta:
    """Of each member the new model where `ok`, else the old one."""
    return jax.tree.map(lambda n, o: jnp.where(ok, n, o), new, old)


def _marked(carry: Members, lost: np.ndarray) -> Members:
    before = np.asarray(carry.lost_at)
    lost_at = np.where(before < 0, lost, before).astype(np.int32)
    good = keep(lost_at < 0, carry.state.meta, carry.good)
    return Members(carry.state, good, lost_at)
