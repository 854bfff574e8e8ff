"""A method for some tasks, its hyper-parameters, its first state; and the keys of a run."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.stages import Wrapped
from jaxtyping import Array, Int

from moml.algorithms.method import BOTH, Factory, Method
from moml.algorithms.parts.schedule import Schedule, constant
from moml.algorithms.signature import NUMBER, checked, keywords, unknown
from moml.errors import ConfigError, DataError, one_line
from moml.kept import kept
from moml.methods import METHODS, factory_of
from moml.models.wrapped import has_state
from moml.runtime import simulate
from moml.types import Algorithm, Hyper, Key, Loss, Params, Record, State, Tasks

Seed = int | Int[Array, ""]


def init_key(seed: Seed) -> Key:
    """The key of a seed's initial network."""
    return jax.random.fold_in(jax.random.key(seed), 0)


def run_key(seed: Seed) -> Key:
    """The key of everything that a seed's run draws."""
    return jax.random.fold_in(jax.random.key(seed), 1)


def fill_key(key: Key) -> Key:
    """The key of eager filling: no step has its number."""
    return jax.random.fold_in(key, 2**31 - 1)


def compose(
    name: str | Method | Factory,
    loss: Loss,
    tasks: Tasks,
    options: Mapping[str, Any],
    iterations: int,
) -> Method:
    """A method for these tasks, by name, by its function, or as composed before.

    A function that has the keyword `iterations` gets the length of the training.
    """
    if not isinstance(tasks, Tasks):
        raise DataError(f"tasks must be moml.Tasks, see moml.from_arrays; got {type(tasks)}")
    if isinstance(name, Method):
        others = [option for option in options if option not in name.hyper._asdict()]
        if others:
            raise ConfigError(f"a composed method has only numbers to set; got {', '.join(others)}")
        if name.n != tasks.n:
            raise ConfigError(f"n must be that of the tasks, {tasks.n}; got a method for {name.n}")
        betas = () if options.get("beta") is not None else name.betas
        numbers = _with_numbers(name, options)
        return _with_state(name._replace(hyper=numbers, betas=betas), loss)
    if "n" in options:
        raise ConfigError(f"n must be left out: it is that of the tasks; got {options['n']}")
    factory = factory_of(name)
    known = keywords(factory)
    given = {"n": tasks.n, "iterations": max(1, iterations)}
    chosen = factory(loss, **{k: v for k, v in given.items() if k in known} | dict(options))
    return _with_state(chosen, loss)


def _with_state(chosen: Method, loss: Loss) -> Method:
    """The method, which must refresh the state of a loss: those of rounds do."""
    if has_state(loss) and chosen.algorithm.rounds is None:
        raise ConfigError(
            f"a loss with state (batch statistics) needs a federated method; got {chosen.name}"
        )
    return chosen


def hyper_of(chosen: Method, params: Params, given: Mapping[str, float | None]) -> Hyper:
    """Hyper-parameters as arrays: the method's where none are given.

    They have the parameters' type. Where parameters have several, they are weakly typed: a product
    with a leaf has the leaf's type.
    """
    types = {leaf.dtype for leaf in jax.tree.leaves(params)}
    array = jnp.asarray if len(types) > 1 else lambda value: jnp.asarray(value, *types)
    return jax.tree.map(array, _with_numbers(chosen, given))


def _with_numbers(chosen: Method, given: Mapping[str, float | None]) -> Hyper:
    """The method's traced numbers, with those that are given and not None."""
    values = chosen.hyper._asdict()
    known = keywords(METHODS[chosen.name]) if chosen.name in METHODS else {}
    for name, value in given.items():
        if value is not None and name not in values:
            raise ConfigError(BOTH) if name == "eta" else unknown(chosen.name, name, values)
        if value is not None:
            values[name] = checked(name, known.get(name, NUMBER), value)
    return Hyper(**values)


def stacked_hyper(
    chosen: Method, params: Params, settings: list[Record], given: Mapping[str, float | None] = {}
) -> Hyper:
    """Hyper-parameters of all members, leaves [members]: `given`, and those of each setting."""
    own = [{name: row[name] for name in row if name != "seed"} for row in settings]
    rows = [hyper_of(chosen, params, {**given, **sizes}) for sizes in own]
    return jax.tree.map(lambda *values: jnp.stack(values), *rows)


def described(hyper: Hyper) -> str:
    """Hyper-parameters for a message: eta alone where there is one.

    >>> described(Hyper(eta=0.1, beta=0.5))
    'eta 0.1'
    """
    values = hyper._asdict()
    shown = {"eta": values["eta"]} if "eta" in values else values
    return ", ".join(f"{name} {float(value):g}" for name, value in shown.items())


def start(
    algorithm: Algorithm, k: int | None, params: Params, tasks: Tasks, key: Key, hyper: Hyper
) -> State:
    """The first state of a run, its memories filled from k samples each unless k is None."""
    state = algorithm.init(params, hyper)
    if k is None or tasks.n is None:
        return state
    return simulate.fill(algorithm.fill, tasks.n, k)(state, tasks, fill_key(key), hyper)


@kept
def _first(algorithm: Algorithm, k: int | None, members: bool) -> Wrapped:
    first = partial(start, algorithm, k)
    return jax.jit(jax.vmap(first, (0, None, 0, 0)) if members else first)


def first_program(chosen: Method, *, members: bool = False) -> Wrapped:
    """The jitted `start`: (params, tasks, key, hyper) -> the first state; of one or of members."""
    return _first(chosen.algorithm, chosen.k if chosen.eager else None, members)


def work(
    chosen: Method, params: Params, tasks: Tasks, schedule: Schedule = constant, length: int = 1
) -> float:
    """Floating-point operations of a step, by the compiler: of the body of a loop of `length`."""
    hyper, key = hyper_of(chosen, params, {}), jax.random.key(0)
    like = jax.eval_shape(first_program(chosen), params, tasks, key, hyper)
    program = simulate.program(chosen.algorithm, schedule)
    found = program.lower(like, tasks, key, hyper, length)[1].cost_analysis() or {}
    return float(found.get("flops", math.inf))


@kept
def init_program(init: Callable[[Key], Params]) -> Wrapped:
    """Seeds [members] -> the parameters of their initial networks; one program for all methods."""
    return jax.jit(jax.vmap(lambda seed: init(init_key(seed))))


def check_schedule(schedule: Schedule, hyper: Hyper) -> None:
    """Raise unless a schedule maps the method's numbers, and a step, to such numbers.

    It must use numbers that there are: eta is none of a whole optimizer.
    """
    try:
        made = jax.eval_shape(schedule, hyper, jax.ShapeDtypeStruct((), jnp.int32))
    except AttributeError as error:
        raise ConfigError(f"schedule must use numbers of the method: {error}") from error
    except (TypeError, ValueError) as error:
        must = "schedule must be a function of hyper-parameters and a step, see moml.parts"
        hint = "an optax schedule of the step size belongs in optimizer: optax.sgd(schedule)"
        raise ConfigError(f"{must} ({hint}): {one_line(error)}") from error
    form = lambda tree: (jax.tree.structure(tree), [leaf.shape for leaf in jax.tree.leaves(tree)])
    if form(made) != form(hyper):
        names = ", ".join(hyper._asdict())
        raise ConfigError(f"schedule must return the numbers {names}; got {one_line(made)}")


def check_adapts(chosen: Method, params: Params, hyper: Hyper) -> None:
    """Raise where nothing adapts."""
    adapt = chosen.adaptation(1)
    if not jax.tree.leaves(
        jax.eval_shape(lambda p, h: adapt.start(adapt.init(p, h)), params, hyper)
    ):
        raise ConfigError(f"{chosen.name}: leaves must choose at least one parameter; got none")


def check_start(finite: bool, chosen: Method) -> None:
    """Raise where a run would start from numbers that are not finite."""
    if not finite:
        raise DataError(
            f"{chosen.name} would start from numbers that are not finite: look at params, and at "
            "alpha where step sizes are learned (it must be positive)"
        )


def samples_to_fill(chosen: Method) -> int:
    """What eager filling draws."""
    return (chosen.n or 0) * chosen.k if chosen.eager else 0
