"""A method for some tasks, its hyper-parameters, its first state; and the keys of a run."""

from collections.abc import Callable
from typing import Any

import jax

from moml.algorithms.recipes import RECIPES, Method, method
from moml.errors import ConfigError, DataError
from moml.runtime import simulate
from moml.training.check import make_hyper
from moml.types import Hyper, Key, Loss, Params, Tasks


def init_key(seed: int | Any) -> Key:
    """The key of a seed's initial network."""
    return jax.random.fold_in(jax.random.key(seed), 0)


def run_key(seed: int | Any) -> Key:
    """The key of all that a seed's run draws."""
    return jax.random.fold_in(jax.random.key(seed), 1)


def fill_key(key: Key) -> Key:
    """The key of what eager filling draws: of no step's number."""
    return jax.random.fold_in(key, 2**31 - 1)


def compose(
    name: str | Method, loss: Loss, tasks: Tasks, options: dict[str, Any], iterations: int
) -> Method:
    """A method for these tasks, by name or as given; told how long training will be if it asks."""
    if not isinstance(tasks, Tasks):
        raise DataError(f"tasks must be moml.Tasks, see moml.from_arrays; given {type(tasks)}")
    if not isinstance(name, str):
        if options:
            raise ConfigError(f"a composed method takes no options; given {', '.join(options)}")
        if name.options.n != tasks.n:
            raise ConfigError(f"the method was composed for n = {name.options.n}, not {tasks.n}")
        return name
    if "n" in options:
        raise ConfigError("n is that of the tasks: leave it out")
    if name in RECIPES and "iterations" in RECIPES[name].takes:
        options = {"iterations": max(1, iterations)} | options
    return method(name, loss, n=tasks.n, **options)


def hyper_of(chosen: Method, params: Params, given: dict[str, Any]) -> Hyper:
    """Hyper-parameters: the method's own where none are given."""
    for name, without in {"beta": "memory", "gamma": "average of gradients"}.items():
        value = given.get(name)
        if value not in (None, 1) and getattr(RECIPES[chosen.name], name) == 1:
            raise ConfigError(f"{chosen.name} has no {without}: {name} = {value} changes nothing")
    usual = {"eta": chosen.eta, "beta": chosen.beta, "alpha": 0.01, "gamma": chosen.gamma}
    values = usual | {name: value for name, value in given.items() if value is not None}
    return make_hyper(**values, dtype=jax.tree.leaves(params)[0].dtype)


def start(chosen: Method, tasks: Tasks) -> Callable[[Params, Key, Hyper], Any]:
    """The first state of a run, with its memories filled where that is asked for."""

    def first(params: Params, key: Key, hyper: Hyper) -> Any:
        state = chosen.algorithm.init(params, hyper)
        if not chosen.options.eager or tasks.n is None:
            return state
        fill = simulate.fill(chosen.algorithm.fill, tasks, tasks.n, chosen.options.k)
        return fill(state, fill_key(key), hyper)

    return first


def check_adapts(chosen: Method, params: Params, hyper: Hyper) -> None:
    """Refuse to begin where nothing adapts."""
    adapt = chosen.adaptation(1)
    if not jax.tree.leaves(
        jax.eval_shape(lambda p, h: adapt.start(adapt.init(p, h)), params, hyper)
    ):
        raise ConfigError(f"{chosen.name}: `leaves` picks no parameter, so nothing would adapt")


def check_start(finite: bool, chosen: Method) -> None:
    """Refuse to begin with numbers that are not finite."""
    if not finite:
        raise DataError(
            f"{chosen.name} would start from numbers that are not finite: look at params, and at "
            "alpha where step sizes are learned (it must be positive)"
        )


def samples_to_fill(chosen: Method) -> int:
    """What eager filling draws."""
    return (chosen.options.n or 0) * chosen.options.k if chosen.options.eager else 0
