"""Targets that differ by factors: mixed models of their logarithms answer alike everywhere."""

import importlib.util
import json

import numpy as np
import pytest

from moml.serving.export import export
from moml.tabular.run import load_table_run
from moml.tabular.train import train_table
from tests.tabular.test_crossfit import NEW, QUICK, some, table


def factors(columns):
    return columns | {"y": 100 * np.exp(0.6 * columns["y"])}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train_table(factors(table()), tmp_path_factory.mktemp("logs") / "run", **QUICK)


def test_logarithms_have_the_weight_where_factors_act(run):
    weights = dict(zip(run.model.kinds, run.model.stack.weights[-1], strict=True))
    assert sum(w for kind, w in weights.items() if kind.startswith("log-")) > 0.8


def test_opened_adapted_and_exported_runs_answer_alike(run, tmp_path):
    new = factors(NEW)
    known, query = some(new, new["t"] < 3), some(new, new["t"] >= 3)
    known["y"][0] = -1.0  # below all that training has seen
    wanted = run.predict(query, adapt_on=known, interval=0.9).columns
    opened = load_table_run(run.folder)
    made = opened.adapt(some(known, known["t"] < 1), tmp_path / "one")
    later = made.predict(query, adapt_on=some(known, known["t"] >= 1)).columns["prediction"]
    np.testing.assert_allclose(later, wanted["prediction"], rtol=0.02)  # networks: approximately
    export(run.folder, tmp_path / "export")
    assert json.loads((tmp_path / "export" / "card.json").read_text())["format"] == 4
    spec = importlib.util.spec_from_file_location("serve", tmp_path / "export" / "moml_serve.py")
    serve = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(serve)
    served = serve.load(tmp_path / "export")
    for asked, how in ((query, {"adapt_on": known}), (query, {}), (factors(table()), {})):
        theirs = served.predict(asked, interval=0.9, **how)
        ours = run.predict(asked, interval=0.9, **how).columns
        for name in ("prediction", "lower", "upper"):
            np.testing.assert_allclose(theirs[name], ours[name], rtol=1e-4)
