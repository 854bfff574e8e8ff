"""Tests run in double precision, with silent promotion of ranks and types forbidden.

They compile far more than they compute, so XLA optimises little, and fuses in the way that compiles
quickly: a quarter of the time. `make demo`, the doctests and the benchmarks run what users run.
All processes of a run of the tests, workers and commands, share one folder of compiled programs.
Most time goes into tracing: rooms of the shell, which mypy reads, run without checks of types.
"""

import gc
import os
import tempfile
from importlib.metadata import version
from pathlib import Path

os.environ["XLA_FLAGS"] = " ".join(
    [
        os.environ.get("XLA_FLAGS", ""),
        "--xla_backend_optimization_level=0",  # and where XLA knows them, as in 0.10:
        *["--xla_cpu_use_fusion_emitters=false"] * version("jaxlib").startswith("0.10."),
        *["--xla_cpu_parallel_codegen_split_count=1"] * version("jaxlib").startswith("0.10."),
    ]
)

if "PYTEST_XDIST_WORKER" not in os.environ:  # workers have that of the process that began them
    _compiled = tempfile.TemporaryDirectory(prefix="moml-compiled-", ignore_cleanup_errors=True)
    os.environ["MOML_CACHE"] = _compiled.name
os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)  # it would be used instead
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # commands would compile their modules each time

import jax
import jaxtyping
import optax
import pytest

import tests.support.signatures  # noqa: F401  (jaxtyping's hook asks for it by this name)

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")

_bias_correction = optax.tree.bias_correction


def _lenient(*args, **kwargs):
    with jax.numpy_dtype_promotion("standard"):  # optax raises a float to an integer power
        return _bias_correction(*args, **kwargs)


optax.tree.bias_correction = _lenient


@pytest.fixture(scope="session", autouse=True)
def compilation():
    """Share compiled programs; no line about them, which a busy machine would add to outputs."""
    from moml.runtime import compile_cache, compiling

    assert compile_cache.start() == ""
    compiling.AFTER = 600.0
    gc.freeze()  # what is imported stays: collections need not go through it
    gc.set_threshold(100_000, 50, 100)  # tracing makes many objects, and few of them are garbage


SHELL = {"cli", "flower", "paper", "plugins", "report", "runs", "serving"}


@pytest.fixture(scope="module", autouse=True)
def types(request):
    """Signatures are checked but in tests of the shell."""
    room = request.path.relative_to(Path(__file__).parent).parts[0]
    jaxtyping.config.update("jaxtyping_disable", room in SHELL)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


MAPS = Path("/proc/self/maps")  # Linux allows a process 65,530 of them; a program has three


@pytest.fixture(scope="module", autouse=True)
def programs():
    """Drop the compiled programs of this process where there are many: they are in the folder."""
    yield
    if MAPS.exists() and MAPS.read_bytes().count(b"\n") > 15_000:
        jax.clear_caches()


@pytest.fixture
def no_cache_in_use():
    """No folder of compiled programs is set up in JAX, as in a process that begins."""
    name = "jax_compilation_cache_dir"
    ours = jax.config.values[name]
    jax.config.update(name, None)
    yield
    jax.config.update(name, ours)
