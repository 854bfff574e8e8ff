import jax
import pytest

CACHE = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs",
         "jax_persistent_cache_min_entry_size_bytes")  # fmt: skip


@pytest.fixture(autouse=True)
def not_kept(monkeypatch):
    """What is compiled here is kept by nobody: other tests would see it."""
    from moml.flower.app import client_app

    before = {name: getattr(jax.config, name) for name in CACHE}
    monkeypatch.setattr(client_app, "keep_compiled", lambda node: None)
    yield
    for name, value in before.items():
        jax.config.update(name, value)
