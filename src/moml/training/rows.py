"""The result row that every table and every command shares."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import ArrayLike, Bool

from moml.types import Record


def result_row(
    *,
    table: str,
    dataset: str,
    setting: Mapping[str, object],
    method: str,
    metric: str,
    values: ArrayLike | Sequence[float | None],
    lost: Bool[np.ndarray, " seeds"] | None = None,
    protocol: str = "strict",
    samples: int,
    iterations: int,
    seconds: float | None = None,
) -> Record:
    """Build a result row from one value a seed.

    Parameters
    ----------
    values
        The metric, one number a seed; None or a number that is not finite marks a lost seed.
    lost
        Further seeds to leave out of the mean, because their training diverged.

    Returns
    -------
    A JSON object; `mean` and `std` (ddof 0) are over the seeds that are left, None without any.

    >>> row = result_row(table="sine", dataset="sine", setting={"k": 1}, method="maml",
    ...                  metric="test_error", values=[1.0, 3.0, None], samples=60, iterations=10)
    >>> row["mean"], row["std"], row["values"], row["seeds"], row["lost"]
    (2.0, 1.0, [1.0, 3.0, None], 3, 1)
    """
    numbers = np.asarray(values)
    numbers = numbers.astype(float) if numbers.dtype == object else numbers
    gone = ~np.isfinite(numbers) if lost is None else ~np.isfinite(numbers) | lost
    mean, std = mean_of_seeds(numbers, gone)
    return {
        "table": table,
        "dataset": dataset,
        "setting": dict(setting),
        "method": method,
        "protocol": protocol,
        "metric": metric,
        "mean": mean,
        "std": std,
        "values": [None if out else float(x) for x, out in zip(numbers, gone, strict=True)],
        "seeds": len(numbers),
        "lost": int(gone.sum()),
        "paper_mean": None,  # the tables of the paper have their own, see moml.paper.cells
        "paper_std": None,
        "samples": samples,
        "iterations": iterations,
        "seconds": None if seconds is None else round(seconds, 2),
    }


def mean_of_seeds(values: ArrayLike, lost: ArrayLike) -> tuple[float | None, float | None]:
    """Mean and standard deviation (ddof 0) over the members that were not lost; None if all were.

    >>> mean_of_seeds(np.array([1.0, 3.0, np.nan]), np.array([False, False, True]))
    (2.0, 1.0)
    """
    kept = np.asarray(values)[~np.asarray(lost)]
    return (float(kept.mean()), float(kept.std())) if kept.size else (None, None)


def means_to_choose_by(values: np.ndarray, lost: ArrayLike) -> np.ndarray:
    """Means over the seeds that were not lost, [..., seeds] -> [...]; -inf where more were lost.

    A setting that loses fewer seeds is better than one that loses more, whatever their means.

    >>> means_to_choose_by(np.array([[1.0, 3.0], [5.0, 9.0]]), np.array([[True, False]] * 2))
    array([3., 9.])
    """
    left = np.broadcast_to(~np.asarray(lost), values.shape)
    count = left.sum(axis=-1)
    means = np.where(left, values, 0.0).sum(axis=-1) / np.maximum(count, 1)
    return np.where((count == count.max()) & (count > 0), means, -np.inf)
