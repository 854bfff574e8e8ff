"""SCGD and NASA: MOML v1 with every task in every step."""

from moml.algorithms.method import Method, factory
from moml.algorithms.parts.choices import MEMORY_DTYPES, Inner, fixed_number, spec
from moml.algorithms.parts.memory import ema
from moml.algorithms.parts.optimizer import averaged_sgd, rates
from moml.algorithms.signature import Count, MemoryDtype, NonNegative, Optimizer, Positive, Weight
from moml.algorithms.single.engine import single_node_method
from moml.types import Hyper, Loss


@factory
def scgd(
    loss: Loss,
    *,
    n: Count | None,
    k: Count = 1,
    eta: Positive = 0.05,
    beta: Weight = 0.5,
    alpha: NonNegative = 0.01,
    inner: Inner,
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
    hyper, count = rates(optimizer, eta=eta, beta=beta, alpha=alpha), fixed_number(n)
    memory = MEMORY_DTYPES[memory_dtype].memory(ema(count))
    samples = spec(count, k, independent_hessian)
    return single_node_method(loss, inner, memory, optimizer, samples, hyper)


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
    inner: Inner,
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
    hyper, count = Hyper(eta=eta, beta=beta, alpha=alpha, gamma=gamma), fixed_number(n)
    memory = MEMORY_DTYPES[memory_dtype].memory(ema(count))
    samples = spec(count, k, independent_hessian)
    return single_node_method(loss, inner, memory, averaged_sgd, samples, hyper)
