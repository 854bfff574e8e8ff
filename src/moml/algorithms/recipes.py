"""Name -> composition: the only place where a name becomes parts."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any, NamedTuple

import optax

from moml.algorithms.federated import compositions as federated
from moml.algorithms.federated.compositions import Work
from moml.algorithms.options import (
    Options,
    check_options,
)
from moml.algorithms.parts.adapt import named, no_leaves
from moml.algorithms.parts.outer import nasa
from moml.algorithms.single import compositions as single
from moml.errors import ConfigError
from moml.types import Adapt, Algorithm, Loss, Memory


class Method(NamedTuple):
    """A composed method, with the parts that people ask for by themselves."""

    name: str
    algorithm: Algorithm
    adaptation: Callable[[int], Adapt]  # the method's adaptation, with so many steps
    memory: Memory
    options: Options
    eta: float  # defaults for Hyper
    beta: float
    gamma: float
    work: Work | None = None  # of a client in a round, where there are rounds


Parts = tuple[Algorithm, Memory]


class Recipe(NamedTuple):
    """A row of the table of methods."""

    summary: str
    build: Callable[[Loss, Adapt, Options], Parts]
    eta: float
    beta: float | Callable[[Options], float] = 1.0
    gamma: float = 1.0
    takes: tuple[str, ...] = ()  # of the options that only some methods have
    adaptation: Callable[[Loss, Options], Callable[[int], Adapt]] = single.by_steps
    fixed: dict[str, Any] = {}  # options that the name stands for
    usual: dict[str, Any] = {}  # other defaults than those of Options
    work: Callable[[Options], Work] | None = None


_ROUNDS = ("local_steps", "dropout", "straggle", "weighted", "at_once")
_GIVEN = {"step_sizes": "given", "tied": no_leaves, "adapt": None}  # the adaptation is the name's
_PLAIN = _GIVEN | {"outer": None, "curvature": "first-order"}  # clients that do not adapt
_ADAM = {"outer": optax.scale_by_adam()}
RECIPES: dict[str, Recipe] = {
    "maml": Recipe(
        "exact meta-gradient, no memory (= BSGD)",
        single.without_memory,
        eta=0.005,
        takes=("independent_hessian",),
    ),
    "fo-maml": Recipe(
        "MAML with J_A = I", single.without_memory, eta=0.005, fixed={"curvature": "first-order"}
    ),
    "hf-maml": Recipe(
        "MAML, its curvature from two more gradients",
        single.without_memory,
        eta=0.005,
        takes=("independent_hessian",),
        fixed={"curvature": "finite-difference"},
    ),
    "moml-v1": Recipe(
        "a moving average of each task's adapted points",
        single.v1,
        eta=0.005,
        beta=0.3,
        takes=("independent_hessian", "both_ways", "eager", "memory_dtype"),
    ),
    "moml-v2": Recipe(
        "the de-biased average: idle tasks move too",
        single.v2,
        eta=0.005,
        beta=0.1,
        takes=("independent_hessian", "eager", "two_batches", "direct", "memory_dtype"),
    ),
    "scgd": Recipe(
        "v1 over all n tasks, plain step",
        single.v1_all_tasks,
        eta=0.05,
        beta=0.5,
        takes=("independent_hessian", "eager", "memory_dtype"),
    ),
    "nasa": Recipe(
        "v1 over all n tasks, averaged gradient",
        single.v1_all_tasks,
        eta=0.05,
        beta=0.5,
        gamma=0.1,
        takes=("independent_hessian", "eager", "memory_dtype"),
        fixed={"outer": nasa()},
    ),
    "bspiderboost": Recipe(
        "a large task batch every q iterations, corrected in between",
        single.spider,
        eta=0.001,
        takes=("independent_hessian", "large_tasks", "period"),
        fixed={"outer": None},
    ),
    "reptile": Recipe(
        "towards the end of each task's own training",
        single.towards_tasks,
        eta=0.05,
        fixed=_GIVEN | {"curvature": "first-order"},
    ),
    "localmoml": Recipe(
        "H local steps with a memory inside the round, then the mean",
        federated.with_memory,
        eta=0.005,
        beta=0.3,
        takes=("independent_hessian", "restart_samples", "carried", "memory_dtype", *_ROUNDS),
        fixed={"outer": None},
        work=federated.memory_work,
    ),
    "per-fedavg": Recipe(
        "H local steps of MAML, then the mean",
        federated.without_memory,
        eta=0.005,
        takes=("independent_hessian", *_ROUNDS),
        fixed={"outer": None},
        work=federated.personal_work,
    ),
    "pfedme": Recipe(
        "towards personal models that a proximal term holds near",
        federated.by_subproblems,
        eta=0.005,
        takes=("prox", "prox_steps", "server_rate", *_ROUNDS),
        fixed=_PLAIN,
        usual={"prox": 100.0},
        work=lambda o: Work(o.prox_steps),
    ),
    "fedavg": Recipe(
        "H plain gradient steps, then the mean; adapts when used",
        federated.without_adaptation,
        eta=0.005,
        takes=_ROUNDS,
        fixed=_PLAIN,
        work=lambda o: Work(1),
    ),
    "ditto": Recipe(
        "FedAvg, and a model of its own at each client, held near",
        federated.with_own_models,
        eta=0.005,
        takes=("prox", *_ROUNDS),
        fixed=_PLAIN,
        work=lambda o: Work(2),
    ),
    "meta-sgd": Recipe(
        "MAML with a learned step size per parameter",
        single.without_memory,
        eta=0.002,
        takes=("independent_hessian",),
        fixed={"step_sizes": "parameter", "adapt": None},
        usual=_ADAM,
    ),
    "anil": Recipe(
        "MAML that adapts the leaves named head alone",
        single.without_memory,
        eta=0.002,
        takes=("independent_hessian",),
        usual={"leaves": named("head")} | _ADAM,
    ),
    "protonet": Recipe(
        "the nearest class mean in an embedding that is learned",
        single.without_memory,
        eta=0.001,
        takes=("features",),
        adaptation=single.by_prototypes,
        fixed=_GIVEN | {"curvature": "exact"},
        usual=_ADAM,
    ),
    "moml": Recipe(
        "what we recommend: v1, exact, both ways, Adam, beta matched to shots",
        single.v1,
        eta=0.005,
        beta=single.matched,
        takes=("both_ways", "eager", "memory_dtype", "shots", "test_steps", "iterations"),
        usual=_ADAM | {"both_ways": True},
    ),
}
_SPECIAL = {name for recipe in RECIPES.values() for name in recipe.takes}


def method(name: str, loss: Loss, **options: Any) -> Method:
    """Compose a method by its name; `options` are the fields of `Options`.

    >>> import jax.numpy as jnp
    >>> method("moml-v1", lambda w, x: jnp.mean((w - x) ** 2), n=25, k=1).beta
    0.3
    """
    if name not in RECIPES:
        raise ConfigError(f"unknown method {name!r}; allowed: {', '.join(RECIPES)}")
    recipe = RECIPES[name]
    known = {f.name for f in fields(Options)}
    for option in options:
        if option not in known:
            raise ConfigError(f"unknown option {option!r}; allowed: {', '.join(sorted(known))}")
        if option in recipe.fixed or option in _SPECIAL - set(recipe.takes):
            raise ConfigError(f"{name} has no option {option!r}")
    n = options.get("n")
    most = n if isinstance(n, int) and n > 0 else 10
    usual = {"tasks_per_step": min(3, most), "large_tasks": min(10, most)} | recipe.usual
    said = set(options) | set(recipe.fixed) | set(recipe.usual)
    own = {"curvature", "leaves", "tied", "step_sizes"} & said
    if options.get("adapt") is not None and own:
        raise ConfigError(f"{name}: adapt brings its own {' and '.join(sorted(own))}")
    o = check_options(Options(**(usual | options | recipe.fixed)))
    if "large_tasks" in recipe.takes and o.n is not None and o.large_tasks > o.n:
        raise ConfigError(f"large_tasks = {o.large_tasks} of only n = {o.n} tasks")
    if o.carried and o.restart_samples is not None:
        raise ConfigError("a carried memory is not restarted: leave out restart_samples or carried")
    if "carried" in recipe.takes and not o.carried and o.memory_dtype != "float32":
        raise ConfigError(f"{name} keeps no memory between rounds: memory_dtype needs carried")
    adaptation = recipe.adaptation(loss, o) if o.adapt is None else o.adapt
    algorithm, memory = recipe.build(loss, adaptation(o.inner_steps), o)
    beta = recipe.beta(o) if callable(recipe.beta) else recipe.beta
    work = None if recipe.work is None else recipe.work(o)
    return Method(name, algorithm, adaptation, memory, o, recipe.eta, beta, recipe.gamma, work)
