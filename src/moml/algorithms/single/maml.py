"""MAML and its relatives: no memory."""

from moml.algorithms.method import Method, factory
from moml.algorithms.parts.adapt import all_leaves, named
from moml.algorithms.parts.choices import batch_size, by_steps, spec
from moml.algorithms.parts.memory import none
from moml.algorithms.parts.optimizer import rates
from moml.algorithms.signature import (
    Adaptation,
    Chosen,
    Count,
    Curvature,
    Function,
    NonNegative,
    Optimizer,
    Positive,
    StepSizes,
    Tied,
)
from moml.algorithms.single.engine import single_node
from moml.types import Hyper, Loss

head = named("head")


def _method(
    loss: Loss,
    adaptation: Adaptation,
    optimizer: Optimizer,
    *,
    n: int | None,
    k: int,
    tasks_per_step: int | None,
    inner_steps: int,
    hyper: Hyper,
    independent_hessian: bool = False,
) -> Method:
    b = batch_size("tasks_per_step", tasks_per_step, 3, n)
    samples = spec(b, k, independent_hessian)
    algorithm = single_node(loss, adaptation(inner_steps), none(), optimizer, samples)
    return Method(algorithm, adaptation, hyper, options={"tasks_per_step": b})


@factory
def maml(
    loss: Loss,
    *,
    n: Count | None = None,
    k: Count = 1,
    tasks_per_step: Count | None = None,
    eta: Positive = 0.005,
    alpha: NonNegative = 0.01,
    inner_steps: Count = 1,
    curvature: Curvature = "exact",
    leaves: Chosen = all_leaves,
    tied: Tied = False,
    step_sizes: StepSizes = "given",
    adapt: Function | None = None,
    optimizer: Optimizer = "sgd",
    independent_hessian: bool = False,
) -> Method:
    """MAML: the exact meta-gradient, no memory (also known as BSGD).

    v = A(w; S1),    w <- w - eta mean_i J_A(w; S2)' grad L_S3(v)

    Examples
    --------
    >>> from moml.methods import maml
    >>> maml(lambda w, x: (w - x) ** 2, eta=0.1).hyper
    Hyper(eta=0.1, alpha=0.01)
    """
    adaptation = by_steps(
        loss, curvature=curvature, leaves=leaves, tied=tied, step_sizes=step_sizes, adapt=adapt
    )
    return _method(
        loss, adaptation, optimizer, n=n, k=k, tasks_per_step=tasks_per_step,
        inner_steps=inner_steps, hyper=rates(optimizer, eta=eta, alpha=alpha),
        independent_hessian=independent_hessian,
    )  # fmt: skip


@factory
def fo_maml(
    loss: Loss,
    *,
    n: Count | None = None,
    k: Count = 1,
    tasks_per_step: Count | None = None,
    eta: Positive = 0.005,
    alpha: NonNegative = 0.01,
    inner_steps: Count = 1,
    leaves: Chosen = all_leaves,
    tied: Tied = False,
    step_sizes: StepSizes = "given",
    optimizer: Optimizer = "sgd",
) -> Method:
    """First-order MAML: MAML with J_A = I.

    v = A(w; S1),    w <- w - eta mean_i grad L_S3(v)

    Examples
    --------
    >>> from moml.methods import fo_maml
    >>> fo_maml(lambda w, x: (w - x) ** 2, k=5).k
    5
    """
    adaptation = by_steps(
        loss, curvature="first-order", leaves=leaves, tied=tied, step_sizes=step_sizes
    )
    return _method(
        loss, adaptation, optimizer, n=n, k=k, tasks_per_step=tasks_per_step,
        inner_steps=inner_steps, hyper=rates(optimizer, eta=eta, alpha=alpha),
    )  # fmt: skip


@factory
def hf_maml(
    loss: Loss,
    *,
    n: Count | None = None,
    k: Count = 1,
    tasks_per_step: Count | None = None,
    eta: Positive = 0.005,
    alpha: NonNegative = 0.01,
    inner_steps: Count = 1,
    leaves: Chosen = all_leaves,
    tied: Tied = False,
    step_sizes: StepSizes = "given",
    optimizer: Optimizer = "sgd",
    independent_hessian: bool = False,
) -> Method:
    """Hessian-free MAML: the curvature from two more gradients.

    H c = (grad L(w + d c) - grad L(w - d c)) / 2d  in place of the Hessian in J_A(w; S2)

    Examples
    --------
    >>> from moml.methods import hf_maml
    >>> hf_maml(lambda w, x: (w - x) ** 2).name
    'hf-maml'
    """
    adaptation = by_steps(
        loss, curvature="finite-difference", leaves=leaves, tied=tied, step_sizes=step_sizes
    )
    return _method(
        loss, adaptation, optimizer, n=n, k=k, tasks_per_step=tasks_per_step,
        inner_steps=inner_steps, hyper=rates(optimizer, eta=eta, alpha=alpha),
        independent_hessian=independent_hessian,
    )  # fmt: skip


@factory
def meta_sgd(
    loss: Loss,
    *,
    n: Count | None = None,
    k: Count = 1,
    tasks_per_step: Count | None = None,
    eta: Positive = 0.002,
    alpha: NonNegative = 0.01,
    inner_steps: Count = 1,
    curvature: Curvature = "exact",
    leaves: Chosen = all_leaves,
    tied: Tied = False,
    optimizer: Optimizer = "adam",
    independent_hessian: bool = False,
) -> Method:
    """Meta-SGD: MAML with a learned step size for each parameter.

    v = w - exp(a) * grad L_S1(w),    both w and a learned, a starting at log(alpha)

    Examples
    --------
    >>> from moml.methods import meta_sgd
    >>> meta_sgd(lambda w, x: (w - x) ** 2).options["optimizer"]
    'adam'
    """
    adaptation = by_steps(
        loss, curvature=curvature, leaves=leaves, tied=tied, step_sizes="parameter"
    )
    made = _method(
        loss, adaptation, optimizer, n=n, k=k, tasks_per_step=tasks_per_step,
        inner_steps=inner_steps, hyper=rates(optimizer, eta=eta, alpha=alpha),
        independent_hessian=independent_hessian,
    )  # fmt: skip
    return made._replace(options={**made.options, "step_sizes": "parameter"})


@factory
def anil(
    loss: Loss,
    *,
    n: Count | None = None,
    k: Count = 1,
    tasks_per_step: Count | None = None,
    eta: Positive = 0.002,
    alpha: NonNegative = 0.01,
    inner_steps: Count = 1,
    curvature: Curvature = "exact",
    leaves: Chosen = head,
    tied: Tied = False,
    step_sizes: StepSizes = "given",
    optimizer: Optimizer = "adam",
    independent_hessian: bool = False,
) -> Method:
    """ANIL: MAML that adapts only the parameters named head.

    w = (body, head),    v = head - alpha grad_head L_S1(w)

    Parameters
    ----------
    leaves : callable
        Which parameters adapt. By default those whose name has "head" in it.

    Examples
    --------
    >>> from moml.methods import anil
    >>> anil(lambda w, x: (w["head"] - x) ** 2).inner_steps
    1
    """
    adaptation = by_steps(
        loss, curvature=curvature, leaves=leaves, tied=tied, step_sizes=step_sizes
    )
    return _method(
        loss, adaptation, optimizer, n=n, k=k, tasks_per_step=tasks_per_step,
        inner_steps=inner_steps, hyper=rates(optimizer, eta=eta, alpha=alpha),
        independent_hessian=independent_hessian,
    )  # fmt: skip
