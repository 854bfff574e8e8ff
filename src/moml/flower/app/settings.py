"""The settings of a Flower run: of its app folder (the run), and of each machine (the node)."""

import math
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from moml.config.config import Config, check, options_of, with_method
from moml.config.problems import Episodes, one_of
from moml.config.starts import STARTS
from moml.config.toml import parse
from moml.errors import ConfigError, check_count
from moml.methods import METHODS
from moml.types import Record

START = "synthetic-clients"
ACTIONS = {"": "train", "server": "train", "client": "train.clipped", "local": "train.noised"}
NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")
DEFAULTS: Record = {
    "config": "",
    "experiment": "moml",
    "method": "",
    "rounds": 0,
    "out": "",
    "min-nodes": 1,
    "timeout": 600.0,
    "privacy": "",
    "clipping-norm": 1.0,
    "noise-multiplier": 1.0,
    "delta": 1e-5,
}


class Privacy(NamedTuple):
    """Differential privacy: who clips and adds noise, and how much of it."""

    where: str  # server, client (which clips; the server adds the noise) or local
    clipping_norm: float
    noise_multiplier: float
    delta: float


class Settings(NamedTuple):
    """A run: the experiment, as `moml train` has it, and how it is run."""

    config: Config
    experiment: str
    rounds: int
    out: Path
    min_nodes: int
    timeout: float
    privacy: Privacy | None

    @property
    def action(self) -> str:
        """The type of the messages that ask for a round's work."""
        return ACTIONS["" if self.privacy is None else self.privacy.where]


class Node(NamedTuple):
    """A machine: task i is its own if i % partitions == partition."""

    partition: int
    partitions: int
    state: Path | None  # folder of the memories
    data: str | None  # folder of the data sets, instead of MOML_DATA


def read(run: Mapping[str, object]) -> Settings:
    """Return the settings of a run, checked.

    >>> read({"rounds": 3, "method": "fedavg"}).rounds
    3
    """
    for key, usual in DEFAULTS.items():
        kind = float | int if isinstance(usual, float) else type(usual)
        if not isinstance(run.get(key, usual), kind):
            raise ConfigError(f"{key} must be like {usual!r}; got {run[key]!r}")
    given = DEFAULTS | {key: run[key] for key in DEFAULTS if key in run}
    experiment = given["experiment"]
    if not NAME.fullmatch(experiment):  # a folder of this name is made
        raise ConfigError(f"experiment must be letters, digits, . _ -; got {experiment!r}")
    config = experiment_of(given["config"], given["method"], given["rounds"])
    timeout = _positive("timeout", given["timeout"])
    home = os.environ.get("FLWR_HOME") or Path.home() / ".flwr"
    out = Path(given["out"] or Path(home) / "moml" / experiment)
    return Settings(
        config,
        experiment,
        math.ceil(config.iterations / _in_a_round(config)),
        out,
        check_count("min-nodes", given["min-nodes"]),
        timeout,
        _privacy(given, config),
    )


def _in_a_round(config: Config) -> int:
    """Iterations of a round: its local steps; a round of epochs is one iteration."""
    return 1 if config.option("local_epochs") else config.option("local_steps")


@cache
def experiment_of(text: str, method: str = "", rounds: int = 0) -> Config:
    """Return the configuration in a text, or of that name; method and rounds replace its own."""
    named = STARTS.get(text.strip() or START)
    config = parse(text, "config") if named is None else named
    if method:
        config = with_method(config, method)
    if check_count("rounds", rounds, least=0):
        config = replace(config, iterations=rounds * _in_a_round(config))
    federated = [name for name in METHODS if "local_steps" in options_of(name)]
    if config.method in METHODS and config.method not in federated:
        raise ConfigError(f"{config.method} has no rounds; allowed: {', '.join(federated)}")
    if isinstance(config.problem, Episodes):
        raise ConfigError(
            "episodes have no clients: problem.kind must be synthetic, clients, table or sine"
        )
    return check(config)


def node_of(node: Mapping[str, object]) -> Node:
    """Return the settings of a node, checked."""
    for key in ("partition-id", "num-partitions"):
        if key not in node:
            raise ConfigError(f"--node-config must have {key}")
    count = check_count("num-partitions", node["num-partitions"])
    state, data = node.get("state-dir"), node.get("data")
    return Node(
        check_count("partition-id", node["partition-id"], least=0, below=count),
        count,
        Path(str(state)) if state else None,
        str(data) if data else None,
    )


def _positive(name: str, value: float) -> float:
    if not 0 < value < math.inf:
        raise ConfigError(f"{name} must be a number above 0; got {value:g}")
    return float(value)


def _privacy(given: Record, config: Config) -> Privacy | None:
    where = given["privacy"]
    one_of("privacy", where, ACTIONS)
    if not where:
        return None
    for name in ("weighted", "dropout"):
        if config.option(name):
            raise ConfigError(f"privacy needs all clients, with equal weights: leave out {name}")
    delta = _positive("delta", given["delta"])
    if delta >= 1:
        raise ConfigError(f"delta must be below 1; got {delta:g}")
    norm, noise = (_positive(name, given[name]) for name in ("clipping-norm", "noise-multiplier"))
    return Privacy(where, norm, noise, delta)
