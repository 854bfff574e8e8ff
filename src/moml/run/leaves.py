"""A list of arrays in a folder, as orbax writes it."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np


def save_leaves(folder: Path, leaves: list[np.ndarray]) -> None:
    """Uncompressed, as memories hardly shrink; orbax refuses arrays without elements."""
    import orbax.checkpoint as ocp

    full = {str(number): leaf for number, leaf in enumerate(leaves) if leaf.size}
    if not full:
        return
    with _quiet(), ocp.Checkpointer(_handler()) as checkpointer:
        checkpointer.save(folder.absolute(), args=ocp.args.PyTreeSave(full))


def load_leaves(folder: Path, like: list[Any]) -> list[np.ndarray]:
    """The leaves as they were saved; those without elements are made anew."""
    import orbax.checkpoint as ocp

    leaves = {number: np.zeros(x.shape, x.dtype) for number, x in enumerate(like) if not x.size}
    full = [str(number) for number in range(len(like)) if number not in leaves]
    if full:
        how = ocp.args.PyTreeRestore(
            restore_args={name: ocp.RestoreArgs(restore_type=np.ndarray) for name in full}
        )
        with _quiet(), ocp.Checkpointer(_handler()) as checkpointer:
            found = checkpointer.restore(folder.absolute(), args=how)
        leaves |= {int(name): found[name] for name in full}
    return [leaves[number] for number in range(len(like))]


def _handler() -> Any:
    import orbax.checkpoint as ocp

    return ocp.PyTreeCheckpointHandler(use_ocdbt=True, use_zarr3=True, use_compression=False)


@contextmanager
def _quiet() -> Iterator[None]:
    """Orbax logs the traces of what it raises, too: once is enough."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
