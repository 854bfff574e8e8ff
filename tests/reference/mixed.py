"""A linear mixed model with dense matrices: deviance, fixed effects and predictions."""

import numpy as np


def covariances(z, groups, covariance, noise):
    """V = Z D Z' + s I, zero between groups."""
    v = noise * np.eye(len(z))
    for rows in groups:
        v[np.ix_(rows, rows)] += z[rows] @ covariance @ z[rows].T
    return v


def deviance(f, z, y, groups, covariance, noise, prior):
    """-2 log of the restricted likelihood, up to a constant; prior variances, inf for flat."""
    v = covariances(z, groups, covariance, noise)
    flat = np.isinf(prior)
    v = v + (f[:, ~flat] * prior[~flat]) @ f[:, ~flat].T
    x = f[:, flat]
    gram = x.T @ np.linalg.solve(v, x)
    b = np.linalg.solve(gram, x.T @ np.linalg.solve(v, y))
    e = y - x @ b
    logs = np.linalg.slogdet(v)[1] + np.linalg.slogdet(gram)[1]
    return logs + e @ np.linalg.solve(v, e)


def predict(f, z, y, groups, covariance, noise, prior, known, query):
    """F b + Z u of query rows (f, z) of one further task, given its known rows (f, z, y)."""
    inverse = np.linalg.inv(covariances(z, groups, covariance, noise))
    b = np.linalg.solve(f.T @ inverse @ f + np.diag(1 / prior), f.T @ inverse @ y)
    fk, zk, yk = known
    v = zk @ covariance @ zk.T + noise * np.eye(len(yk))
    u = covariance @ zk.T @ np.linalg.solve(v, yk - fk @ b)
    return query[0] @ b + query[1] @ u
