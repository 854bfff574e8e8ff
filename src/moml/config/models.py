"""Networks by name: functions of the shape of one input and the number of outputs."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from moml.errors import ConfigError
from moml.models import Model, cnn, conv4, mlp, resnet18
from moml.registry import Registry

Network = Callable[[tuple[int, ...], int], Model]


def check_function(name: str, function: object) -> None:
    """Refuse what is no function."""
    if not callable(function):
        raise ConfigError(
            f"the model {name!r} must be a function of a shape and a number of outputs; "
            f"got {function!r}"
        )


MODELS: Registry[Network] = Registry(
    "problem.model",
    "moml.models",
    {
        "mlp": lambda shape, outputs: mlp(math.prod(shape), 40, 40, outputs),
        "cnn": lambda shape, outputs: cnn(shape[-1], outputs, side=shape[0]),
        "resnet18": lambda shape, outputs: resnet18(shape[-1], outputs),
        "conv4": lambda shape, outputs: conv4(shape[-1], outputs, norm="sample"),
    },
    check_function,
)


def network(name: str, shape: tuple[int, ...], outputs: int) -> Model:
    """The network of this name for K inputs of this shape; its predictions are [K, outputs].

    Parameters
    ----------
    name
        mlp, cnn, resnet18, conv4, or that of a registered model.
    shape
        Of one input.
    outputs
        Numbers that are predicted, such as logits.

    Returns
    -------
    Model
        The network; what a registered function returns is checked.

    >>> network("mlp", (28, 28, 1), 10).init(jax.random.key(0)).head.bias.shape
    (10,)
    """
    net = MODELS.find(name)(shape, outputs)
    if not isinstance(net, Model):
        raise ConfigError(f"the model {name!r} must return a moml.models.Model; got {net!r}")
    inputs = jax.ShapeDtypeStruct((2, *shape), jnp.result_type(float))
    found = jax.eval_shape(lambda x: net.predict(net.init(jax.random.key(0)), x), inputs)
    if getattr(found, "shape", None) != (2, outputs):
        raise ConfigError(
            f"the model {name!r} must predict [K, {outputs}] from [K, {', '.join(map(str, shape))}]"
            f"; got {found}"
        )
    return net
