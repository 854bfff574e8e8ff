"""The ONNX graph of an export predicts as moml does, by onnxruntime."""

import sys
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest

import moml
from moml.config.config import check, method_options
from moml.errors import ConfigError
from moml.serving import moml_serve
from moml.serving.export import export, table_card
from moml.serving.export_network import described
from moml.serving.export_onnx import graphs
from moml.serving.forget import forget
from moml.training.fit import Learner
from moml.types import Batch, Hyper
from tests.serving.test_export import CASES, NETS, asked, maker
from tests.support.program import refused
from tests.support.small_run import quick  # noqa: F401


@pytest.fixture(scope="module")
def made(tmp_path_factory, quick):  # noqa: F811
    return maker(tmp_path_factory, format="onnx")


def run_graph(content, **inputs):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # it warns of inputs with a default
    providers = ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(content, options, providers=providers)
    (output,) = session.get_outputs()
    given = {name: np.asarray(array, np.float32) for name, array in inputs.items()}
    return output.name, session.run(None, given)[0]


def answers(made, classes):
    """The columns of a prediction as the graph's output."""
    if not classes:
        return made["prediction"]
    return np.stack([made[f"probability_{name}"] for name in classes], axis=1)


@pytest.mark.parametrize("case", CASES)
def test_a_table_with_personal_parameters_as_inputs(made, case):
    run, folder = made(case)
    rows, later = asked(CASES[case][0])
    served = moml_serve.load(folder)
    classes = run.columns.target.classes
    adapted = served.adapt(later)
    graph = (folder / "model.onnx").read_bytes()
    want = run.predict(rows, adapt_on=later).columns
    x, tasks = served.encode(rows), np.asarray(rows["person"])
    scale = 1.0 if classes else run.columns.target.scale.std
    known = [task for task in np.unique(tasks) if task in adapted.known]
    assert len(known) > 5
    for task in known:
        at = np.flatnonzero(tasks == task)
        assert adapted.inputs(task)
        name, found = run_graph(graph, x=x[at], **adapted.inputs(task))
        mine = {key: values[at] for key, values in want.items()}
        np.testing.assert_allclose(found / scale, answers(mine, classes) / scale, atol=1e-5)
    assert name == ("probabilities" if classes else "prediction")
    assert adapted.inputs("somebody else") == {}
    cold = (folder / "cold.onnx") if CASES[case][3] == "pooled" else (folder / "model.onnx")
    assert (folder / "cold.onnx").exists() == (CASES[case][3] == "pooled")
    nobody = {**rows, "person": np.full(len(x), "somebody else")}
    want = answers(run.predict(nobody).columns, classes)
    found = run_graph(cold.read_bytes(), x=x)[1]
    np.testing.assert_allclose(found / scale, want / scale, atol=1e-5)


@pytest.mark.parametrize("name", NETS)
def test_a_network_with_its_head_as_an_input(name):
    base, more = NETS[name]
    config = check(replace(base, test_steps=3, **more))
    numbers = config.problem.classifies is False
    net = moml.mlp(2, 7, 5, 2 if numbers else 4)
    loss = (moml.mse if numbers else moml.cross_entropy)(net.predict)
    chosen = moml.methods.method(config.method, loss, n=3, **method_options(config))
    hyper = Hyper(eta=jnp.array(0.1), alpha=jnp.array(config.option("alpha")))
    chance = np.random.default_rng(0)
    near = lambda leaf: leaf + 0.1 * chance.normal(size=leaf.shape)
    meta = jax.tree.map(near, chosen.adaptation(1).init(net.init(jax.random.key(1)), hyper))
    learner = Learner(chosen, meta, hyper, None, np.zeros(0), 0)
    card, arrays = described(config, learner, {"mean": 0.5, "std": 2.0})
    (graph,) = graphs(card, {key: np.asarray(a) for key, a in arrays.items()}).values()
    x = chance.normal(size=(8, 2))
    y = chance.normal(size=(8, 2)) if numbers else chance.integers(0, 4, 8)
    mine = learner.adapt(Batch((x - 0.5) / 2, y), steps=3)
    layers = [*mine.body, mine.head]
    first = len(layers) - 1 if card["leaves"] == "head" else 0
    heads = [moml_serve.Head(np.asarray(one.weight), np.asarray(one.bias)) for one in layers]
    own = moml_serve.Network(card, heads, {}).inputs()
    assert list(own) == [f"{i}/{p}" for i in range(first, len(layers)) for p in ("weight", "bias")]
    for params, inputs in ((learner.params, {}), (mine, own)):
        outputs = net.predict(params, (x - 0.5) / 2)
        want = outputs if numbers else jax.nn.softmax(outputs)
        named, found = run_graph(graph, x=x, **inputs)
        np.testing.assert_allclose(found, want, atol=1e-5)
    assert named == ("prediction" if numbers else "probabilities")
    assert np.abs(run_graph(graph, x=x)[1] - np.asarray(want)).max() > 1e-3


def test_other_members_are_refused(made):
    run, _ = made("number")
    card, arrays = table_card(run)
    card["models"]["personal"]["kinds"] = ["other"]
    with pytest.raises(ConfigError, match=r"members head, pooled, .* alone; got other"):
        graphs(card, arrays)


def test_forgetting_leaves_the_graph(made, tmp_path):
    run, _ = made("number")
    folder = export(run.folder, tmp_path / "export", format="onnx")
    graph = (folder / "model.onnx").read_bytes()
    forget(folder, ["pers\u00f6n-3"])
    assert (folder / "model.onnx").read_bytes() == graph
    assert "pers\u00f6n-3" not in moml_serve.load(folder).known


def test_users_mistakes(made, tmp_path, capsys, monkeypatch):
    run, _ = made("number")
    with pytest.raises(ConfigError, match="format must be one of numpy, onnx; got 'torch'"):
        export(run.folder, tmp_path / "export", format="torch")
    monkeypatch.setitem(sys.modules, "onnx", None)
    words = ("export", run.folder, "--out", tmp_path / "export", "--format", "onnx")
    assert "pip install 'moml[onnx]'" in refused(capsys, *words)
    assert not (tmp_path / "export").exists()
