"""Types and shapes are checked in these tests, in functions inside functions too."""

import numpy as np
import pytest
from jaxtyping import Float, TypeCheckError, jaxtyped

from tests.support.signatures import checked


def made(shift, kind, shape):
    @jaxtyped(typechecker=checked)
    def moved(x: Float[np.ndarray, shape], by: kind = shift) -> Float[np.ndarray, shape]:
        return x + shift if np.isfinite(shift) else x[:-1]

    return moved


def test_functions_of_one_signature_differ_in_what_they_do():
    first, second = made(1.0, float, "n"), made(2.0, float, "n")
    assert first(np.zeros(2)).tolist() == [1, 1] and second(np.zeros(3)).tolist() == [2, 2, 2]


def test_each_signature_is_checked():
    for moved in (made(1.0, float, "n"), made(1.0, float, "n")):
        with pytest.raises(TypeCheckError):
            moved(np.zeros((2, 2)))
        with pytest.raises(TypeCheckError):
            moved(np.zeros(2), by="a")
    assert made(1.0, str, "n")(np.zeros(2), by="a").tolist() == [1, 1]  # other annotations
    assert made(1.0, float, "n m")(np.zeros((2, 2))).shape == (2, 2)
    with pytest.raises(TypeCheckError, match="return value"):
        made(np.inf, float, "n")(np.zeros(2))


def test_our_own_functions_are_checked():
    from moml.models.table import knots

    with pytest.raises(TypeCheckError):
        knots(np.zeros(3))  # rows and features are asked for
