"""Programs that are compiled side by side, before their first call."""

from concurrent.futures import Future, ThreadPoolExecutor

import jax
import numpy as np
from jax.stages import Compiled, Wrapped
from jaxtyping import PyTree


class Precompiled:
    """A jitted function, compiled before its first call in a thread of a pool."""

    def __init__(self, function: Wrapped):
        self.function = function
        self._made: dict[object, Future[Compiled]] = {}

    def compiled(self, pool: ThreadPoolExecutor, *args: PyTree) -> "Future[Compiled]":
        """The program for arguments like these; traced here, compiled in the pool."""
        leaves = ((np.shape(leaf), leaf.dtype) for leaf in jax.tree.leaves(args))
        key = (getattr(jax.config, "jax_default_device", None), *leaves)
        made = self._made.get(key)
        if made is None or made.cancelled() or (made.done() and made.exception()):
            self._made[key] = pool.submit(self.function.lower(*args).compile)
        return self._made[key]
