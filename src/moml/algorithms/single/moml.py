"""MOML: a memory of each task, as a moving average of its adapted points."""

import math

from moml.algorithms.method import Method, factory
from moml.algorithms.parts import memory as memories
from moml.algorithms.parts.choices import MEMORY_DTYPES, Inner, Sampling, batch_size
from moml.algorithms.parts.optimizer import rates
from moml.algorithms.parts.personal import both_ways as swapped
from moml.algorithms.parts.personal import personal_step
from moml.algorithms.signature import (
    AUTO,
    RULE,
    ChosenWeight,
    Count,
    MemoryDtype,
    NonNegative,
    Optimizer,
    Positive,
    Weight,
)
from moml.algorithms.single.engine import TwoBatches, single_node_method
from moml.algorithms.single.engine import two_batches as with_two_batches
from moml.algorithms.single.matching import match_beta, near
from moml.errors import ConfigError
from moml.types import Loss, SampleSpec


@factory
def moml_v1(
    loss: Loss,
    *,
    batch: Sampling,
    eta: Positive = 0.005,
    beta: Weight = 0.3,
    alpha: NonNegative = 0.01,
    inner: Inner,
    optimizer: Optimizer = "sgd",
    independent_hessian: bool = False,
    both_ways: bool = False,
    eager: bool = False,
    memory_dtype: MemoryDtype = "float32",
) -> Method:
    """MOML v1: a moving average of each task's adapted points.

    u_i <- (1 - beta) u_i + beta A(w; S1),    w <- w - eta mean_i J_A(w; S2)' grad L_S3(u_i)

    Examples
    --------
    >>> from moml.methods import moml_v1
    >>> moml_v1(lambda w, x: (w - x) ** 2, n=25).hyper
    Hyper(eta=0.005, beta=0.3, alpha=0.01)
    """
    if both_ways and independent_hessian:
        raise ConfigError("independent_hessian must be false where both_ways is true: S2 is S1")
    memory = MEMORY_DTYPES[memory_dtype].memory(memories.ema(batch.count))
    visiting = swapped if both_ways else personal_step
    hyper = rates(optimizer, eta=eta, beta=beta, alpha=alpha)
    samples = batch.spec(independent_hessian)
    return single_node_method(loss, inner, memory, optimizer, samples, hyper, visiting)


@factory
def moml_v2(
    loss: Loss,
    *,
    batch: Sampling,
    eta: Positive = 0.005,
    beta: Weight = 0.1,
    alpha: NonNegative = 0.01,
    inner: Inner,
    optimizer: Optimizer = "sgd",
    independent_hessian: bool = False,
    eager: bool = False,
    two_batches: bool = False,
    memory_tasks: Count | None = None,
    direct: bool = False,
    memory_dtype: MemoryDtype = "float32",
) -> Method:
    """MOML v2: the de-biased average, in which idle tasks move too.

    u_i <- (1 - beta) u_i + beta w + [i in B'] (beta / p_i) (A(w; S1) - w),    p_i = |B'| / n

    Parameters
    ----------
    two_batches : bool
        Whether the memories have a task batch B' of their own, as in the paper.
    memory_tasks : int
        Tasks in B'; by default tasks_per_step. It needs two_batches.
    direct : bool
        Whether every memory is moved at every step, in O(n d); else lazily, with equal results.

    Examples
    --------
    >>> from moml.methods import moml_v2
    >>> moml_v2(lambda w, x: (w - x) ** 2, n=25, tasks_per_step=5).hyper.beta
    0.1
    """
    if direct and memory_dtype != "float32":
        raise ConfigError(f"memory_dtype must be float32 where direct is true; got {memory_dtype}")
    if memory_tasks is not None and not two_batches:
        raise ConfigError("memory_tasks needs two_batches: one batch has tasks_per_step tasks")
    remembered = batch_size("memory_tasks", memory_tasks, batch.size, batch.count)
    kind = memories.debiased_ema_direct if direct else memories.debiased_ema
    memory = MEMORY_DTYPES[memory_dtype].memory(kind(batch.count, remembered / batch.count))
    hyper = rates(optimizer, eta=eta, beta=beta, alpha=alpha)
    samples = batch.spec(independent_hessian)
    made = single_node_method(loss, inner, memory, optimizer, samples, hyper)
    if not two_batches:
        return made
    both = TwoBatches(
        memory=SampleSpec(remembered, support=batch.k),
        meta=SampleSpec(batch.size, query=batch.k, hessian=batch.k),
    )
    adapt = made.adaptation(inner.inner_steps)
    return made._replace(algorithm=with_two_batches(loss, adapt, memory, optimizer, both))


@factory
def moml(
    loss: Loss,
    *,
    batch: Sampling,
    shots: Count | None = None,
    test_steps: Count = 1,
    iterations: Count | None = None,
    eta: Positive = 0.005,
    beta: ChosenWeight = RULE,
    alpha: NonNegative = 0.01,
    inner: Inner,
    optimizer: Optimizer = "adam",
    both_ways: bool = True,
    eager: bool = False,
    memory_dtype: MemoryDtype = "float32",
) -> Method:
    """MOML as we recommend it: v1, exact, both ways, Adam, with beta chosen for the users' shots.

    rule: beta = 2K / (shots + K) and its refinements, see `moml.match_beta`
    auto: the best of 1, the rule's beta and half of it, on held-out tasks

    Parameters
    ----------
    shots : int
        Samples that a user will adapt on.
    test_steps : int
        Steps that a user will adapt with. Also used to choose beta.
    iterations : int
        Length of the training, from which `moml.fit` gives it. Also used to choose beta.
    beta : float
        Weight of the newest point in a memory: a number, rule or auto. auto is the rule where no
        tasks are held out, see `moml.fit`.

    Examples
    --------
    >>> from moml.methods import moml
    >>> round(moml(lambda w, x: (w - x) ** 2, n=25, shots=10).hyper.beta, 3)
    0.245
    """
    betas: tuple[float, ...] = ()
    if isinstance(beta, str):
        if shots is None:
            raise ConfigError("moml matches beta to your users: give shots, their samples each")
        visits = math.inf if iterations is None else iterations * batch.size / batch.count
        rule = match_beta(batch.k, shots, steps=test_steps, visits=visits, both_ways=both_ways)
        beta, betas = rule, near(rule) if beta == AUTO else ()
    memory = MEMORY_DTYPES[memory_dtype].memory(memories.ema(batch.count))
    visiting = swapped if both_ways else personal_step
    hyper = rates(optimizer, eta=eta, beta=beta, alpha=alpha)
    made = single_node_method(loss, inner, memory, optimizer, batch.spec(), hyper, visiting)
    return made._replace(betas=betas)
