"""When memory pays, and how much: the matching rule for beta."""

import math


def match_beta(
    k: int, shots: int, *, steps: int = 1, visits_apart: float = 1.0, floor: float | None = None
) -> float:
    """beta so that the memory is as noisy as what a user will have: 2K / (shots + K).

    An average with weight beta has the noise of K (2 - beta) / beta samples. Training with K
    samples a visit prepares for users with K samples; a memory makes it prepare for `shots`. With
    shots <= K memory does not pay, and beta = 1 (none). Several adaptation `steps` at test favour
    less: 0.4 of the rule was best for ten; in between we interpolate by a power of the steps.

    A small beta lags behind a moving w the more, the longer (`visits_apart` = n / B steps) a task
    waits. The paper's lemma balances lag and noise at beta ~ (eta n / B)^(2/3). The floor here has
    that power of n / B, leaves eta out, and takes its constant from sine, where beta = 0.1 was the
    least that did not hurt at n / B = 133. `floor` overrides it.

    >>> match_beta(k=1, shots=1), match_beta(k=5, shots=10)
    (1.0, 0.6666666666666666)
    >>> round(match_beta(k=1, shots=10, steps=10), 3)
    0.073
    """
    least = 0.1 * (visits_apart / 133) ** (2 / 3) if floor is None else floor
    rule = 2 * k / (shots + k) * steps ** math.log10(0.4)
    return 1.0 if shots <= k else min(1.0, max(rule, least))
