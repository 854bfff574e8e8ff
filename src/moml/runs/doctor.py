"""`moml doctor`: devices, versions, data sets, and a self-test."""

import os
from collections.abc import Iterator
from functools import partial

import jax
import numpy as np

from moml.config.models import MODELS
from moml.config.problems import PROBLEMS
from moml.data import SETS, data_folder
from moml.errors import DataError
from moml.methods import METHODS
from moml.models import mlp, mse
from moml.registry import Registry
from moml.runtime import compile_cache
from moml.runtime.memory_budget import free_bytes
from moml.storage.folder import versions
from moml.tasks import sine
from moml.training.fit import fit


def facts() -> Iterator[tuple[str, str]]:
    """What jax sees, versions, memory and data sets, each by a name."""
    for name, value in versions().items():
        yield name, str(value)
    yield "jax devices", ", ".join(str(device) for device in jax.devices())
    free = free_bytes()
    yield "free memory", "unknown" if free is None else f"{free / 1e9:.1f} GB"
    yield "cores", str(os.cpu_count())
    yield "compiled programs", compile_cache.describe()
    tables: dict[str, Registry] = {"problems": PROBLEMS, "methods": METHODS, "models": MODELS}
    for what, rows in tables.items():
        added = [name for name, row in rows.listed().items() if not _ours(row)]
        if added:
            yield f"added {what}", ", ".join(added)
    try:
        root = data_folder()
    except DataError as error:
        yield "data sets", f"none: {error}"
        return
    for name, one in SETS.items():
        places = ", ".join(str(path) for path in one.places(root))
        yield f"data: {name}", places or f"not in {root}"


def _ours(row: object) -> bool:
    return str(getattr(row, "__module__", "")).startswith("moml.")


def identity(iterations: int = 200) -> float:
    """How far MOML v1 at beta = 1 ends from MAML, relative to w: the two are the same method.

    >>> identity(iterations=5) < 1e-6
    True
    """
    net = mlp(1, 40, 40, 1)
    w = net.init(jax.random.key(0))
    train = partial(
        fit, loss=mse(net.predict), params=w, tasks=sine(), iterations=iterations, eta=0.001, k=3
    )
    ends = [train("moml-v1", beta=1.0).meta, train("maml").meta]
    one, two = (np.concatenate([np.ravel(x) for x in jax.tree.leaves(end)]) for end in ends)
    return float(np.abs(one - two).max() / np.abs(two).max())
