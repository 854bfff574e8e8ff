"""The scale on which a mixed model is linear: that of the target, or its logarithm.

A link is an array: empty for the target's own scale; for logarithms (shift, least, mean, std) with

    h(y) = (log(max(y + shift, least)) - mean) / std.

`y` is standardised, so that `shift` is the mean of the target over its deviation.
"""

import numpy as np
from jaxtyping import Float

Link = Float[np.ndarray, " numbers"]
OWN: Link = np.zeros(0)
NARROW, WIDE = 3.0, 1e5  # the largest target over the least, between which logarithms are tried
MOST = 1.0  # variance of a logarithm, that the mean of a target is corrected for


def log_link(y: Float[np.ndarray, " rows"], shift: float) -> Link | None:
    """The logarithm of targets that are positive and differ by factors; None for others.

    Targets that differ little are as linear as their logarithms. Where they differ by more than
    `WIDE` the least may be a zero that was rounded.

    >>> log_link(np.array([-0.5, 2.5]), 1.5).round(3).tolist()
    [1.5, 1.0, 0.693, 0.693]
    >>> log_link(np.array([-0.5, 1.0]), 0.5), log_link(np.array([9.0, 10.0]), 0.0)
    (None, None)
    """
    given = np.asarray(y, float) + shift
    least = given.min()
    if least <= 0 or not NARROW * least <= given.max() <= WIDE * least:
        return None
    logs = np.log(given)
    return np.array([shift, least, logs.mean(), logs.std()])


def linked(link: Link, y: Float[np.ndarray, "*n"]) -> Float[np.ndarray, "*n"]:
    """Targets on the scale of the model: h(y)."""
    if not link.size:
        return y
    shift, least, mean, std = link
    return (np.log(np.maximum(y + shift, least)) - mean) / std


def mean_target(
    link: Link,
    mean: Float[np.ndarray, " rows"],
    variance: Float[np.ndarray, " rows"],
    bounds: Float[np.ndarray, " 2"],
) -> Float[np.ndarray, " rows"]:
    """The mean of y where h(y) ~ N(mean, variance), bounded; of a logarithm v = std^2 variance:

    E y = exp(log_mean + std mean + v / 2) - shift
    """
    if link.size:
        shift, _, log_mean, std = link
        logs = log_mean + std * mean + np.minimum(std**2 * variance, MOST) / 2
        mean = np.exp(np.minimum(logs, np.log(max(bounds[1] + shift, 1e-12)))) - shift
    return np.clip(mean, *bounds)
