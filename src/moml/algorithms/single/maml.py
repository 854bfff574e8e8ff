"""MAML and its relatives: no memory."""

from moml.algorithms.method import Method, factory, variant
from moml.algorithms.parts.adapt import named
from moml.algorithms.parts.choices import ANY, Inner, Sampling
from moml.algorithms.parts.memory import none
from moml.algorithms.parts.optimizer import rates
from moml.algorithms.signature import NonNegative, Optimizer, Positive
from moml.algorithms.single.engine import single_node_method
from moml.types import Loss


@factory
def maml(
    loss: Loss,
    *,
    batch: Sampling = ANY,
    eta: Positive = 0.005,
    alpha: NonNegative = 0.01,
    inner: Inner,
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
    hyper = rates(optimizer, eta=eta, alpha=alpha)
    samples = batch.spec(independent_hessian)
    return single_node_method(loss, inner, none(), optimizer, samples, hyper)


@variant(maml, {"curvature": "first-order", "adapt": None, "independent_hessian": False})
def fo_maml() -> None:
    """First-order MAML: MAML with J_A = I.

    v = A(w; S1),    w <- w - eta mean_i grad L_S3(v)

    Examples
    --------
    >>> from moml.methods import fo_maml
    >>> fo_maml(lambda w, x: (w - x) ** 2, k=5).k
    5
    """


@variant(maml, {"curvature": "finite-difference", "adapt": None})
def hf_maml() -> None:
    """Hessian-free MAML: the curvature from two more gradients.

    H c = (grad L(w + d c) - grad L(w - d c)) / 2d  in place of the Hessian in J_A(w; S2)

    Examples
    --------
    >>> from moml.methods import hf_maml
    >>> hf_maml(lambda w, x: (w - x) ** 2).name
    'hf-maml'
    """


@variant(maml, {"step_sizes": "parameter", "adapt": None}, eta=0.002, optimizer="adam")
def meta_sgd() -> None:
    """Meta-SGD: MAML with a learned step size for each parameter.

    v = w - exp(a) * grad L_S1(w),    both w and a learned, a starting at log(alpha)

    Examples
    --------
    >>> from moml.methods import meta_sgd
    >>> meta_sgd(lambda w, x: (w - x) ** 2).options["optimizer"]
    'adam'
    """


@variant(maml, {"adapt": None}, eta=0.002, leaves=named("head"), optimizer="adam")
def anil() -> None:
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
