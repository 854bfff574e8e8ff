"""A composed method, and the decorator that makes one of a function with keywords."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import lru_cache, wraps
from textwrap import fill
from typing import Any, NamedTuple

from moml.algorithms.parts import memory as memories
from moml.algorithms.parts.optimizer import check_descends
from moml.algorithms.signature import (
    Adaptation,
    checked,
    is_group,
    keywords_in,
    parameters,
    sections,
    signature,
    unknown,
)
from moml.errors import ConfigError
from moml.types import Algorithm, Hyper, Loss, Memory

Factory = Callable[..., "Method"]


class Work(NamedTuple):
    """Gradient evaluations of one client, on a batch each."""

    gradients: int  # in a local step
    products: int = 0  # Hessian-vector products in a local step
    begin: int = 0  # gradients at the start of a round


class Method(NamedTuple):
    """A composed method, with the parts that people ask for by themselves."""

    algorithm: Algorithm
    adaptation: Adaptation  # the method's adaptation, with so many steps
    hyper: Hyper  # the defaults of its traced numbers
    memory: Memory = memories.none()
    work: Work | None = None  # of a client in a round, where there are rounds
    options: Mapping[str, Any] = {}  # its keywords with the values in use; filled by `factory`
    name: str = ""
    loss: Loss | None = None  # that it was composed with
    betas: tuple[float, ...] = ()  # that training chooses among; (): beta is that of `hyper`

    @property
    def n(self) -> int | None:
        """Tasks in all; None for a stream without end."""
        return self.options.get("n")

    @property
    def k(self) -> int:
        """Samples in each of S1, S2, S3."""
        return self.options.get("k", 1)

    @property
    def inner_steps(self) -> int:
        """Gradient steps of one adaptation."""
        return self.options.get("inner_steps", 1)

    @property
    def eager(self) -> bool:
        """Whether all memories are filled before training."""
        return self.options.get("eager", False)

    @property
    def at_once(self) -> int | None:
        """Clients that run side by side; None: as many as is best."""
        return self.options.get("at_once")


# Help for keywords that many methods share. A method's own docstring comes first.
SHARED = {
    "loss": "`loss(params, batch)`, one floating-point number.",
    "n": "Tasks in all; None for a stream without end.",
    "k": "Samples in each of S1, S2, S3; in episodes, of each class.",
    "tasks_per_step": "Tasks in a step, clients in a round, B; at most n. By default 3.",
    "eta": "Outer step size.",
    "alpha": "Inner step size.",
    "beta": "Weight of the newest point in a memory.",
    "inner_steps": "Gradient steps of one adaptation.",
    "curvature": "How the adaptation is differentiated: exact, first-order or finite-difference.",
    "leaves": 'Which parameters adapt, such as `moml.parts.named("head")`. By default all.',
    "tied": "Whether all classes start with the same output weights, so that their order does not "
    "matter: true, or a function that chooses these leaves.",
    "step_sizes": "Step sizes of the adaptation: given (alpha), or learned from there by parameter "
    "or by layer and step.",
    "adapt": "Another adaptation: a function of the number of steps, see `moml.parts`.",
    "optimizer": "Outer optimizer: sgd or adam with step size eta; in Python also a function "
    "eta -> optax transformation, or an optax transformation with its learning rate inside.",
    "independent_hessian": "Whether S2 is drawn apart from S1, as in the paper.",
    "both_ways": "Whether S1 and S3 swap roles in a second pass: twice the work, less noise.",
    "eager": "Whether all memories are filled before training.",
    "memory_dtype": "Memories in float32, or in bfloat16 for half the bytes.",
    "local_steps": "Local steps of a client in a round, H.",
    "local_epochs": "Passes of a client over its own samples in a round, instead of local_steps.",
    "batch_size": "Samples of a local step; another name of k.",
    "private": "Leaves that stay at their client, as a regular expression of their names, such as "
    "head. By default none.",
    "server_rate": "Step size of the server.",
    "b1": "How much of the last average of the models' mean change stays.",
    "b2": "How much of the last average of its square stays.",
    "tau": "What is added to the square root of that average, which begins at its square.",
    "dropout": "Probability that a client's answer is lost.",
    "straggle": "Probability that a client does only 1 to H - 1 local steps.",
    "weighted": "Whether clients count by their numbers of samples in the server's mean.",
    "at_once": "Clients that run side by side. By default all of a round; on a CPU those whose "
    "models fit into its cache.",
}
BOTH = "optimizer must be a function eta -> transformation where eta is given; got a transformation"
SERVER = "The server's optax transformation, applied to w - mean. By default it takes the mean."
CLIENTS = {  # of federated methods that adapt only when they are used
    "eta": "Step size of the clients.",
    "alpha": "Step size of the adaptation when the model is used.",
    "inner_steps": "Gradient steps of the adaptation when the model is used.",
}
RETURNS = "Method\n    The composed method: give it to `moml.fit` or `moml.sweep`.\n"


def factory(function: Factory) -> Factory:
    """Decorate a function that composes a method from a loss and keywords.

    Keywords are checked against their annotations (see `moml.parts`), the method gets the
    function's name and its keywords' values, the docstring gets help for shared keywords. A
    parameter that is a `moml.parts.Group` stands for the keywords of that group.

    Parameters
    ----------
    function : callable
        `function(loss, *, n, k=1, ...)`, a `Method`.

    Returns
    -------
    callable
        The same function with checks; `moml.fit` takes it in place of a name.
    """
    return _checking(function, function, signature(function), {})


def variant(
    of: Factory, fixed: dict[str, object], **defaults: object
) -> Callable[[Callable[[], None]], Factory]:
    """Decorate a docstring: a method with the keywords of another, some fixed, some defaults new.

    Parameters
    ----------
    of : callable
        The other method's function.
    fixed : dict
        Keywords that the variant does not have, and their values.
    **defaults
        Defaults that differ.

    Returns
    -------
    callable
        A decorator of a function of the variant's name and docstring.
    """
    given = signature(of)
    left = [p for name, p in given.parameters.items() if name not in fixed]
    left = [p.replace(default=defaults.get(p.name, p.default)) for p in left]
    composes = of.__wrapped__  # type: ignore[attr-defined]
    return lambda named: _checking(named, composes, given.replace(parameters=left), fixed)


def _checking(
    named: Callable[..., Any],
    composes: Factory,
    given: inspect.Signature,
    fixed: dict[str, object],
) -> Factory:
    """A function with the first one's name, and this signature, that calls the second one."""
    own = getattr(named, "func", named)  # of a partial
    name = getattr(own, "__name__", "method").replace("_", "-")
    known = keywords_in(given, own.__doc__ or "")

    @wraps(named)
    def composed(loss: Callable[..., Any], **given: Any) -> Method:
        for option in given:
            if option not in known:
                raise unknown(name, option, known)
        default = lambda o: not (known[o].optional or known[o].required)
        given = {o: v for o, v in given.items() if v is not None or not default(o)}
        for option, keyword in known.items():
            if keyword.required and option not in given:
                raise ConfigError(f"{name} needs {option}: {keyword.help or 'it has no default'}")
        values = {o: checked(o, known[o], value) for o, value in given.items()}
        if values.get("optimizer") is not None:
            check_descends(values["optimizer"])
        used = {o: keyword.default for o, keyword in known.items()} | values | fixed
        made = composes(loss, **_arguments(composes, used))
        if not isinstance(made, Method):
            raise ConfigError(f"{name} must return a moml.parts.Method; got {made!r}")
        if "eta" in given and not hasattr(made.hyper, "eta"):
            raise ConfigError(BOTH)
        made = _shared(composes, loss, used, made)
        traced = {o: value for o, value in made.hyper._asdict().items() if o in known}
        options = used | dict(made.options) | traced
        return made._replace(options=options, name=made.name or name, loss=loss)

    composed.__doc__ = _documented(own.__doc__ or "", given)
    composed.__signature__ = given  # type: ignore[attr-defined]
    composed.checked = True  # type: ignore[attr-defined]
    return composed


def _shared(function: Factory, loss: object, used: Mapping[str, Any], made: Method) -> Method:
    """The same method with the functions of an equal one that was composed before, if there is one.

    So it uses the programs that were compiled for that one. Our methods take their numbers from
    `Hyper`, so other numbers are no other functions; a user's method may close over them.
    """
    ours = str(getattr(function, "__module__", "")).startswith("moml.")
    numbers = made.hyper._asdict() if ours else {}
    try:
        others = frozenset(item for item in used.items() if item[0] not in numbers)
        first = _composed(function, loss, others)
    except TypeError:  # a keyword that cannot be hashed
        return made
    if not first:
        first.append(made)
    same = first[0]
    return made._replace(algorithm=same.algorithm, adaptation=same.adaptation, memory=same.memory)


@lru_cache(maxsize=256)
def _composed(function: Factory, loss: object, keywords: frozenset[Any]) -> list[Method]:
    """The first method composed with these keywords, once it is put here."""
    return []


def _arguments(function: Factory, values: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords of a function, those of a group in one object."""
    found = {}
    for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
        if is_group(parameter):
            group = parameter.annotation
            found[name] = group(**{f.name: values[f.name] for f in fields(group)})
        elif name in values:
            found[name] = values[name]
    return found


def _documented(doc: str, given: inspect.Signature) -> str:
    """The docstring with help for all parameters, and with what is returned."""
    parts, lines = sections(doc), []
    if not parts[""]:
        return ""
    texts = SHARED | ({"optimizer": SERVER} if "local_steps" in given.parameters else {})
    if "local_steps" in given.parameters and "curvature" not in given.parameters:
        texts |= CLIENTS
    texts |= parameters(doc)
    for name, parameter in given.parameters.items():
        text = texts.get(name, "")
        default = parameter.default
        kind = "optional" if default is None or callable(default) else f"default {default!r}"
        kind = "required" if default is inspect.Parameter.empty else kind
        lines.append(f"{name} : {kind}\n{_indented(text)}\n")
    rest = {"Parameters": "".join(lines), "Returns": RETURNS} | {
        title: text for title, text in parts.items() if title and title != "Parameters"
    }
    head = parts[""].rstrip()
    return head + "".join(f"\n\n{t}\n{'-' * len(t)}\n{x.rstrip()}" for t, x in rest.items()) + "\n"


def _indented(text: str) -> str:
    return fill(text, 96, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)


def summary(made_by: Factory) -> str:
    """The first line of a factory's docstring."""
    return (made_by.__doc__ or "").strip().partition("\n")[0]
