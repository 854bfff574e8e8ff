"""ProtoNet over a small tanh network, three classes; the meta-gradient by complex steps.

The meta-model, flat: body V [2, 3], then a head [3, 2] and [3] that is never looked at. A personal
model is that of the linear head which ProtoNet's distances amount to: weight [3, 2], bias [3].
"""

from typing import Any

import numpy as np

from tests.reference.adaptation import Adaptation


def _features(meta: np.ndarray, x: np.ndarray) -> np.ndarray:
    return np.tanh(x @ meta[:6].reshape(2, 3).T)


def _centres(meta: np.ndarray, batch: Any) -> np.ndarray:
    """The mean embedding of each class; 0 where the support has none of it."""
    (x, y), c = batch, np.zeros((3, 2), meta.dtype)
    for j in range(3):
        mine = [f for f, label in zip(_features(meta, x), y, strict=True) if label == j]
        if mine:
            c[j] = sum(mine) / len(mine)
    return c


def apply(meta: np.ndarray, batch: Any) -> np.ndarray:
    """The linear head: 2 c_j, -|c_j|^2."""
    c = _centres(meta, batch)
    return np.concatenate([(2 * c).ravel(), -np.sum(c * c, axis=1)])


def value(meta: np.ndarray, centres: np.ndarray, batch: Any) -> Any:
    """Mean cross-entropy of softmax(-|f - c_j|^2): the distances themselves, no head."""
    (x, y), total = batch, 0.0
    for f, label in zip(_features(meta, x), y, strict=True):
        near = np.array([-np.sum((f - c) * (f - c)) for c in centres])
        total = total + np.log(np.sum(np.exp(near))) - near[label]
    return total / len(x)


def delta(meta: np.ndarray, u: np.ndarray, s2: Any, s3: Any) -> np.ndarray:
    """d/dm of L_S3 at the class means of S2, which move with m; u is those of S1 = S2."""
    h, out = 1e-30, np.zeros(len(meta))
    for j in range(len(meta)):
        m = meta.astype(complex)
        m[j] += 1j * h
        out[j] = np.imag(value(m, _centres(m, s2), s3)) / h
    return out


PROTONET = Adaptation(lambda meta: meta[6:], apply, delta)
