"""What the authors' released federated code computes, where it differs from our methods.

One draw of samples serves a whole round, so that all a client does to its first layer stays in the
span of these few images x: W = W_r + c x, with c [images, hidden]. A round is run on c. Since

    x W' = x W_r' + (x x') c      and      W <- W - rate dz' x   is   c <- c - rate dz,

that is the same arithmetic on matrices a hundred times smaller. It holds for any sum of weights and
first-order gradients; not for exact curvature.
"""

import itertools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from moml.algorithms.federated.client import Update, local_steps
from moml.algorithms.federated.fedavg import fedavg_update
from moml.algorithms.federated.local import localmoml_update, per_fedavg_update
from moml.algorithms.federated.rounds import RoundState
from moml.algorithms.parts.adapt import gradient_steps
from moml.algorithms.parts.curvature import first_order
from moml.algorithms.parts.personal import Step
from moml.algorithms.parts.task_map import mean, norm
from moml.models.networks import Model
from moml.types import Algorithm, Hyper, Info, Key, Loss, Meta, Params, SampleSpec, Task, TaskBatch

Layers = tuple[Array, ...]  # [inputs, outputs] each
Logits = Callable[[Params], Float[Array, "rows classes"]]


def bare_mlp(*sizes: int) -> Model:
    """ELU, no biases, Xavier normal: weights of variance 2 / (inputs + outputs).

    >>> net = bare_mlp(12, 4, 3)
    >>> net.predict(net.init(jax.random.key(0)), jnp.ones((5, 2, 2, 3))).shape
    (5, 3)
    """
    shapes = list(itertools.pairwise(sizes))

    def init(key: Key) -> Layers:
        keys, normal = jax.random.split(key, len(shapes)), jax.nn.initializers.glorot_normal()
        return tuple(normal(k, shape) for k, shape in zip(keys, shapes, strict=True))

    def predict(params: Layers, x: Array) -> Float[Array, "rows out"]:
        return upper(flat(x) @ params[0], params[1:])

    return Model(init, predict)


def flat(x: Array) -> Array:
    """Images as rows."""
    return x.reshape(len(x), -1)


def upper(z: Float[Array, "rows hidden"], layers: Layers) -> Float[Array, "rows out"]:
    """The layers after the first one."""
    for layer in layers:
        z = jax.nn.elu(z) @ layer
    return z


@jax.custom_vjp
def in_span(gram: Array, c: Array) -> Array:
    """(x x') c, whose gradient in c is that in W, in coordinates of the span: dz itself."""
    return gram @ c


in_span.defvjp(lambda gram, c: (gram @ c, gram), lambda gram, dz: (jnp.zeros_like(gram), dz))


def span_logits(layers: Layers, x: Float[Array, "rows inputs"]) -> tuple[Layers, Logits]:
    """The model on the span of x: (0, upper layers), and (c, upper layers) -> logits of all x."""
    first, rest = layers[0], layers[1:]
    z, gram = x @ first, x @ x.T
    return (jnp.zeros_like(z), *rest), lambda p: upper(z + in_span(gram, p[0]), p[1:])


def picked(logits: Logits, y: Array) -> Loss:
    """Mean cross-entropy over the rows that a batch marks with 1."""

    def loss(params: Params, mark: Float[Array, " rows"]) -> Float[Array, ""]:
        each = optax.losses.softmax_cross_entropy_with_integer_labels(logits(params), y)
        return jnp.sum(mark * each) / jnp.sum(mark)

    return loss


def one_draw(
    build: Callable[[Loss], Update], need: SampleSpec, h: int, *, restart_scale: float = 1.0
) -> Algorithm:
    """Rounds where one draw serves all H steps of a client, run on the span of that draw.

    `build` makes the update of a loss; a method without query gets support and query as one. The
    server's mean is taken on the span too, over the images of all clients:

    W <- 1/B sum_i (W + x_i' c_i) = W + x' c / B
    """

    def client(meta: Layers, task: Task, hyper: Hyper) -> tuple[Array, Layers, Float[Array, ""]]:
        """The images of the draw, (c, upper layers) after the round, and the loss."""
        parts = {name: part for name, part in task._asdict().items() if part is not None}
        x = {name: flat(part.x) for name, part in parts.items()}
        if "restart" in x:
            x["restart"] = restart_scale * x["restart"]  # 255: the slip, pixels as they are
        images = jnp.concatenate([*x.values()])
        local, logits = span_logits(meta, images)
        owner = np.repeat([*parts], [len(rows) for rows in x.values()])
        mark = lambda name: jnp.asarray(owner == name, images.dtype)
        again = lambda part: jnp.broadcast_to(part, (h, *part.shape))
        marks = {name: mark(name) if name == "restart" else again(mark(name)) for name in parts}
        loss = picked(logits, jnp.concatenate([part.y for part in parts.values()]))
        done = build(loss)(local, (), Task(**marks), None, hyper)
        return images, done.meta, done.loss

    def step(state: RoundState, visit: TaskBatch, hyper: Hyper) -> tuple[RoundState, Info]:
        each = jax.vmap(lambda task: client(state.meta, task, hyper))(visit.task)
        images, (coordinates, *rest), losses = each
        x, c = (part.reshape(-1, part.shape[-1]) for part in (images, coordinates))
        meta = (state.meta[0] + x.T @ c / need.tasks, *mean(rest))
        return RoundState(meta, ()), Info(mean(losses), norm(optax.tree.sub(state.meta, meta)))

    first = lambda params, hyper: RoundState(params, ())
    return Algorithm(first, step, need._replace(visits=None), iterations=h)


def stale_pfedme(loss: Loss, prox: float, prox_steps: int) -> Update:
    """pFedMe whose subproblem keeps the gradient of its start: R steps with one stale gradient.

    theta <- theta - alpha (grad L_S(w) + lambda (theta - w)),   w <- w - eta lambda (w - theta)
    """

    def subproblem(meta: Meta, row: tuple[()], task: Task, hyper: Hyper) -> Step:
        value, g = jax.value_and_grad(loss)(meta, task.support)

        def towards(theta: Params, _: None) -> tuple[Params, None]:
            move = lambda t, g, w: t - hyper.alpha * (g + prox * (t - w))
            return jax.tree.map(move, theta, g, meta), None

        theta = jax.lax.scan(towards, meta, length=prox_steps)[0]
        return Step(row, jax.tree.map(lambda w, t: prox * (w - t), meta, theta), value)

    return local_steps(subproblem)


def builder(name: str, prox: float, prox_steps: int) -> Callable[[Loss], Update]:
    """A method's client update, first-order, as a function of the loss."""
    one_step = lambda loss: gradient_steps(loss, 1, curvature=first_order)
    return {
        "per-fedavg": lambda loss: per_fedavg_update(loss, one_step(loss)),
        "localmoml": lambda loss: localmoml_update(loss, one_step(loss)),
        "pfedme": lambda loss: stale_pfedme(loss, prox, prox_steps),
        "fedavg": fedavg_update,
    }[name]
