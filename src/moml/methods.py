"""Methods: functions that compose one from a loss and keywords, and their names.

    chosen = moml.methods.moml_v1(loss, n=25, k=1, beta=0.3)
    learner = moml.fit(chosen, loss, params, tasks)

`METHODS` maps the names of the command line to these functions; `moml.plugins.register_method` adds
your own.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from moml.algorithms.federated.fedavg import fedavg, local
from moml.algorithms.federated.feddbe import feddbe
from moml.algorithms.federated.fedopt import fedadam, fedavgm, fedyogi
from moml.algorithms.federated.fedprox import feddyn, fedprox
from moml.algorithms.federated.local import localmoml, per_fedavg
from moml.algorithms.federated.mixed import apfl, fedala
from moml.algorithms.federated.pfedme import ditto, pfedme
from moml.algorithms.federated.private import fedbabu, fedbn, fedper, fedrep, lg_fedavg
from moml.algorithms.federated.remembering import fedavg_memory
from moml.algorithms.federated.scaffold import scaffold
from moml.algorithms.method import Factory, Method, factory
from moml.algorithms.method import summary as _summary
from moml.algorithms.signature import options
from moml.algorithms.single.maml import anil, fo_maml, hf_maml, maml, meta_sgd
from moml.algorithms.single.moml import moml, moml_v1, moml_v2
from moml.algorithms.single.protonet import protonet
from moml.algorithms.single.reptile import reptile
from moml.algorithms.single.scgd import nasa, scgd
from moml.algorithms.single.spider import bspiderboost
from moml.errors import ConfigError
from moml.registry import Registry
from moml.types import Loss

__all__ = [
    "METHODS", "Method", "anil", "apfl", "bspiderboost", "ditto", "factory_of", "fedadam",
    "fedala", "fedavg", "fedavg_memory", "fedavgm", "fedbabu", "fedbn", "feddbe", "feddyn",
    "fedper", "fedprox", "fedrep", "fedyogi", "fo_maml", "hf_maml", "lg_fedavg", "local",
    "localmoml", "maml", "meta_sgd", "method", "moml", "moml_v1", "moml_v2", "nasa", "per_fedavg",
    "pfedme", "protonet", "reptile", "scaffold", "scgd", "summary",
]  # fmt: skip
OURS: dict[str, Factory] = {
    "maml": maml,
    "fo-maml": fo_maml,
    "hf-maml": hf_maml,
    "moml-v1": moml_v1,
    "moml-v2": moml_v2,
    "scgd": scgd,
    "nasa": nasa,
    "bspiderboost": bspiderboost,
    "reptile": reptile,
    "localmoml": localmoml,
    "per-fedavg": per_fedavg,
    "pfedme": pfedme,
    "fedavg": fedavg,
    "fedavg-memory": fedavg_memory,
    "ditto": ditto,
    "fedprox": fedprox,
    "scaffold": scaffold,
    "feddyn": feddyn,
    "fedavgm": fedavgm,
    "fedadam": fedadam,
    "fedyogi": fedyogi,
    "local": local,
    "fedper": fedper,
    "lg-fedavg": lg_fedavg,
    "fedbn": fedbn,
    "fedrep": fedrep,
    "fedbabu": fedbabu,
    "apfl": apfl,
    "fedala": fedala,
    "feddbe": feddbe,
    "meta-sgd": meta_sgd,
    "anil": anil,
    "protonet": protonet,
    "moml": moml,
}


def _check(name: str, function: object) -> None:
    """Refuse what is no method's function."""
    if not callable(function):
        raise ConfigError(f"the method {name!r} must be a function of a loss; got {function!r}")
    options(factory_of(function))


METHODS: Registry[Factory] = Registry("method", "moml.methods", OURS, _check)


def factory_of(method: str | Callable[..., Method]) -> Factory:
    """The factory of a name in `METHODS`, or the given function with its keywords checked."""
    if not isinstance(method, str):
        if not callable(method):
            raise ConfigError(f"method must be a name, a function or a Method; got {method!r}")
        return method if hasattr(method, "checked") else _decorated(method)
    return factory_of(METHODS.find(method))


@cache
def _decorated(function: Callable[..., Method]) -> Factory:
    return factory(function)


def method(name: str, loss: Loss, **options: Any) -> Method:
    """Compose a method by its name.

    Parameters
    ----------
    name : str
        A key of `METHODS`.
    loss : callable
        `loss(params, batch)`, one floating-point number.
    **options
        The keywords of that method's function.

    Returns
    -------
    Method
        The composed method.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> method("moml-v1", lambda w, x: jnp.mean((w - x) ** 2), n=25, k=1).hyper.beta
    0.3
    """
    return factory_of(name)(loss, **options)


def summary(name: str) -> str:
    """The first line of a method's docstring.

    >>> summary("fo-maml")
    'First-order MAML: MAML with J_A = I.'
    """
    return _summary(METHODS.find(name))
