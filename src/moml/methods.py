"""Methods: functions that compose one from a loss and keywords, and their names.

    chosen = moml.methods.moml_v1(loss, n=25, k=1, beta=0.3)
    learner = moml.fit(chosen, loss, params, tasks)

`METHODS` maps the names of the command line to these functions; rows of your own may be added.
"""

from collections.abc import Callable
from typing import Any

from moml.algorithms.federated.fedavg import fedavg as fedavg
from moml.algorithms.federated.local import localmoml as localmoml
from moml.algorithms.federated.local import per_fedavg as per_fedavg
from moml.algorithms.federated.pfedme import ditto as ditto
from moml.algorithms.federated.pfedme import pfedme as pfedme
from moml.algorithms.method import Factory, Method, factory
from moml.algorithms.method import summary as _summary
from moml.algorithms.single.maml import anil as anil
from moml.algorithms.single.maml import fo_maml as fo_maml
from moml.algorithms.single.maml import hf_maml as hf_maml
from moml.algorithms.single.maml import maml as maml
from moml.algorithms.single.maml import meta_sgd as meta_sgd
from moml.algorithms.single.moml import moml as moml
from moml.algorithms.single.moml import moml_v1 as moml_v1
from moml.algorithms.single.moml import moml_v2 as moml_v2
from moml.algorithms.single.protonet import protonet as protonet
from moml.algorithms.single.reptile import reptile as reptile
from moml.algorithms.single.scgd import nasa as nasa
from moml.algorithms.single.scgd import scgd as scgd
from moml.algorithms.single.spider import bspiderboost as bspiderboost
from moml.errors import ConfigError
from moml.types import Loss

METHODS: dict[str, Factory] = {
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
    "ditto": ditto,
    "meta-sgd": meta_sgd,
    "anil": anil,
    "protonet": protonet,
    "moml": moml,
}


def factory_of(method: str | Callable[..., Method]) -> Factory:
    """The factory of a name in `METHODS`, or the given function with its keywords checked."""
    if not isinstance(method, str):
        if not callable(method):
            raise ConfigError(f"method must be a name, a function or a Method; got {method!r}")
        return method if hasattr(method, "checked") else factory(method)
    if method not in METHODS:
        raise ConfigError(f"method must be one of {', '.join(METHODS)}; got {method!r}")
    return factory_of(METHODS[method])


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
    return _summary(METHODS[name])
