"""Memory-based meta-learning and personalised federated learning in JAX.

Train one model that becomes yours after a few gradient steps on your few samples:

    net = moml.mlp(1, 40, 40, 1)
    loss = moml.mse(net.predict)
    learner = moml.fit("moml", loss, net.init(key), moml.sine(), k=1, shots=10)
    mine = learner.adapt(my_samples)
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.2.0"
_PUBLIC = {  # imported at first use: `moml --help` needs no JAX
    "moml.algorithms.single.matching": "match_beta",
    "moml.errors": "CheckpointError ConfigError DataError Diverged MomlError",
    "moml.methods": "methods",
    "moml.models": "accuracy conv4 cross_entropy from_equinox masked_mean mlp mse",
    "moml.parts": "parts",
    "moml.tabular.run": "load",
    "moml.tabular.train": "train_table",
    "moml.tasks": "episodes from_arrays from_rows sine synthetic unseen_sine",
    "moml.training.evaluate": "evaluate",
    "moml.training.fit": "Learner fit",
    "moml.training.sweep": "sweep",
    "moml.types": "Batch Hyper Tasks",
}
_MODULE = {name: module for module, names in _PUBLIC.items() for name in names.split()}
__all__ = sorted(_MODULE)

if TYPE_CHECKING:
    from moml import methods as methods
    from moml import parts as parts
    from moml.algorithms.single.matching import match_beta as match_beta
    from moml.errors import CheckpointError as CheckpointError
    from moml.errors import ConfigError as ConfigError
    from moml.errors import DataError as DataError
    from moml.errors import Diverged as Diverged
    from moml.errors import MomlError as MomlError
    from moml.models import accuracy as accuracy
    from moml.models import conv4 as conv4
    from moml.models import cross_entropy as cross_entropy
    from moml.models import from_equinox as from_equinox
    from moml.models import masked_mean as masked_mean
    from moml.models import mlp as mlp
    from moml.models import mse as mse
    from moml.tabular.run import load as load
    from moml.tabular.train import train_table as train_table
    from moml.tasks import episodes as episodes
    from moml.tasks import from_arrays as from_arrays
    from moml.tasks import from_rows as from_rows
    from moml.tasks import sine as sine
    from moml.tasks import synthetic as synthetic
    from moml.tasks import unseen_sine as unseen_sine
    from moml.training.evaluate import evaluate as evaluate
    from moml.training.fit import Learner as Learner
    from moml.training.fit import fit as fit
    from moml.training.sweep import sweep as sweep
    from moml.types import Batch as Batch
    from moml.types import Hyper as Hyper
    from moml.types import Tasks as Tasks
else:

    def __getattr__(name: str) -> object:
        """A public name, from its module."""
        if name not in _MODULE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = import_module(_MODULE[name])
        value = module if name in ("methods", "parts") else getattr(module, name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        """The public names, also those that are not imported yet."""
        return sorted({*globals(), *__all__})
