"""A Flower run is the simulator's run: same seeds, same cohorts, same model."""

import numpy as np
import pytest

from tests.flower.common import federated, simulated, small

METHODS = {
    "localmoml": {},
    "carried": {"method": "localmoml", "carried": True},
    "per-fedavg": {"method": "per-fedavg"},
    "first-order": {"method": "per-fedavg", "curvature": "first-order"},
    "hessian-free": {"method": "per-fedavg", "curvature": "finite-difference"},
    "pfedme": {"method": "pfedme", "prox": 5.0, "prox_steps": 2, "server_rate": 0.7},
    "fedavg": {"method": "fedavg"},
    "ditto": {"method": "ditto"},
}
CASES = {
    **METHODS,
    "dropout": {"dropout": 0.4, "carried": True},
    "stragglers": {"straggle": 0.5},
    "weighted": {"weighted": True},
}


@pytest.mark.parametrize("clients", [4, 6], ids=["cross-device", "cross-silo"])
@pytest.mark.parametrize("name", METHODS)
def test_every_method(name, clients, tmp_path):
    config = small(tasks_per_step=clients, **METHODS[name])
    w, rows, _ = federated(config, tmp_path)
    expected, losses, _ = simulated(config)
    for mine, theirs in zip(w, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose([row["loss"] for row in rows], losses, rtol=1e-10)
