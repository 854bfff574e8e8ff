"""Memory-based meta-learning and personalised federated learning in JAX.

Train one model that becomes yours after a few gradient steps on your few samples:

    net = moml.mlp(1, 40, 40, 1)
    loss = moml.mse(net.predict)
    learner = moml.fit("moml", loss, net.init(key), moml.sine(), k=1, shots=10)
    mine = learner.adapt(my_samples)
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moml import methods, parts, problems
    from moml.algorithms.single.matching import match_beta
    from moml.errors import MomlError
    from moml.models import (
        accuracy,
        cnn,
        cross_entropy,
        from_equinox,
        from_linen,
        from_nnx,
        from_torch_state,
        masked_mean,
        mlp,
        mse,
    )
    from moml.tabular.run import load
    from moml.tabular.train import train_table
    from moml.tasks import (
        episodes,
        from_arrays,
        from_files,
        from_lists,
        from_rows,
        sine,
        synthetic,
        unseen_sine,
    )
    from moml.training.evaluate import evaluate
    from moml.training.fit import Learner, fit
    from moml.training.sweep import sweep
    from moml.types import Batch, Hyper, Tasks

__all__ = [
    "Batch", "Hyper", "Learner", "MomlError", "Tasks", "accuracy", "cnn", "cross_entropy",
    "episodes", "evaluate", "fit", "from_arrays", "from_equinox", "from_files", "from_linen",
    "from_lists", "from_nnx", "from_rows", "from_torch_state", "load", "masked_mean", "match_beta",
    "methods", "mlp", "mse", "parts", "problems", "sine", "sweep", "synthetic", "train_table",
    "unseen_sine",
]  # fmt: skip
__version__ = "0.2.0"
_MODULES = {  # imported at first use: `moml --help` needs no JAX
    "algorithms.single.matching": "match_beta",
    "errors": "MomlError",
    "models": "accuracy cnn cross_entropy from_equinox from_linen from_nnx from_torch_state "
    "masked_mean mlp mse",
    "tabular.run": "load",
    "tabular.train": "train_table",
    "tasks": "episodes from_arrays from_files from_lists from_rows sine synthetic unseen_sine",
    "training.evaluate": "evaluate",
    "training.fit": "Learner fit",
    "training.sweep": "sweep",
    "types": "Batch Hyper Tasks",
}
_MODULE = {name: module for module, names in _MODULES.items() for name in names.split()}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """A public name, from its module; or a module, such as `moml.data`."""
        try:
            module = import_module(f"moml.{_MODULE.get(name, name)}")
        except ModuleNotFoundError as error:
            if error.name != f"moml.{name}":
                raise
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from error
        globals()[name] = getattr(module, name) if name in _MODULE else module
        return globals()[name]

    def __dir__() -> list[str]:
        """The public names, also those that are not imported yet."""
        return sorted({*globals(), *__all__})
