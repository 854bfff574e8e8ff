"""ProtoNet: the nearest class mean in a learned embedding."""

from typing import Any

from moml.algorithms.method import Method, factory
from moml.algorithms.parts.choices import batch_size, spec
from moml.algorithms.parts.heads import prototypes
from moml.algorithms.parts.memory import none
from moml.algorithms.parts.optimizer import rates
from moml.algorithms.signature import Count, Function, Optimizer, Positive
from moml.algorithms.single.engine import single_node
from moml.errors import ConfigError
from moml.types import Loss, Params


def _head(params: Params) -> Any:
    return params["head"] if isinstance(params, dict) else params.head


@factory
def protonet(
    loss: Loss,
    *,
    n: Count | None = None,
    k: Count = 1,
    tasks_per_step: Count | None = None,
    eta: Positive = 0.001,
    features: Function | None = None,
    optimizer: Optimizer = "adam",
) -> Method:
    """ProtoNet: the nearest class mean in an embedding that is learned.

    score_j = -|f(x) - c_j|^2,    c_j the mean embedding of class j in S1

    Parameters
    ----------
    features : callable
        `features(params, x)`, the network's embedding, such as `net.features`; required.

    Examples
    --------
    >>> import moml
    >>> net = moml.mlp(2, 8, 3)
    >>> loss = moml.cross_entropy(net.predict)
    >>> moml.methods.protonet(loss, features=net.features).hyper
    Hyper(eta=0.001)
    """
    if features is None:
        raise ConfigError("protonet needs the network's features: give features=net.features")
    adaptation = lambda steps: prototypes(features, _head)
    b = batch_size("tasks_per_step", tasks_per_step, 3, n)
    algorithm = single_node(loss, adaptation(1), none(), optimizer, spec(b, k))
    hyper = rates(optimizer, eta=eta)
    return Method(algorithm, adaptation, hyper, options={"tasks_per_step": b})
