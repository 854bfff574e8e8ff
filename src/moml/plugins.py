"""What users add by name: problems, methods and models.

Call these functions in a module of your own, and name that module in commands: `--plugin MODULE`.
See the guide, "A problem of your own".
"""

from moml.algorithms.method import Factory
from moml.config.models import MODELS, Network
from moml.config.problems import PROBLEMS, Problem
from moml.methods import METHODS

__all__ = ["register_method", "register_model", "register_problem"]


def register_problem(name: str, problem: type[Problem]) -> None:
    """Add a problem for configurations: `kind = "NAME"` in the section [problem].

    Parameters
    ----------
    name
        Letters, digits, `.`, `_` and `-`.
    problem
        A frozen dataclass, derived from `moml.problems.Problem`.

    Returns
    -------
    None
        A name that is taken by another class raises a ConfigError.

    >>> import moml
    >>> moml.plugins.register_problem("sine", moml.problems.Sine)  # it is there already
    """
    PROBLEMS.add(name, problem)


def register_method(name: str, factory: Factory) -> None:
    """Add a method for `fit`, `sweep` and configurations: `method = "NAME"`.

    Parameters
    ----------
    name
        Letters, digits, `.`, `_` and `-`.
    factory
        A function of a loss and keywords that returns a `moml.parts.Method`; its signature and
        docstring are the options and their help.

    Returns
    -------
    None
        A name that is taken by another function raises a ConfigError.

    >>> import moml
    >>> moml.plugins.register_method("maml", moml.methods.maml)  # it is there already
    """
    METHODS.add(name, factory)


def register_model(name: str, function: Network) -> None:
    """Add a network for the problem `clients`: `model = "NAME"` in the section [problem].

    Parameters
    ----------
    name
        Letters, digits, `.`, `_` and `-`.
    function
        `function(shape, outputs)`, a `moml.models.Model` for inputs of this shape, many at a time.

    Returns
    -------
    None
        A name that is taken by another function raises a ConfigError.

    >>> import moml
    >>> linear = lambda shape, outputs: moml.mlp(shape[0] * shape[1] * shape[2], outputs)
    >>> moml.plugins.register_model("linear", linear)
    """
    MODELS.add(name, function)
