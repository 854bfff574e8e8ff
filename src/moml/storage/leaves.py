"""Numbered arrays in a folder, as orbax writes them; by one process, for itself."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np


def save_leaves(folder: Path, leaves: Mapping[int, np.ndarray]) -> None:
    """Uncompressed, as memories hardly shrink; orbax refuses arrays without elements."""
    import orbax.checkpoint as ocp

    full = {str(number): leaf for number, leaf in leaves.items() if leaf.size}
    if not full:
        return
    with _quiet(), _checkpointer() as checkpointer:
        checkpointer.save(folder.absolute(), args=ocp.args.PyTreeSave(full))


def load_leaves(folder: Path, like: Mapping[int, Any]) -> dict[int, np.ndarray]:
    """The leaves as they were saved; those without elements are made anew."""
    import orbax.checkpoint as ocp

    leaves = {number: np.zeros(x.shape, x.dtype) for number, x in like.items() if not x.size}
    full = [str(number) for number in like if number not in leaves]
    if full:
        how = ocp.args.PyTreeRestore(
            restore_args={name: ocp.RestoreArgs(restore_type=np.ndarray) for name in full}
        )
        with _quiet(), _checkpointer() as checkpointer:
            found = checkpointer.restore(folder.absolute(), args=how)
        leaves |= {int(name): found[name] for name in full}
    return leaves


def _checkpointer() -> Any:
    import jax
    import orbax.checkpoint as ocp

    me = jax.process_index()
    alone = ocp.options.MultiprocessingOptions(primary_host=me, active_processes={me})
    handler = ocp.PyTreeCheckpointHandler(
        use_ocdbt=True, use_zarr3=True, use_compression=False, multiprocessing_options=alone
    )
    return ocp.Checkpointer(handler, multiprocessing_options=alone)


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
