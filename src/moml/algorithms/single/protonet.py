"""ProtoNet: the nearest class mean in a learned embedding."""

from moml.algorithms.method import Method, factory
from moml.algorithms.parts.choices import ANY, Inner, Sampling
from moml.algorithms.parts.heads import head_of, prototypes
from moml.algorithms.parts.memory import none
from moml.algorithms.parts.optimizer import rates
from moml.algorithms.signature import Function, Optimizer, Positive
from moml.algorithms.single.engine import single_node_method
from moml.errors import ConfigError
from moml.types import Loss


@factory
def protonet(
    loss: Loss,
    *,
    batch: Sampling = ANY,
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
    inner, hyper = (
        Inner(adapt=lambda steps: prototypes(features, head_of)),
        rates(optimizer, eta=eta),
    )
    return single_node_method(loss, inner, none(), optimizer, batch.spec(), hyper)
