"""Networks of equinox and flax as functions of their parameters.

Statistics are leaves of the parameters: of types that no gradient has, as floats.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from moml.errors import ConfigError
from moml.models.networks import Model, Training
from moml.types import Key, Params


class Stateful(NamedTuple):
    """Parameters of a network with statistics."""

    params: PyTree
    stats: PyTree


def _marks(params: Stateful) -> PyTree[bool]:
    mark = lambda tree, state: jax.tree.map(lambda _: state, tree)
    return Stateful(mark(params.params, False), mark(params.stats, True))


def _floats(tree: PyTree) -> list[Array]:
    """The leaves; counts and flags as floats, which hold whole numbers to 2^24."""
    real = lambda x: x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(jnp.float32)
    return [real(leaf) for leaf in jax.tree.leaves(tree)]


def _typed(leaves: list[Array], like: PyTree) -> PyTree:
    """The tree that these were leaves of, with the types that they had."""
    old, tree = jax.tree.flatten(like)
    return jax.tree.unflatten(tree, [x.astype(o.dtype) for x, o in zip(leaves, old, strict=True)])


def from_equinox(make: Callable[[Key], PyTree], *, dropout: bool = False) -> Model:
    """An equinox module as a `Model`.

    Parameters
    ----------
    make
        make(key), a module that maps one sample to its outputs: `lambda key: eqx.nn.MLP(2, 1, 8, 1,
        key=key)`. With state, (module, state) as `eqx.nn.make_with_state` gives them; the axis of
        its `BatchNorm` must be "batch".
    dropout
        Whether it takes a key in training: module(x, key=key), or module(x, state, key=key).

    Returns
    -------
    Model
        `init(key)` gives the module's floating-point arrays, `predict(params, x)` the outputs for a
        batch x [K, ...] in inference mode. Train a module with dropout or state by a loss of
        `training`.

    >>> import equinox as eqx
    >>> net = from_equinox(lambda key: eqx.nn.Linear(2, 3, key=key))
    >>> net.predict(net.init(jax.random.key(0)), jnp.zeros((5, 2))).shape
    (5, 3)
    """
    import equinox as eqx

    if isinstance(make, eqx.Module) and not isinstance(make, eqx.Partial):
        raise ConfigError("make must be a function of a key, lambda key: module; got a module")

    def split(key: Key) -> tuple[Params, PyTree, PyTree]:
        made = make(key)
        module, state = made if isinstance(made, tuple) else (made, None)
        params, static = eqx.partition(module, eqx.is_inexact_array)
        return params if state is None else Stateful(params, _floats(state)), static, state

    _, static, state = split(jax.random.key(0))

    def run(params: Params, x: PyTree, keys: Key | None, inference: bool) -> tuple[Array, Params]:
        weights, stats = params if state is not None else (params, [])
        module = eqx.nn.inference_mode(eqx.combine(weights, static), inference)

        def one(x: PyTree, key: Key | None) -> tuple[Array, PyTree]:
            given = {} if key is None else {"key": key}
            if state is None:
                return module(x, **given), None
            return module(x, _typed(stats, state), **given)

        each = jax.vmap(one, (0, 0), (0, None), axis_name="batch")
        outputs, new = each(x, keys)
        return outputs, params if state is None else Stateful(weights, _floats(new))

    def apply(params: Params, x: PyTree, mask: PyTree, key: Key | None) -> tuple[Array, Params]:
        count = len(jax.tree.leaves(x)[0])
        keys = None if key is None else jax.random.split(key, count)
        return run(params, x, keys, inference=dropout and key is None)

    stateful = state is not None
    training = Training(apply, dropout, _marks if stateful else None)
    return Model(
        lambda key: split(key)[0],
        lambda params, x: run(params, x, None, inference=True)[0],
        training=training if dropout or stateful else None,
    )


def from_linen(
    module: Any,
    x: PyTree,
    *,
    train: Mapping[str, Any] = {},
    use: Mapping[str, Any] = {},
    dropout: bool = False,
) -> Model:
    """A flax.linen module as a `Model`; its parameters are its variables.

    Parameters
    ----------
    module, x
        The module, and an example of a batch of inputs.
    train, use
        Keywords of its call in training and in `predict`: `train={"train": True}` and
        `use={"train": False}`.
    dropout
        Whether it takes the rng "dropout" in training.

    Returns
    -------
    Model
        `init(key)` gives the variables. Collections other than "params" are state, such as
        "batch_stats". Train a module with dropout or state by a loss of `training`.

    >>> import flax.linen as nn
    >>> net = from_linen(nn.Dense(3), jnp.zeros((1, 2)))
    >>> net.predict(net.init(jax.random.key(0)), jnp.zeros((5, 2))).shape
    (5, 3)
    """
    init = lambda key: module.init(key, x, **use)
    predict = lambda params, x: module.apply(params, x, **use)
    state = [name for name in jax.eval_shape(init, jax.random.key(0)) if name != "params"]

    def apply(params: Params, x: PyTree, mask: PyTree, key: Key | None) -> tuple[Array, Params]:
        if dropout and key is None:
            return predict(params, x), params
        rngs = {} if key is None else {"dropout": key}
        outputs, new = module.apply(params, x, rngs=rngs, mutable=state, **train)
        return outputs, {**params, **new}

    def marks(params: Params) -> PyTree[bool]:
        return {
            name: jax.tree.map(lambda _, name=name: name != "params", tree)
            for name, tree in params.items()
        }

    training = Training(apply, dropout, marks if state else None)
    return Model(init, predict, training=training if dropout or state else None)


def from_nnx(make: Callable[[Key], Any], *, dropout: bool = False) -> Model:
    """A flax.nnx module as a `Model`.

    Parameters
    ----------
    make
        make(key), a module: `lambda key: Net(rngs=nnx.Rngs(key))`.
    dropout
        Whether it draws in training, as `nnx.Dropout` does.

    Returns
    -------
    Model
        `init(key)` gives its `nnx.Param`s and, where it has others, these as state, such as
        `nnx.BatchStat`; `predict(params, x)` the outputs after `module.eval()`. Train a module with
        dropout or state by a loss of `training`, which calls it after `module.train()`.

    >>> from flax import nnx
    >>> net = from_nnx(lambda key: nnx.Linear(2, 3, rngs=nnx.Rngs(key)))
    >>> net.predict(net.init(jax.random.key(0)), jnp.zeros((5, 2))).shape
    (5, 3)
    """
    from flax import nnx

    def split(key: Key, train: bool) -> tuple[PyTree, ...]:
        module = make(key)
        (module.train if train else module.eval)()
        return nnx.split(module, nnx.Param, nnx.RngState, ...)

    graphs = {train: split(jax.random.key(0), train) for train in (True, False)}
    stateful = bool(jax.tree.leaves(graphs[True][3]))

    def init(key: Key) -> Params:
        _, params, _, stats = split(key, True)
        params = nnx.to_pure_dict(params)
        return Stateful(params, _floats(stats)) if stateful else params

    def run(params: Params, x: PyTree, key: Key | None, train: bool) -> tuple[Array, Params]:
        graph, weights, rngs, stats = graphs[train]
        mine, found = params if stateful else (params, [])
        fresh = lambda i, x: jax.random.fold_in(key, i) if _is_key(x) and key is not None else x
        leaves, tree = jax.tree.flatten(rngs)
        rngs = jax.tree.unflatten(tree, [fresh(i, leaf) for i, leaf in enumerate(leaves)])
        weights = jax.tree.unflatten(jax.tree.structure(weights), jax.tree.leaves(mine))
        module = nnx.merge(graph, weights, rngs, _typed(found, stats))
        outputs = module(x)
        new = nnx.split(module, nnx.Param, nnx.RngState, ...)[3]
        return outputs, Stateful(mine, _floats(new)) if stateful else params

    def apply(params: Params, x: PyTree, mask: PyTree, key: Key | None) -> tuple[Array, Params]:
        return run(params, x, key, train=not dropout or key is not None)

    training = Training(apply, dropout, _marks if stateful else None)
    return Model(
        init,
        lambda params, x: run(params, x, None, train=False)[0],
        training=training if dropout or stateful else None,
    )


def _is_key(x: Array) -> bool:
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
