"""When memory pays, and how much: the matching rule for beta."""

import math

from moml.errors import ConfigError, check_count


def match_beta(
    k: int,
    shots: int,
    *,
    steps: int = 1,
    visits: float | int = math.inf,
    both_ways: bool = False,
    floor: float | None = None,
) -> float:
    """Choose beta so that a memory has the noise of the user's samples: 2K / (shots + K).

    An average with weight beta has the noise of K (2 - beta) / beta samples. Training with K
    samples a visit prepares for users with K samples; with a memory it prepares for `shots`. If
    shots <= K, memory does not pay, and beta is 1. The rule assumes that S2 is drawn apart from S1.

    Parameters
    ----------
    k
        Samples in each of S1 and S3.
    shots
        Samples that a user will adapt on.
    steps
        Adaptation steps of a user. With several, the rule is taken to the power of 2 - 1 / steps.
    visits
        Visits of a task in the whole training, T B / n. Beta is at least sqrt(3 / visits): a
        smaller one lags behind a moving w.
    both_ways
        Whether S1 and S3 swap roles. The same equation then has another root, up to twice as large.
    floor
        The least beta, instead of max(0.1, sqrt(3 / visits)).

    Returns
    -------
    float
        Beta, in (0, 1]. `moml reproduce shots --full` compares it with the best beta.

    >>> match_beta(k=1, shots=1), match_beta(k=5, shots=10)
    (1.0, 0.6666666666666666)
    >>> round(match_beta(k=3, shots=10, steps=10), 3)
    0.23
    """
    for name, count in {"k": k, "shots": shots, "steps": steps}.items():
        check_count(name, count)
    if not visits > 0:
        raise ConfigError(f"visits must be above 0; got {visits}")
    least = max(0.1, math.sqrt(3 / visits)) if floor is None else floor
    rule = _both_ways(k, shots) if both_ways else 2 * k / (shots + k)
    return 1.0 if shots <= k else min(1.0, max(rule ** (2 - 1 / steps), least))


def near(rule: float) -> tuple[float, ...]:
    """Values of beta to compare on held-out tasks: 1, the rule's, and half of that.

    >>> near(0.2), near(1.0)
    ((1.0, 0.2, 0.1), (1.0, 0.5))
    """
    return tuple(sorted({1.0, rule, rule / 2}, reverse=True))


def match_restart(k: int, shots: int, *, local_steps: int, restart_samples: int) -> float:
    """The same for a memory that begins anew in each round, from K0 = `restart_samples`.

    After h of H local steps the weights are (1 - beta)^h for the K0 samples and
    beta (1 - beta)^(h - j) for the K of step j, so that its noise is that of one sample times

        N(h) = (1 - beta)^2h / K0 + (beta^2 / K) sum_(i < h) (1 - beta)^2i

    and over a round, with m the mean of (1 - beta)^2h over h = 1, ..., H,

        mean N = m / K0 + (1 - m) beta / (2 - beta) / K.

    The largest beta whose mean is 1 / shots; where a round is too short for so little noise, the
    beta with the least.

    >>> match_restart(5, 5, local_steps=10, restart_samples=5)
    1.0
    >>> round(match_restart(1, 5, local_steps=10, restart_samples=2), 3)
    0.282
    """
    h, k0 = local_steps, restart_samples
    for name, count in {"k": k, "shots": shots, "local_steps": h, "restart_samples": k0}.items():
        check_count(name, count)

    def noise(beta: float) -> float:
        q, fades = (1 - beta) ** 2, beta * (2 - beta)  # fades = 1 - q
        m = q * (1 - q**h) / fades / h
        return m / k0 + (1 - m) * beta / (2 - beta) / k

    tried = [i / 1000 for i in range(1000, 0, -1)]
    return next((b for b in tried if noise(b) <= 1 / shots + 1e-12), min(tried, key=noise))


def _both_ways(k: int, shots: int) -> float:
    """The root of beta (1 + 2 beta - beta^2) / (2 - beta) = 2K / shots, by halving.

    The newest point has weight beta and K samples, the memory before it 1 - beta and, at each of
    its visits, 2K:  beta^2 / K + (1 - beta)^2 beta / (2 - beta) / 2K = 1 / shots.
    """
    low, high = 0.0, 1.0
    for _ in range(60):
        beta = (low + high) / 2
        more = beta * (1 + 2 * beta - beta**2) / (2 - beta) < 2 * k / shots
        low, high = (beta, high) if more else (low, beta)
    return high
