"""The configuration of a run: a frozen dataclass, validated once. Text under a field is its help.

The options of a method are not listed here: they come from its signature.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from numbers import Real
from typing import Any

import jax
import numpy as np

from moml.algorithms.method import Method
from moml.algorithms.signature import Keyword, checked, keywords, options, unknown
from moml.config.plugins import check_imported
from moml.config.problems import PROBLEMS, Problem
from moml.config.problems.problem import not_negative, one_of
from moml.config.values import typed, value_of
from moml.errors import ConfigError, check_count
from moml.methods import factory_of, method
from moml.types import Record

Option = int | float | bool | str | None
LINES, SCORES = 10, 5  # of metrics, and among them scores, in a run by rounds; at least


@dataclass(frozen=True, init=False)
class Config:
    """One run: the problem, the method with its options, how long, and what is kept of it."""

    problem: Problem
    """What is learned: sine, synthetic, episodes, clients, table or a registered problem, with
    fields of its own."""
    method: str = "moml"
    """Name of the method: `moml methods` has a line on each."""
    plugin: tuple[str, ...] = ()
    """Modules that register problems, methods and models. They are imported only where --plugin
    names them as well."""
    iterations: int = 40_000
    """The paper's iterations in all; from 1. A round is as many as its local steps, or one where
    clients count epochs."""
    rounds: int | None = None
    """Of a federated method, instead of iterations: rounds in all; from 1."""
    seed: int = 0
    """Of the first network and of all that is drawn; from 0."""
    shots: int = 10
    """Samples that a user will adapt on (in episodes, of each class): scores use as many. Also used
    to choose moml's beta; from 1."""
    test_steps: int = 10
    """Steps that a user will adapt with: scores take as many. Also used to choose moml's beta; from
    1."""
    test_tasks: int = 500
    """Unseen tasks that a score is the mean of; from 1. Of clients and tables all are scored."""
    memory: str = "ram"
    """Where memories live: ram, or disk where they outgrow it (the run's folder, or memory_dir)."""
    memory_dir: str | None = None
    """Folder for memories on disk. By default memory in the run's folder."""
    schedule: str = "drop"
    """Of eta: drop (at decay_after), or cosine (falls to a hundredth along half a cosine)."""
    decay_after: float = 0.75
    """Share of the iterations after which eta drops to a tenth; above 0, up to 1 (never)."""
    log_every: int = 1000
    """Iterations in one line of metrics, and in one compiled stretch; from 1. Where rounds are
    given, at most a tenth of the run: ten lines, or one for each round."""
    score_every: int = 10_000
    """Iterations between scores on unseen tasks; a multiple of log_every, or 0: only at the end. Of
    clients a score is that of the models they keep, or else of the model adapted to their shots.
    Where rounds are given, at most a fifth of the run."""
    save_seconds: float = 300.0
    """Least time between two checkpoints; from 0 (one after every line of metrics)."""
    keep: int = 2
    """Newest checkpoints that are kept, besides the best one; from 1."""
    options: Mapping[str, Option] = field(default_factory=dict, hash=False)
    """Keywords of the method, by name: eta, k, tasks_per_step and so on."""

    def __init__(self, problem: Problem, **values: Any):
        """Set the fields; any other keyword is an option of the method, None meaning its default.

        >>> from moml.config.problems import Sine
        >>> Config(Sine(), method="maml", iterations=100, eta=0.1, k=None).options
        {'eta': 0.1}
        """
        options = dict(values.pop("options", {}))
        object.__setattr__(self, "problem", problem)
        for f in fields(Config):
            if f.name not in ("problem", "options"):
                object.__setattr__(self, f.name, values.pop(f.name, f.default))
        options = {name: value for name, value in (options | values).items() if value is not None}
        object.__setattr__(self, "options", options)

    def option(self, name: str) -> Any:
        """The value of an option: as given, else the method's default, None where it has none.

        >>> from moml.config.problems import Sine
        >>> Config(Sine(), method="maml", eta=0.1).option("k")
        1
        """
        known = options_of(self.method)
        return self.options.get(name, known[name].default if name in known else None)

    def flat(self) -> dict[str, Any]:
        """All fields but the problem's, with the options among them."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        del values["problem"], values["options"]
        return values | dict(self.options)


def options_of(method: str) -> dict[str, Keyword]:
    """The options of a method that are fields of a configuration, from its signature."""
    run = {f.name for f in fields(Config)}
    return {n: k for n, k in options(factory_of(method)).items() if n not in run}


def _typed_options(config: Config) -> dict[str, Option]:
    known, values = options_of(config.method), {}
    for name, value in config.options.items():
        if name not in known:
            raise unknown(config.method, name, known)
        kind = known[name].allowed.kind
        if kind is float and isinstance(value, Real):
            value = value_of(name, float, value)
        values[name] = checked(name, known[name], value)
        if kind is int:
            check_count(name, value, below=2**31)
        word = values[name] in known[name].allowed.words
        if kind is not None and not word and not isinstance(values[name], kind):
            raise ConfigError(f"{name} must be {known[name].allowed.text}; got {value!r}")
    return values


def check(config: Config) -> Config:
    """The same configuration, if it can be run; else a ConfigError that names the field.

    >>> from moml.config.problems import Sine
    >>> check(Config(Sine(), beta=1.5))
    Traceback (most recent call last):
        ...
    moml.errors.ConfigError: beta must be in (0, 1], auto or rule; got 1.5
    """
    if type(config.problem) not in PROBLEMS.values():
        raise ConfigError(f"problem must be one of {', '.join(PROBLEMS)}; got {config.problem!r}")
    config = typed(config, apart=("problem", "options"))
    check_imported(config.plugin, "this configuration")
    config = replace(config, problem=typed(config.problem, "problem."))
    config = replace(config, options=_typed_options(config))
    config.problem.check()
    config = in_iterations(config)
    least = config.problem.least
    if least is not None and config.shots >= least:
        raise ConfigError(
            f"shots must leave some of a task's {least} samples to score on; got {config.shots}"
        )
    for name in ("weighted", "local_epochs"):
        if config.option(name) and not config.problem.sized:
            kind = kind_of(config.problem)
            raise ConfigError(f"{name} needs tasks of known sizes; those of {kind} have no end")
    if config.score_every % config.log_every:
        raise ConfigError(
            f"score_every must be 0 or a multiple of log_every = {config.log_every}; "
            f"got {config.score_every}"
        )
    if not 0 < config.decay_after <= 1:
        raise ConfigError(f"decay_after must be above 0, up to 1; got {config.decay_after:g}")
    not_negative("save_seconds", config.save_seconds)
    one_of("schedule", config.schedule, ("drop", "cosine"))
    one_of("memory", config.memory, ("ram", "disk"))
    if config.memory_dir is not None and config.memory != "disk":
        raise ConfigError(f"memory_dir needs memory = disk; got memory = {config.memory}")
    if config.method == "protonet" and not config.problem.classifies:
        kind = kind_of(config.problem)
        raise ConfigError(f"method protonet tells classes apart; the problem {kind} has none")
    chosen = composed(config)  # and thrown away: the method checks what its options are together
    if config.memory == "disk":
        _check_disk(config, chosen)
    return config


def in_iterations(config: Config) -> Config:
    """The configuration with the iterations of its rounds, where it has rounds."""
    if config.rounds is None:
        return config
    algorithm = composed(config).algorithm
    if algorithm.rounds is None:
        raise ConfigError(f"rounds must be left out: {config.method} has none; give iterations")
    once = algorithm.iterations
    part = lambda every, parts: min(every, once * max(1, config.rounds // parts))
    log_every = part(config.log_every, LINES)
    score_every = part(config.score_every, SCORES) if config.score_every else 0
    if score_every:
        score_every = log_every * max(1, score_every // log_every)
    return replace(
        config, iterations=config.rounds * once, log_every=log_every, score_every=score_every
    )


def with_values(config: Config, **values: Any) -> Config:
    """The configuration with some fields or options changed; an option that is None is dropped.

    >>> from moml.config.problems import Sine
    >>> with_values(Config(Sine(), eta=0.1), k=2, iterations=5).options
    {'eta': 0.1, 'k': 2}
    """
    return replace(config, **values)


def with_method(config: Config, name: str) -> Config:
    """The configuration with another method; options that it lacks are dropped.

    >>> from moml.config.problems import Sine
    >>> with_method(Config(Sine(), method="moml-v1", beta=0.5, k=2), "maml").options
    {'k': 2}
    """
    known = options_of(name)
    kept = {option: value for option, value in config.options.items() if option in known}
    return replace(config, method=name, options=kept)


def composed(config: Config) -> Method:
    """The method of a configuration, for a loss that is never called."""
    nothing = lambda w, batch: w
    known = keywords(factory_of(config.method))
    n = {"n": config.problem.n} if "n" in known else {}
    return method(config.method, nothing, **n, **method_options(config, nothing))


def step_sizes(config: Config) -> dict[str, float]:
    """The traced numbers that a configuration gives; not a word that stands for one."""
    traced = composed(config).hyper._asdict()
    numbers = {name: v for name, v in config.options.items() if not isinstance(v, str)}
    return {name: numbers[name] for name in traced if name in numbers}  # type: ignore[misc]


def _check_disk(config: Config, chosen: Method) -> None:
    """Refuse memories on disk where there are none, or where every step needs all of them."""
    if config.problem.n is None or not jax.tree.leaves(
        jax.eval_shape(chosen.memory.init, np.zeros((), np.float32))
    ):
        raise ConfigError(f"memory = disk: {config.method} keeps nothing of single tasks here")
    if config.option("direct"):
        raise ConfigError("memory = disk: direct moves every memory at every step; leave it out")
    if "tasks_per_step" not in options_of(config.method):
        raise ConfigError(
            f"memory = disk: {config.method} visits all {config.problem.n} tasks at every step, "
            "with all memories in RAM then; allowed: memory = ram, or a method that visits fewer"
        )


def method_options(config: Config, features: Callable[..., Any] | None = None) -> dict[str, Any]:
    """The keywords for a method: its options, and what else it asks for of the run."""
    known = keywords(factory_of(config.method))
    run = {"features": features} | {
        name: getattr(config, name) for name in ("shots", "test_steps", "iterations")
    }
    return {name: value for name, value in run.items() if name in known} | dict(config.options)


def kind_of(problem: Problem) -> str:
    """The name of a problem's kind.

    >>> from moml.config.problems import Sine
    >>> kind_of(Sine(n=50))
    'sine'
    """
    return next(kind for kind, type_ in PROBLEMS.items() if type(problem) is type_)


def fields_of(config: Config) -> Record:
    """All fields by name, those of the problem as problem.NAME and its kind as problem.kind."""
    values = config.flat() | {"problem.kind": kind_of(config.problem)}
    return values | {f"problem.{name}": v for name, v in vars(config.problem).items()}


def changed(old: Config, new: Config) -> list[str]:
    """The names of the fields that differ.

    >>> from moml.config.problems import Sine
    >>> changed(Config(Sine()), Config(Sine(noise=0.5), eta=0.01))
    ['eta', 'problem.noise']
    """
    before, after = fields_of(old), fields_of(new)
    return [name for name in after | before if before.get(name, ...) != after.get(name, ...)]
