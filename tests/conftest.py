"""Tests run in double precision, with silent promotion of ranks and types forbidden.

They compile far more than they compute, so XLA optimises little, and fuses in the way that compiles
quickly: a quarter of the time. `make demo`, the doctests and the benchmarks run what users run.
"""

import os
from importlib.metadata import version

os.environ["XLA_FLAGS"] = " ".join(
    [
        os.environ.get("XLA_FLAGS", ""),
        "--xla_backend_optimization_level=0",  # and where XLA knows it, as in 0.10:
        *["--xla_cpu_use_fusion_emitters=false"] * version("jaxlib").startswith("0.10."),
    ]
)

os.environ["MOML_CACHE"] = "off"  # those that test the cache switch it on

import jax
import optax
import pytest

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")

_bias_correction = optax.tree.bias_correction


def _lenient(*args, **kwargs):
    with jax.numpy_dtype_promotion("standard"):  # optax raises a float to an integer power
        return _bias_correction(*args, **kwargs)


optax.tree.bias_correction = _lenient


@pytest.fixture(scope="session", autouse=True)
def quiet():
    """No line about compilations, which a busy machine would add to what tests read."""
    from moml.runtime import compiling

    compiling.AFTER = 600.0
