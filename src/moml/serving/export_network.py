"""Export of a run by `moml train CONFIG`: a fully connected network that adapts by steps."""

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
from jaxtyping import PyTree

from moml.algorithms.parts.adapt import all_leaves
from moml.algorithms.parts.choices import tied_leaves
from moml.config.config import Config, composed, kind_of
from moml.config.problems import Clients
from moml.config.problems.clients import images_of, shift_of, split_of
from moml.errors import ConfigError
from moml.methods import factory_of
from moml.runs.record import record_of
from moml.runs.runs import load
from moml.storage.arrays import named_leaves
from moml.storage.metrics import read
from moml.training.fit import Learner
from moml.training.personal import parts_that_keep
from moml.types import Params, Record

CAN = "only fully connected networks that adapt by gradient steps can be exported"


def network_card(run: Path, client: int | None = None) -> tuple[Record, dict[str, np.ndarray]]:
    """The card and the arrays of a run's newest good checkpoint, or of what a client keeps."""
    _, config = record_of(run)
    for what in (type(config.problem), factory_of(config.method)):
        if not what.__module__.startswith("moml."):
            raise ConfigError(f"{run} has {what.__module__}.{what.__name__}; {CAN}")
    if (network := getattr(config.problem, "model", "mlp")) != "mlp":
        raise ConfigError(f"{run} has the network {network}; {CAN}")
    if config.method == "protonet":
        raise ConfigError(f"{run} is of the method protonet; {CAN}")
    learner, about = load(run), Record(model="global")
    if client is not None:
        learner, about = _of_client(learner, client), Record(model="kept", client=client)
    card, arrays = described(config, learner, _shift(config))
    return card | about | {"scores": read(run / "metrics.jsonl")[-1:]}, arrays


def keeps_models(run: Path) -> bool:
    """Whether the folder is a run whose clients keep models."""
    if not (run / "run.json").exists():
        return False
    return parts_that_keep(composed(record_of(run)[1])) is not None


def _of_client(learner: Learner, client: int) -> Learner:
    """The learner with the model that a client keeps in the place of the common one."""
    own, meta = learner.personal(client), learner.meta
    given = learner.method.options.get("step_sizes", "given") == "given"
    return replace(learner, meta=own if given else meta._replace(params=own))


def described(
    config: Config, learner: Learner, shift: dict[str, float]
) -> tuple[Record, dict[str, np.ndarray]]:
    """The card and the arrays of a model trained with this configuration."""
    options = learner.method.options
    step_sizes = options.get("step_sizes", "given")
    given = step_sizes == "given"
    params = learner.meta if given else learner.meta.params
    layers = len(jax.tree.leaves(params)) // 2
    by_place = lambda tree, start="": {
        start + _place(name, layers): np.asarray(leaf) for name, leaf in named_leaves(tree).items()
    }
    arrays = by_place(params)
    if not given:
        arrays |= by_place(learner.meta.log_alpha, "log_alpha/")
    card = {
        "kind": "network", "problem": kind_of(config.problem), "method": config.method,
        "layers": layers, "loss": "cross_entropy" if config.problem.classifies else "mse",
        "leaves": _chosen(options.get("leaves", all_leaves)(params), params),
        "tied": any(jax.tree.leaves(tied_leaves(options.get("tied", False))(params))),
        "step_sizes": step_sizes, "alpha": float(learner.hyper.alpha),
        "steps": config.test_steps, "shift": shift,
    }  # fmt: skip
    return card, arrays


def _place(name: str, layers: int) -> str:
    """The name of an array in an export, where the head is the last layer.

    >>> _place("body/1/bias", 3), _place("head/bias", 3)
    ('1/bias', '2/bias')
    """
    part = name.rpartition("/")[2]
    return f"{layers - 1}/{part}" if name.startswith("head") else f"{name.split('/')[1]}/{part}"


def _chosen(leaves: PyTree[bool], params: Params) -> str:
    """Which leaves adapt: "all", or those of the "head"."""
    names = {name for name, chosen in named_leaves(leaves).items() if chosen}
    return "all" if names == set(named_leaves(params)) else "head"


def _shift(config: Config) -> dict[str, float]:
    """What is subtracted from the inputs, and what they are divided by."""
    if not isinstance(config.problem, Clients):
        return {"mean": 0.0, "std": 1.0}
    train, test = images_of(config.problem)
    mean, std = shift_of(train, split_of(config.problem, train.y, test.y))
    return {"mean": mean, "std": std}
