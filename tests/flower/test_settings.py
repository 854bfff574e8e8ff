"""What a run and a node are told: defaults that work, and what cannot be in one line."""

from pathlib import Path

import jax
import pytest

from moml.config.starts import STARTS
from moml.config.toml import dump
from moml.errors import ConfigError
from moml.flower.app.client_app import keep_compiled
from moml.flower.app.settings import DEFAULTS, Node, node_of, read

WHERE = {"partition-id": 1, "num-partitions": 3}


def test_defaults(monkeypatch):
    monkeypatch.setenv("FLWR_HOME", "/somewhere")
    told = read({})
    assert told == read(DEFAULTS)
    assert told.config == STARTS["synthetic-clients"] and told.rounds == 10
    assert told.out == Path("/somewhere/moml/moml") and told.privacy is None


def test_a_configuration_as_text_by_name_and_with_changes():
    config = STARTS["mnist-clients"]
    assert read({"config": dump(config)}).config == read({"config": "mnist-clients"}).config
    told = read({"config": dump(config), "method": "localmoml", "rounds": 7})
    assert (told.config.method, told.rounds, told.config.iterations) == ("localmoml", 7, 35)


@pytest.mark.parametrize(
    "told, words",
    [
        ({"experiment": "../../etc"}, "experiment must be letters"),
        ({"experiment": ".."}, "experiment must be letters"),
        ({"experiment": ""}, "experiment must be letters"),
        ({"config": "nosuch"}, "config is not TOML"),
        ({"config": "sine"}, "moml has no rounds; allowed: localmoml, per-fedavg"),
        ({"config": "omniglot", "method": "fedavg"}, "episodes have no clients"),
        ({"method": "maml"}, "maml has no rounds"),
        ({"rounds": -1}, "rounds must be a whole number from 0"),
        ({"rounds": "3"}, "rounds must be like 0; got '3'"),
        ({"min-nodes": 0}, "min-nodes must be a whole number from 1"),
        ({"timeout": 0.0}, "timeout must be a number above 0"),
    ],
)
def test_a_run_that_cannot_be(told, words):
    with pytest.raises(ConfigError, match=words) as refused:
        read(told)
    assert "\n" not in str(refused.value)


def test_a_node():
    assert node_of(WHERE) == Node(1, 3, None, None)
    assert node_of(WHERE | {"state-dir": "/s", "data": "d"}) == Node(1, 3, Path("/s"), "d")
    for told in ({}, {"partition-id": 3, "num-partitions": 3}, {"partition-id": 0}):
        with pytest.raises(ConfigError, match=r"partition"):
            node_of(told)


@pytest.mark.usefixtures("no_cache_in_use")
def test_what_is_compiled_is_kept_beside_the_memories(tmp_path):
    keep_compiled(Node(0, 1, None, None))
    assert jax.config.jax_compilation_cache_dir is None
    keep_compiled(Node(0, 1, tmp_path, None))
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "compiled")
    keep_compiled(Node(0, 1, tmp_path / "other", None))  # a user's own choice stays
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "compiled")
