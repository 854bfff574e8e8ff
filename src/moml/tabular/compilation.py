"""How the programs of tables are compiled: quickly, and side by side."""

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import jax
import numpy as np
from jax.stages import Compiled, Wrapped
from jaxtyping import PyTree


def jit(
    function: Callable[..., object], level: int = 1, donate_argnums: int | None = None
) -> Wrapped:
    """Compile with less optimisation of machine code: half the seconds, and no slower programs.

    The level is that of XLA_FLAGS, if it is set there; other devices than CPUs have their own.
    """
    name = "xla_backend_optimization_level"
    ours = jax.default_backend() == "cpu" and name not in os.environ.get("XLA_FLAGS", "")
    options = {name: level} if ours else None
    return jax.jit(function, donate_argnums=donate_argnums, compiler_options=options)


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
