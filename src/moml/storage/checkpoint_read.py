"""One checkpoint, read: proven whole, of the state that is asked for, or an error that says why."""

import errno
import itertools
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from moml.errors import CheckpointError
from moml.storage import manifest
from moml.storage.leaves import load_leaves
from moml.storage.shares import load_shares

FORMAT, PLAIN = 2, 1  # with rows of several processes, and without
Usable = Callable[[dict[str, Any]], str | None]  # why a checkpoint with these notes is no good


class Saved(NamedTuple):
    """A checkpoint, read: the state has numpy leaves, of a group's `Pieces`.

    Tuples of the notes have become lists.
    """

    step: int
    state: Any
    info: dict[str, Any]
    score: float | None

    def whole(self) -> "Saved":
        """The same with all rows in memory."""
        return self._replace(state=jax.tree.map(np.asarray, self.state))


def read_checkpoint(
    folder: Path, step: int, like: Any, usable: Usable, *, proven: bool = False
) -> Saved:
    """Read a checkpoint, or say by a CheckpointError why not; `proven`, without looking twice."""
    if not proven and (problem := manifest.flaw(folder)):
        raise CheckpointError(problem)
    try:
        told = json.loads((folder / "info.json").read_bytes())
        if told["format"] > FORMAT:
            newer = f"it has format {told['format']}, of a newer moml; this one reads up to"
            raise CheckpointError(f"{newer} {FORMAT}")
        if told["step"] != step:
            raise CheckpointError(f"it is of step {told['step']}, but its folder was renamed")
        told = {"score": None} | told | {"leaves": list(told["leaves"]), "info": dict(told["info"])}
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise CheckpointError(f"info.json is not as moml writes it: {reason_of(error)}") from error
    for was, wanted in itertools.zip_longest(told["leaves"], names_of(like), fillvalue="nothing"):
        if was != wanted:
            raise CheckpointError(f"it holds another state: {was} where {wanted} is expected")
    if problem := usable(told["info"]):
        raise CheckpointError(problem)
    leaves, tree = jax.tree.flatten(like)
    try:
        shares = load_shares(folder / "rows")
        for i, share in shares.items():
            if len(share) != len(leaves[i]):
                raise CheckpointError(f"it has {len(share)} of {len(leaves[i])} rows")
        whole = {i: leaf for i, leaf in enumerate(leaves) if i not in shares}
        found = load_leaves(folder / "state", whole) | shares
        state = jax.tree.unflatten(tree, [found[i] for i in range(len(leaves))])
    except CheckpointError:
        raise
    except Exception as error:
        raise CheckpointError(f"orbax cannot read it: {reason_of(error)}") from error
    return Saved(step, state, told["info"], told["score"])


def names_of(state: Any) -> list[str]:
    """A state's leaves in words: `.store.u['w'] float32[10, 40]`."""
    leaves = jax.tree_util.tree_leaves_with_path(state)
    return [f"{jax.tree_util.keystr(at)} {x.dtype}{list(x.shape)}".strip() for at, x in leaves]


def reason_of(error: BaseException) -> str:
    """An error in one line; tensorstore tells a full disk in words and a number alone."""
    text = " ".join(str(error).split())
    if found := re.search(r"os_error_code='(\d+)'", text):
        text = os.strerror(int(found[1]))
    for full in map(os.strerror, (errno.ENOSPC, errno.EDQUOT)):
        if full in text:
            return full.lower()
    return text[:300] or type(error).__name__
