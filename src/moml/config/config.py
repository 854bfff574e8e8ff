"""What a run is: frozen dataclasses, checked once. The words under a field are its help."""

from dataclasses import dataclass, fields, replace
from numbers import Real
from types import UnionType
from typing import Any, TypeVar, get_args, get_type_hints

import jax
import numpy as np
import optax

from moml.algorithms.options import Options
from moml.algorithms.parts.adapt import named
from moml.algorithms.recipes import RECIPES, Method, method
from moml.algorithms.single.compositions import v1_all_tasks
from moml.config.problems import (
    PROBLEMS,
    Problem,
    Sine,
    Table,
    not_negative,
    one_of,
)
from moml.errors import ConfigError, check_count
from moml.training.compose import hyper_of

T = TypeVar("T")
OUTER = {"sgd": optax.identity, "adam": optax.scale_by_adam}
WORDS = {float: "a number", bool: "true or false", str: "text"}
FROM_0 = {
    "seed",
    "score_every",
    "problem.validation",
    "problem.unseen",
}  # every other whole number is a count, from 1
SMALLEST, LARGEST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Config:
    """One run: the problem, the method, its step sizes, how long, and what is kept of it."""

    problem: Problem
    """What is learned: sine, synthetic, episodes, clients or table, with fields of its own."""
    method: str = "moml"
    """maml, fo-maml, hf-maml, moml-v1, moml-v2, scgd, nasa, bspiderboost, reptile, localmoml,
    per-fedavg, pfedme, fedavg, ditto, meta-sgd, anil, protonet or moml; `moml methods` has a line
    on each."""
    iterations: int = 40_000
    """The paper's iterations in all; from 1."""
    seed: int = 0
    """Of the first network and of all that is drawn; from 0."""
    eta: float | None = None
    """Outer step size; above 0. By default the method's own."""
    beta: float | None = None
    """Weight of the newest point in a memory; above 0, up to 1. By default the method's own."""
    alpha: float | None = None
    """Inner step size; from 0. By default 0.01."""
    gamma: float | None = None
    """Weight of the newest gradient in nasa's average; above 0, up to 1. By default its own."""
    k: int = 1
    """Samples in each of S1, S2, S3; in episodes, of each class; from 1."""
    tasks_per_step: int | None = None
    """Tasks in a step, clients in a round, B; from 1 to problem.n. By default 3."""
    shots: int = 10
    """Samples that a user will adapt on (in episodes, of each class): scores use as many, moml
    matches beta to it; from 1."""
    test_steps: int = 10
    """Steps that a user will adapt with: scores take as many, moml's beta heeds it; from 1."""
    test_tasks: int = 500
    """Unseen tasks that a score is the mean of; from 1. Of clients and tables all are scored."""
    inner_steps: int = 1
    """Gradient steps of one adaptation in training (pfedme, fedavg, ditto: in use); from 1."""
    curvature: str | None = None
    """Of the adaptation: exact, first-order or finite-difference. By default the method's own."""
    step_sizes: str | None = None
    """Of the adaptation: given (alpha), or learned from there by parameter or by layer and step.
    By default given; the method meta-sgd is by parameter."""
    tied: bool | None = None
    """Whether all classes begin with the same output weights, so that it does not matter how they
    are numbered: true or false. By default false."""
    outer: str | None = None
    """Outer rule: sgd or adam. By default the method's own."""
    independent_hessian: bool | None = None
    """S2 drawn apart from S1, as the paper has it: true or false. By default false."""
    both_ways: bool | None = None
    """moml, moml-v1: S1 and S3 in both roles: true or false. By default true for moml alone."""
    eager: bool | None = None
    """Memories filled before training: true or false; methods with memories. By default false."""
    two_batches: bool | None = None
    """moml-v2: a batch of its own for the memories: true or false. By default false."""
    direct: bool | None = None
    """moml-v2: every memory moved at every step: true or false. By default false."""
    local_steps: int | None = None
    """Federated methods: steps of a client in a round, H; from 1. By default 5."""
    restart_samples: int | None = None
    """localmoml: samples of a round's first memory, K0; from 1. By default twice k."""
    carried: bool | None = None
    """localmoml: memories kept between rounds: true or false. By default false."""
    dropout: float | None = None
    """Federated methods: probability that an answer is lost; from 0, below 1. By default 0."""
    straggle: float | None = None
    """Federated methods: probability of 1 to H - 1 local steps; from 0 to 1. By default 0."""
    weighted: bool | None = None
    """Federated methods: clients count by their sizes: true or false. By default false."""
    at_once: int | None = None
    """Federated methods: clients that run side by side; from 1. By default all of a round, on a
    processor those whose models fit into its cache."""
    prox: float | None = None
    """pfedme, ditto: lambda, the pull towards the common model; above 0. By default 100, 1."""
    prox_steps: int | None = None
    """pfedme: gradient steps on a subproblem, R; from 1. By default 50."""
    server_rate: float | None = None
    """pfedme: how far the server goes to the mean, beta_s; above 0, up to 1. By default 1."""
    large_tasks: int | None = None
    """bspiderboost: tasks in a large batch, N1; from 1 to problem.n. By default 10."""
    period: int | None = None
    """bspiderboost: iterations from one large batch to the next, q; from 1. By default 3."""
    memory_dtype: str | None = None
    """Memories in float32, or in bfloat16: half the bytes; methods with memories. By default
    float32."""
    memory: str = "ram"
    """Where memories live: ram, or disk where they outgrow it (the run's folder, or memory_dir)."""
    memory_dir: str | None = None
    """Folder for memories on disk. By default memory in the run's folder."""
    schedule: str = "drop"
    """Of eta: drop (at decay_after), or cosine (falls to a hundredth along half a cosine)."""
    decay_after: float = 0.75
    """Share of the iterations after which eta drops to a tenth; above 0, up to 1 (never)."""
    log_every: int = 1000
    """Iterations in one line of metrics, and in one compiled stretch; from 1."""
    score_every: int = 10_000
    """Iterations between scores on unseen tasks; a multiple of log_every, or 0: only at the end."""
    save_seconds: float = 300.0
    """Least time between two checkpoints; from 0 (one after every line of metrics)."""
    keep: int = 2
    """Newest checkpoints that are kept, besides the best one; from 1."""


def value_of(name: str, kind: Any, value: Any) -> Any:
    """`value` as a field of this type holds it, or a ConfigError that names the field."""
    if isinstance(kind, UnionType):  # a type, or None
        return None if value is None else value_of(name, get_args(kind)[0], value)
    if kind == tuple[int, ...]:
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{name} must be a list of whole numbers; given {value!r}")
        return tuple(value_of(name, int, each) for each in value)
    if kind is int:
        most = 2**32 if name == "seed" else 2**31
        return check_count(name, value, least=0 if name in FROM_0 else 1, below=most)
    if kind is float and isinstance(value, Real) and not isinstance(value, bool):
        size: Any = abs(value)
        if size != 0 and not SMALLEST <= size <= LARGEST:
            raise ConfigError(f"{name} must be a number that float32 holds; given {value!r}")
        return float(value)
    if not isinstance(value, kind):
        raise ConfigError(f"{name} must be {WORDS[kind]}; given {value!r}")
    return value


def _typed(part: T, prefix: str = "") -> T:
    kinds = get_type_hints(type(part))
    kinds.pop("problem", None)
    values = {n: value_of(prefix + n, kind, getattr(part, n)) for n, kind in kinds.items()}
    return replace(part, **values)  # type: ignore[type-var]


def check(config: Config) -> Config:
    """The same configuration, if it can be run; else a ConfigError that names the field.

    >>> check(Config(Sine(), method="maml", beta=0.3))
    Traceback (most recent call last):
        ...
    moml.errors.ConfigError: maml has no memory: beta = 0.3 changes nothing
    """
    if type(config.problem) not in PROBLEMS.values():
        raise ConfigError(f"problem must be one of {', '.join(PROBLEMS)}; given {config.problem!r}")
    config = replace(_typed(config), problem=_typed(config.problem, "problem."))
    config.problem.check()
    least = config.problem.least
    if least is not None and config.shots >= least:
        raise ConfigError(
            f"shots must leave some of a task's {least} samples to score on; given {config.shots}"
        )
    if config.weighted and isinstance(config.problem, Sine):
        raise ConfigError("weighted needs tasks of known sizes; those of sine have no end")
    if config.score_every % config.log_every:
        raise ConfigError(
            f"score_every must be 0 or a multiple of log_every = {config.log_every}; "
            f"given {config.score_every}"
        )
    if not 0 < config.decay_after <= 1:
        raise ConfigError(f"decay_after must be above 0, up to 1; given {config.decay_after:g}")
    not_negative("save_seconds", config.save_seconds)
    if config.outer is not None:
        one_of("outer", config.outer, OUTER)
    one_of("schedule", config.schedule, ("drop", "cosine"))
    one_of("memory", config.memory, ("ram", "disk"))
    if config.memory_dir is not None and config.memory != "disk":
        raise ConfigError(f"memory_dir is for memory = disk; given memory = {config.memory}")
    if config.method == "protonet" and not classifies(config.problem):
        kind = kind_of(config.problem)
        raise ConfigError(f"method protonet tells classes apart; the problem {kind} has none")
    nothing = lambda w, batch: w
    options = method_options(config, nothing)
    chosen = method(
        config.method, nothing, n=config.problem.n, **options
    )  # composed and thrown away: its parts check themselves
    sizes = {name: getattr(config, name) for name in ("eta", "beta", "alpha", "gamma")}
    hyper_of(chosen, np.zeros((), np.float32), sizes)
    if config.memory == "disk":
        _check_disk(config, chosen)
    return config


def _check_disk(config: Config, chosen: Method) -> None:
    """Refuse memories on disk where there are none, or where every step needs all of them."""
    if config.problem.n is None or not jax.tree.leaves(
        jax.eval_shape(chosen.memory.init, np.zeros((), np.float32))
    ):
        raise ConfigError(f"memory = disk: {config.method} keeps nothing of single tasks here")
    if config.direct:
        raise ConfigError("memory = disk: direct moves every memory at every step; leave it out")
    if RECIPES[config.method].build is v1_all_tasks:
        raise ConfigError(
            f"memory = disk: {config.method} visits all {config.problem.n} tasks at every step, "
            "with all memories in RAM then; allowed: memory = ram, or a method that visits fewer"
        )


def classifies(problem: Problem) -> bool:
    """Whether classes are told apart; else numbers are predicted."""
    numbers = isinstance(problem, Sine) or (isinstance(problem, Table) and problem.classes is None)
    return not numbers


def method_options(config: Config, features: Any = None) -> dict[str, Any]:
    """The options for `moml.method`: what is given, of what the method takes."""
    takes = RECIPES[config.method].takes if config.method in RECIPES else ()
    users = {"shots", "test_steps", "iterations"} - set(takes)  # for any method, not its options
    apart = users | {"outer", "tied"}  # not the option itself, but a word for it
    given = {f.name: getattr(config, f.name, None) for f in fields(Options) if f.name not in apart}
    if config.outer is not None:
        given["outer"] = OUTER[config.outer]()
    if config.tied:
        given["tied"] = named("head")
    if "features" in takes:
        given["features"] = features
    return {name: value for name, value in given.items() if value is not None}


def kind_of(problem: Problem) -> str:
    """The name of a problem's kind.

    >>> kind_of(Sine(n=50))
    'sine'
    """
    return next(kind for kind, type_ in PROBLEMS.items() if type(problem) is type_)


def changed(old: Config, new: Config) -> list[str]:
    """The names of the fields that differ.

    >>> changed(Config(Sine()), Config(Sine(noise=0.5), eta=0.01))
    ['eta', 'problem.noise']
    """

    def flat(config: Config) -> dict[str, Any]:
        values = vars(config) | {"problem.kind": kind_of(config.problem)}
        values |= {f"problem.{name}": value for name, value in vars(config.problem).items()}
        return {name: value for name, value in values.items() if name != "problem"}

    before, after = flat(old), flat(new)
    return [name for name in before | after if before.get(name, ...) != after.get(name, ...)]
