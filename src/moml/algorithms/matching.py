"""When memory pays, and how much: the matching rule for beta."""

import math


def match_beta(
    k: int, shots: int, *, steps: int = 1, visits_apart: float = 1.0, floor: float | None = None
) -> float:
    """beta so that the memory is as noisy as what a user will have: 2K / (shots + K).

    An average with weight beta has the noise of K (2 - beta) / beta samples. Training with K
    samples a visit prepares for users with K samples; a memory makes it prepare for `shots`. With
    shots <= K memory does not pay, and beta = 1 (none). Several adaptation `steps` at test favour
    less: the rule times steps^-0.4, but not less than 0.6 of it.

    A small beta lags behind a moving w, the more so the longer (`visits_apart` = n / B steps) a
    task waits for its next visit. The floor is 0.1 sqrt(visits_apart / 133), as measured with
    Adam; `floor` overrides it. `moml reproduce shots --full` measures all of this.

    >>> match_beta(k=1, shots=1), match_beta(k=5, shots=10)
    (1.0, 0.6666666666666666)
    >>> round(match_beta(k=1, shots=10, steps=10), 3)
    0.109
    """
    least = 0.1 * math.sqrt(visits_apart / 133) if floor is None else floor
    rule = 2 * k / (shots + k) * max(0.6, steps**-0.4)
    return 1.0 if shots <= k else min(1.0, max(rule, least))
