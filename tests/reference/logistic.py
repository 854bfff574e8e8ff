"""A logistic model with a random intercept by numerical integration, row by row."""

import numpy as np
from scipy.integrate import quad


def chance(odds):
    return 1 / (1 + np.exp(-odds))


def integral(odds, y, spread, inside=lambda u: 1.0):
    """The integral over u ~ N(0, spread^2) of inside(u) prod_j P(y_j | odds_j + u)."""

    def of(u):
        value = np.exp(-(u**2) / (2 * spread**2)) / np.sqrt(2 * np.pi * spread**2)
        for a, hit in zip(odds, y, strict=True):
            p = chance(a + u)
            value = value * (p if hit else 1 - p)
        return value * inside(u)

    return quad(of, -12 * spread, 12 * spread, epsabs=0, epsrel=1e-11, limit=200)[0]


def density(f, y, groups, beta, spread, prior, wide):
    """log p(y, b, v) up to a constant; p(v) is proportional to v exp(-v^2 / (2 wide^2))."""
    total = np.log(spread) - spread**2 / (2 * wide**2)
    for b, t in zip(beta, prior, strict=True):
        total -= b**2 / (2 * t)
    for rows in groups:
        total += np.log(integral(f[rows] @ beta, y[rows], spread))
    return total


def predict(odds, y, spread, asked):
    """P(y = 1) of a row with log-odds `asked`, given rows of its group."""
    return integral(odds, y, spread, lambda u: chance(asked + u)) / integral(odds, y, spread)


def ridge(f, y, prior):
    """A logistic regression with b_j ~ N(0, prior_j), by Newton's steps."""
    b = np.zeros(f.shape[1])
    for _ in range(50):
        p = chance(f @ b)
        hessian = f.T @ np.diag(p * (1 - p)) @ f + np.diag(1 / prior)
        b = b + np.linalg.solve(hessian, f.T @ (y - p) - b / prior)
    return b
