"""SCGD and NASA: MOML v1 with every task in every step."""

from moml.algorithms.method import Method, factory
from moml.algorithms.parts import memory as memories
from moml.algorithms.parts.adapt import all_leaves
from moml.algorithms.parts.choices import MEMORY_DTYPES, by_steps, fixed_number, spec
from moml.algorithms.parts.optimizer import averaged_sgd, rates
from moml.algorithms.signature import (
    Adaptation,
    Chosen,
    Count,
    Curvature,
    Function,
    MemoryDtype,
    NonNegative,
    Optimizer,
    Positive,
    StepSizes,
    Tied,
    Weight,
)
from moml.algorithms.single.engine import single_node
from moml.types import Hyper, Loss


def _method(
    loss: Loss,
    adaptation: Adaptation,
    optimizer: Optimizer,
    *,
    n: int | None,
    k: int,
    inner_steps: int,
    independent_hessian: bool,
    memory_dtype: str,
    hyper: Hyper,
) -> Method:
    count = fixed_number(n)
    memory = MEMORY_DTYPES[memory_dtype].memory(memories.ema(count))
    samples = spec(count, k, independent_hessian)
    algorithm = single_node(loss, adaptation(inner_steps), memory, optimizer, samples)
    return Method(algorithm, adaptation, hyper, memory)


@factory
def scgd(
    loss: Loss,
    *,
    n: Count | None,
    k: Count = 1,
    eta: Positive = 0.05,
    beta: Weight = 0.5,
    alpha: NonNegative = 0.01,
    inner_steps: Count = 1,
    curvature: Curvature = "exact",
    leaves: Chosen = all_leaves,
    tied: Tied = False,
    step_sizes: StepSizes = "given",
    adapt: Function | None = None,
    optimizer: Optimizer = "sgd",
    independent_hessian: bool = False,
    eager: bool = False,
    memory_dtype: MemoryDtype = "float32",
) -> Method:
    """SCGD: MOML v1 over all n tasks, with a plain step.

    u_i <- (1 - beta) u_i + beta A(w; S1) for every i,    w <- w - eta mean_i J_A' grad L_S3(u_i)

    Examples
    --------
    >>> from moml.methods import scgd
    >>> scgd(lambda w, x: (w - x) ** 2, n=4).algorithm.needs.tasks
    4
    """
    adaptation = by_steps(
        loss, curvature=curvature, leaves=leaves, tied=tied, step_sizes=step_sizes, adapt=adapt
    )
    return _method(
        loss, adaptation, optimizer, n=n, k=k, inner_steps=inner_steps,
        independent_hessian=independent_hessian, memory_dtype=memory_dtype,
        hyper=rates(optimizer, eta=eta, beta=beta, alpha=alpha),
    )  # fmt: skip


@factory
def nasa(
    loss: Loss,
    *,
    n: Count | None,
    k: Count = 1,
    eta: Positive = 0.05,
    beta: Weight = 0.5,
    alpha: NonNegative = 0.01,
    gamma: Weight = 0.1,
    inner_steps: Count = 1,
    curvature: Curvature = "exact",
    leaves: Chosen = all_leaves,
    tied: Tied = False,
    step_sizes: StepSizes = "given",
    adapt: Function | None = None,
    independent_hessian: bool = False,
    eager: bool = False,
    memory_dtype: MemoryDtype = "float32",
) -> Method:
    """NASA: MOML v1 over all n tasks, with an averaged gradient.

    z <- (1 - gamma) z + gamma Delta,    w <- w - eta z,    Delta as in SCGD

    Parameters
    ----------
    gamma : float
        Weight of the newest gradient in the average.

    Examples
    --------
    >>> from moml.methods import nasa
    >>> nasa(lambda w, x: (w - x) ** 2, n=4, gamma=0.2).hyper.gamma
    0.2
    """
    adaptation = by_steps(
        loss, curvature=curvature, leaves=leaves, tied=tied, step_sizes=step_sizes, adapt=adapt
    )
    return _method(
        loss, adaptation, averaged_sgd, n=n, k=k, inner_steps=inner_steps,
        independent_hessian=independent_hessian, memory_dtype=memory_dtype,
        hyper=Hyper(eta=eta, beta=beta, alpha=alpha, gamma=gamma),
    )  # fmt: skip
