"""`moml flower init, up, run, down` with real processes: in plain text, and with TLS."""

import json
import stat

import numpy as np
import pytest

from moml.cli import run as moml
from moml.errors import ConfigError
from tests.flower.common import small
from tests.flower.federation import equal_to_the_simulator, federation

SEED = 7  # an experiment is built once in a process, and here with float32


@pytest.mark.slow  # the one with TLS goes the same way
@pytest.mark.parametrize("method", ["localmoml", "apfl"])
def test_a_federation_in_plain_text(method, tmp_path, capsys):
    given = {"carried": True} if method == "localmoml" else {"method": method}
    config = small(**given, iterations=4, seed=SEED)
    with federation(tmp_path / "fed", config, "--nodes", 2) as fed:
        rows_file = tmp_path / "rows.json"
        told, _ = fed.does("run", "--json", rows_file)
        losses = equal_to_the_simulator(fed.out, config)
        np.testing.assert_allclose([row["loss"] for row in fed.rounds], losses, rtol=1e-4)
        assert [line.split()[0] for line in told.splitlines()[2:4]] == ["1/2", "2/2"]
        rows = json.loads(rows_file.read_text())
        assert [row["setting"]["round"] for row in rows] == [1, 1, 2, 2]
        assert rows[-1]["mean"] == fed.rounds[-1]["after"] and rows[-1]["lost"] == 0
        drawn = 2 + 2 if method == "localmoml" else 2  # S1 and S3, or S1
        assert rows[-1]["samples"] == 2 * 4 * 2 * drawn  # rounds, clients, H
        moml(["flower", "up", str(fed.places.root)])
        assert "is up already: SuperLink on 127.0.0.1:" in capsys.readouterr().out
        with pytest.raises(ConfigError, match="is up with 2 nodes"):
            moml(["flower", "up", str(fed.places.root), "--nodes", "3"])
    moml(["flower", "down", str(fed.places.root)])
    assert "nothing was running" in capsys.readouterr().out


def test_a_federation_with_tls(tmp_path):
    config = small(method="scaffold", server_rate=0.7, iterations=4, seed=SEED)
    with federation(tmp_path / "fed", config, "--nodes", 2, "--tls") as fed:
        fed.does("run")
        equal_to_the_simulator(fed.out, config)
        mode = lambda path: stat.S_IMODE(path.stat().st_mode)
        keys = fed.places.keys
        assert mode(fed.places.home) == mode(keys) == 0o700
        assert {mode(keys / name) for name in ("server.key", "node-0", "node-1")} == {0o600}
        assert "insecure = false" in fed.places.connections.read_text()
