"""The `Learner`: a trained meta-model, and what further training needs."""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jax.stages import Wrapped
from jaxtyping import Array, Bool

from moml.algorithms.method import Method
from moml.algorithms.parts.adapt import Leaves, all_leaves
from moml.algorithms.signature import Adaptation
from moml.errors import DataError, check_count, reason
from moml.kept import kept
from moml.training.check import check_held
from moml.training.choice.population import Choice
from moml.training.loop import all_finite
from moml.training.personal import common_model, fine_tune_program, one_task, personal, tuning_of
from moml.types import Hyper, Meta, Params, Samples, State


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainingState:
    """All that further training needs: the method's state, and the number of steps done."""

    method: State
    step: int = field(metadata={"static": True})

    @property
    def memory(self) -> State:
        """The store of all tasks' memories; () of methods without one."""
        return getattr(self.method, "memory", ())


@dataclass(frozen=True)
class Learner:
    """A trained meta-model; `adapt` makes the model of one task from it.

    Parameters
    ----------
    method
        What it was trained by.
    meta
        The meta-model as the outer loop has it; `params` is what the loss takes.
    hyper
        The hyper-parameters.
    state
        What `fit` continues from; None of a training that diverged.
    history
        The mean loss after adaptation, one number a step; of a loaded run, one a line of metrics.
    samples
        Samples that were drawn in all.
    choice
        How beta was chosen, where it was.

    >>> import jax, moml
    >>> net = moml.mlp(1, 8, 1)
    >>> loss, start = moml.mse(net.predict), net.init(jax.random.key(0))
    >>> learner = moml.fit("maml", loss, start, moml.sine(), k=5, iterations=10)
    >>> mine = learner.adapt(moml.Batch(np.ones((3, 1)), np.zeros((3, 1))))
    >>> net.predict(mine, np.ones((2, 1))).shape
    (2, 1)
    """

    method: Method
    meta: Meta
    hyper: Hyper
    state: TrainingState | None
    history: np.ndarray
    samples: int
    choice: Choice | None = None

    @property
    def params(self) -> Params:
        """The meta-model itself, as the loss takes it."""
        return common_model(self.method.adaptation(self.method.inner_steps), self.meta)

    def adapt(self, support: Samples, steps: int | None = None) -> Params:
        """Personal parameters after `steps` adaptation steps on a few samples of a task."""
        steps = self.method.inner_steps if steps is None else check_count("steps", steps)
        check_held("support", support)
        try:
            mine, finite = adapted(self.method.adaptation, steps)(self.meta, support, self.hyper)
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            raise DataError(f"cannot adapt to this support: {reason(error)}") from error
        if not finite:
            raise DataError(
                "the adapted parameters are not finite: check the support, or take fewer steps"
            )
        return mine

    def personal(self, client: int) -> Params:
        """The model that a client keeps, of methods whose clients keep one.

        Ditto's u_i; or the server's leaves with the client's own ones, `private`.

        Parameters
        ----------
        client
            Its number, from 0.

        Returns
        -------
        Parameters, as the loss takes them. Raises a ConfigError that says what to do where the
        method's clients keep none, or this one was in no round.
        """
        return personal(self.method, self.meta, getattr(self.state, "memory", ()), client)

    def fine_tune(
        self,
        samples: Samples,
        *,
        epochs: int | None = None,
        batch_size: int | None = None,
        rate: float | None = None,
        leaves: Leaves = all_leaves,
        seed: int = 0,
    ) -> Params:
        """The meta-model after plain SGD on samples of a task: w <- w - rate grad L_S(w).

        Parameters
        ----------
        samples
            Of one task, as the loss takes them: arrays [samples, ...].
        epochs, batch_size, rate
            Passes over the samples, samples of a batch S and step size; by default those of
            training: local_epochs or 1, k, eta.
        leaves
            Those that are trained, such as `moml.parts.named("head")`; by default all.
        seed
            Of the order of the samples.

        Returns
        -------
        Parameters, as the loss takes them.
        """
        check_held("samples", samples)
        used = tuning_of(self.method, self.hyper, epochs, batch_size, rate)
        program = fine_tune_program(used.loss, leaves, used.epochs, used.batch_size)
        key, first = jax.random.key(check_count("seed", seed, least=0)), jnp.zeros((), jnp.int32)
        mine = program(self.params, one_task(samples), key, first, used.rate)
        if not all_finite(mine):
            raise DataError("the fine-tuned parameters are not finite: take a smaller rate")
        return mine


@kept
def adapted(adaptation: Adaptation, steps: int) -> Wrapped:
    """The jitted adaptation: (meta, support, hyper) -> personal parameters, whether all finite."""
    adapt = adaptation(steps)

    def run(meta: Meta, support: Samples, hyper: Hyper) -> tuple[Params, Bool[Array, ""]]:
        mine = adapt.merge(meta, adapt.apply(meta, support, hyper))
        return mine, all_finite(mine)

    return jax.jit(run)
