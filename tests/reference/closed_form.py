"""A closed-form linear head over a small tanh network; the meta-gradient by complex steps.

The derivative of f is the imaginary part of f(x + ih) / h. Nothing is subtracted, so h may be tiny
and the result is as good as an analytic one.

The meta-model, flat: body V [2, 3], head weight [2], head bias, log prior variance of the weights,
of the bias, log noise variance: 12 numbers.
"""

from typing import Any

import numpy as np

from tests.reference.adaptation import Adaptation

HEAD = slice(6, 9)


def _features(meta: np.ndarray, x: np.ndarray) -> np.ndarray:
    f = np.tanh(x @ meta[:6].reshape(2, 3).T)
    return np.concatenate([f, np.ones((len(x), 1))], axis=1)


def apply(meta: np.ndarray, batch: Any) -> np.ndarray:
    """The posterior mean: v = w + S F' (F S F' + s I)^-1 (y - F w)."""
    x, y = batch
    w, f = meta[HEAD], _features(meta, x)
    prior = np.diag(np.exp(meta[[9, 9, 10]]))
    noise = np.exp(meta[11]) * np.eye(len(x))
    return w + prior @ f.T @ np.linalg.solve(f @ prior @ f.T + noise, y - f @ w)


def value(meta: np.ndarray, u: np.ndarray, batch: Any) -> Any:
    """Mean squared error of head u over the meta-model's own features."""
    x, y = batch
    return np.mean((_features(meta, x) @ u - y) ** 2)


def delta(meta: np.ndarray, u: np.ndarray, s2: Any, s3: Any) -> np.ndarray:
    """d/dm of L_S3 at (m, u + A(m; S2) - A(w; S2)), which moves with m as u' does."""
    here, h = apply(meta, s2), 1e-30
    out = np.zeros(len(meta))
    for j in range(len(meta)):
        m = meta.astype(complex)
        m[j] += 1j * h
        out[j] = value(m, u + apply(m, s2) - here, s3).imag / h
    return out


CLOSED_FORM = Adaptation(lambda meta: meta[HEAD], apply, delta)
