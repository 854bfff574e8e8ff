"""An export adapts and predicts as moml does, where nothing but numpy can be imported."""

import csv
import json
import os
import subprocess
import sys
import venv
from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import moml
from moml.config.config import check, method_options
from moml.config.problems import Sine
from moml.config.starts import STARTS
from moml.data.table.write import write_table
from moml.errors import MomlWarning
from moml.runs.job import plan_of
from moml.runs.runs import train
from moml.serving import moml_serve
from moml.serving.export import FORMAT, export
from moml.serving.export_network import described
from moml.storage.manifest import seal
from moml.training.fit import Learner
from moml.types import Batch, Hyper
from tests.support.program import call, refused
from tests.support.small_mnist import TINY
from tests.support.small_run import quick, small_run, visits  # noqa: F401

# Refuses all that is neither numpy nor of the standard library, then runs a program.
ALONE = """
import os, runpy, sys
class Alone:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] not in {*sys.stdlib_module_names, "numpy"}:
            raise ImportError(f"{name} is not there")
sys.meta_path.insert(0, Alone())
sys.path.append(os.environ["NUMPY"])
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
NUMPY = os.path.dirname(os.path.dirname(np.__file__))
CASES = {  # target, kinds, order, who answers where nothing is known
    "number": ("number", ["summary", "head"], "day", "pooled"),
    "two classes": ("two", ["steps"], "day", "personal"),
    "truth": ("flag", ["summary"], None, "personal"),
    "three classes": ("three", ["summary", "steps"], None, "pooled"),
}


def maker(tmp_path_factory, **how):
    """A run, by the name of a case, and its export; made once."""

    @cache
    def make(case):
        target, kinds, order, cold = CASES[case]
        folder = tmp_path_factory.mktemp("export")
        run = small_run(folder / "run", visits(9, 0, target), kinds, order=order, cold=cold)
        return run, export(folder / "run", folder / "export", **how)

    return make


@pytest.fixture(scope="module")
def made(tmp_path_factory, quick):  # noqa: F811
    return maker(tmp_path_factory)


def asked(target):
    """Rows of known tasks, of new ones, of one without any known row; and rows to adapt on."""
    rows = visits(12, 5, target, first=3)
    rows["kind"][:2] = "never seen"
    later = visits(8, 6, target, first=6)
    return rows, later


def served(folder, *words, python=(sys.executable, "-I", "-S", "-c", ALONE)):
    """The exported file in a process of its own."""
    done = subprocess.run(
        [*python, folder / "moml_serve.py", *map(str, words)],
        capture_output=True, text=True, env={"NUMPY": NUMPY, "PATH": "/usr/bin:/bin"}, cwd="/",
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    return done


def cells(path):
    with open(path, newline="") as file:
        return list(csv.reader(file))


def same(one, other):
    """Two CSV files: numbers to 1e-6, all else to the letter."""
    assert len(one) == len(other) and one[0] == other[0]
    number = lambda cell: moml_serve.NUMBER.fullmatch(cell)
    for mine, theirs in zip(one[1:], other[1:], strict=True):
        for a, b in zip(mine, theirs, strict=True):
            assert a == b or (number(a) and number(b) and abs(float(a) - float(b)) <= 1e-6)


def round_trip(run, folder, tmp_path, target, **how):
    rows, later = asked(target)
    for name, columns in {"rows": rows, "later": later}.items():
        write_table(columns, tmp_path / f"{name}.csv")
    level = 0.9 if target == "number" else None
    given = {"adapt_on": tmp_path / "later.csv", "interval": level}
    run.predict(tmp_path / "rows.csv", tmp_path / "moml.csv", **given)
    words = ["--data", tmp_path / "rows.csv", "--adapt-on", tmp_path / "later.csv"]
    words += [] if level is None else ["--interval", level]
    done = served(folder, "predict", *words, "--out", tmp_path / "serve.csv", **how)
    assert done.returncode == 0, done.stderr
    same(cells(tmp_path / "moml.csv"), cells(tmp_path / "serve.csv"))


@pytest.mark.parametrize("case", CASES)
def test_a_csv_gets_the_same_predictions_from_numpy_alone(made, tmp_path, case):
    run, folder = made(case)
    round_trip(run, folder, tmp_path, CASES[case][0])


@pytest.mark.slow
def test_the_same_in_an_environment_that_has_numpy_only(made, tmp_path):
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "numpy"]
    subprocess.run(install, check=True)
    listed = subprocess.run(
        [python, "-m", "pip", "list", "--format", "json"], capture_output=True, check=True
    )
    assert {each["name"] for each in json.loads(listed.stdout)} <= {"numpy", "pip", "setuptools"}
    for case in ("number", "three classes"):
        run, folder = made(case)
        (tmp_path / case).mkdir()
        round_trip(run, folder, tmp_path / case, CASES[case][0], python=(python,))


@pytest.mark.parametrize("case", ["number", "two classes"])
def test_arrays_in_memory_and_adapting_once_are_the_same(made, case):
    run, folder = made(case)
    rows, later = asked(CASES[case][0])
    model = moml_serve.load(folder)
    before = model.predict(rows)
    mine = model.adapt(later)
    for known, adapt_on in ((model, None), (mine, later)):
        want = run.predict(rows, adapt_on=adapt_on).columns
        given = known.predict(rows)
        assert list(given) == list(want)
        for name, values in want.items():
            if values.dtype.kind == "f":
                np.testing.assert_allclose(given[name], values, rtol=1e-9, atol=1e-9)
            else:
                assert given[name].tolist() == values.tolist()
    changed = [name for name in before if before[name].dtype.kind == "f"]
    assert any(not np.allclose(before[name], mine.predict(rows)[name]) for name in changed)
    twice = model.adapt(later).adapt(later)
    assert (
        twice.known["pers\u00f6n-7"].rows
        == 2 * mine.known["pers\u00f6n-7"].rows - model.known["pers\u00f6n-7"].rows
    )


def test_format_is_that_of_the_predictor():
    assert FORMAT == moml_serve.FORMAT


def test_without_tasks_nobody_is_in_it(made, tmp_path):
    run, whole = made("number")
    folder = export(run.folder, tmp_path / "export", tasks=False)
    names = {path.name for path in folder.iterdir()}
    assert names == {"card.json", "params.safetensors", "moml_serve.py", "manifest.json"}
    assert not [
        path for path in folder.iterdir() if b"pers" in path.read_bytes().replace(b"person", b"")
    ]
    new = visits(4, 9, first=50)
    ours, theirs = moml_serve.load(folder), moml_serve.load(whole)
    assert not ours.known and len(theirs.known) == 9
    given = [model.predict(new, adapt_on=new)["prediction"] for model in (ours, theirs)]
    np.testing.assert_array_equal(*given)


MISTAKES = {
    "no column": (lambda rows: rows.pop("size"), "there is no column size"),
    "no number": (lambda rows: rows["size"].__setitem__(2, "abc"), "row 3: 'abc' is not a number"),
    "no date": (lambda rows: rows["day"].__setitem__(0, "31/12/2024"), "is not a date"),
    "no task": (lambda rows: rows["person"].__setitem__(1, ""), "person, row 2 has no value"),
    "one short": (lambda rows: rows.update(size=rows["size"][1:]), "must be equally long"),
    "no target": (lambda rows: rows["y"].__setitem__(1, None), "column y, row 2 has no value"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_in_a_table_are_named(made, name):
    change, said = MISTAKES[name]
    rows = {key: values.astype(object) for key, values in visits(3, 1).items()}
    rows["day"] = rows["day"].astype("M8[s]").astype(str).astype(object)
    change(rows)
    with pytest.raises(moml_serve.ServeError, match=said):
        moml_serve.load(made("number")[1]).adapt(rows)


def test_an_interval_that_cannot_be_is_refused(made):
    rows = visits(3, 1)
    model = moml_serve.load(made("number")[1])
    with pytest.raises(moml_serve.ServeError, match="between 0 and 1"):
        model.predict(rows, interval=2.0)
    assert np.isinf(model.predict(rows, interval=0.999)["upper"]).all()
    with pytest.raises(moml_serve.ServeError, match="is a class"):
        moml_serve.load(made("two classes")[1]).predict(visits(3, 1, "two"), interval=0.9)


def test_the_command_says_what_is_wrong_in_a_line(made, tmp_path):
    folder = made("number")[1]
    write_table(visits(3, 1), tmp_path / "rows.csv")
    words = ["--data", tmp_path / "rows.csv", "--out"]
    done = served(folder, "predict", *words, tmp_path / "rows.csv")
    assert done.returncode == 2 and "is the table itself" in done.stderr
    done = served(folder, "predict", "--data", tmp_path / "none.csv", "--out", tmp_path / "o.csv")
    assert done.returncode == 2 and done.stderr.count("\n") == 1


def test_formulas_are_a_warning_or_texts_and_names_do_not_control_the_terminal(made, tmp_path):
    data, out = tmp_path / "rows.csv", tmp_path / "out.csv"
    rows = {name: values.astype(object) for name, values in visits(2, 1).items()}
    rows["kind"][:] = "=HYPERLINK(1)"
    with pytest.warns(MomlWarning):
        write_table(rows, data)
    folder, words = made("two classes")[1], ("predict", "--data", data, "--out", out)
    done = served(folder, *words)
    assert done.returncode == 0 and "a spreadsheet takes cells of" in done.stderr
    assert done.stderr.endswith("as formulas, see --safe: =HYPERLINK(1)\n")
    assert ",=HYPERLINK(1)," in out.read_text()
    done = served(folder, *words, "--safe")
    assert done.returncode == 0 and done.stderr == ""
    assert ",'=HYPERLINK(1)," in out.read_text() and "-" in out.read_text()
    out.unlink()
    done = served(folder, "predict", "--data", tmp_path / "no\x1b[31m.csv", "--out", out)
    assert done.returncode == 2 and "no\\x1b[31m.csv cannot be read" in done.stderr


# Networks of `moml train CONFIG`

NETS = {
    "sine": (STARTS["sine"], {}),
    "learned by parameter": (STARTS["sine"], {"method": "meta-sgd", "alpha": 0.02}),
    "the head alone": (STARTS["sine"], {"method": "anil"}),
    "by layer, tied": (STARTS["synthetic"], {"step_sizes": "layer", "tied": True, "method": "maml",
                                             "inner_steps": 2, "alpha": 0.1}),
}  # fmt: skip


@pytest.mark.parametrize("name", NETS)
def test_a_network_adapts_by_the_same_steps(name):
    base, more = NETS[name]
    config = check(replace(base, test_steps=3, **more))
    numbers = isinstance(config.problem, Sine)
    net = moml.mlp(2, 7, 5, 2 if numbers else 4)
    loss = (moml.mse if numbers else moml.cross_entropy)(net.predict)
    chosen = moml.methods.method(config.method, loss, n=3, **method_options(config))
    params, alpha = net.init(jax.random.key(1)), config.option("alpha")
    hyper = Hyper(eta=jnp.array(0.1), alpha=jnp.array(alpha))
    chance = np.random.default_rng(0)
    near = lambda leaf: leaf + 0.1 * chance.normal(size=leaf.shape)
    meta = jax.tree.map(near, chosen.adaptation(1).init(params, hyper))
    learner = Learner(chosen, meta, hyper, None, np.zeros(0), 0)
    card, arrays = described(config, learner, {"mean": 0.5, "std": 2.0})
    network = moml_serve._network(card, {key: np.asarray(a) for key, a in arrays.items()})
    x = chance.normal(size=(8, 2))
    y = chance.normal(size=(8, 2)) if numbers else chance.integers(0, 4, 8)
    mine = learner.adapt(Batch((x - 0.5) / 2, y), steps=3)
    outputs = net.predict(mine, (x - 0.5) / 2)
    want = outputs if numbers else jax.nn.softmax(outputs)
    np.testing.assert_allclose(network.adapt(x, y).predict(x), want, rtol=1e-9, atol=1e-12)
    assert np.abs(network.predict(x) - want).max() > 1e-4
    first = net.predict(learner.params, (x - 0.5) / 2)
    first = first if numbers else jax.nn.softmax(first)
    np.testing.assert_allclose(network.predict(x), first, rtol=1e-9, atol=1e-12)
    with pytest.raises(moml_serve.ServeError, match=r"same length|class numbers"):
        network.adapt(x, y + 4 if not numbers else y[:3])
    with pytest.raises(moml_serve.ServeError, match="a sample must have"):
        network.predict(np.zeros((2, 9)))


def test_clients_are_exported_with_what_their_pixels_are_shifted_by(done, data, tmp_path):
    folder, config, _ = done
    network = moml_serve.load(export(folder, tmp_path / "export"))
    learner = moml.load(folder)
    plan = plan_of(config)
    batch = jax.tree.map(lambda leaf: np.asarray(leaf[0]), plan.built.unseen.full(jnp.array([0])))
    x, y = batch.x[batch.mask > 0], batch.y[batch.mask > 0]
    loss = lambda params: float(plan.built.loss(params, Batch(x, y)))
    ours = -np.log(network.adapt(x, y, 2).predict(x)[np.arange(len(y)), y]).mean()
    np.testing.assert_allclose(ours, loss(learner.adapt(Batch(x, y), 2)), rtol=1e-9)


def test_the_model_that_a_client_keeps_is_exported(data, tmp_path, capsys):
    run = tmp_path / "run"
    config, _ = train(replace(TINY, method="ditto", alpha=0.05), run)
    learner = moml.load(run)
    client = int(np.flatnonzero(learner.state.memory.visits)[0])
    network = moml_serve.load(export(run, tmp_path / "one", client=client))
    x = np.random.default_rng(0).random((4, 784))
    plan = plan_of(config)
    own = plan.built.tasks.full(jnp.arange(6))
    pixels = np.asarray(own.x)[np.asarray(own.mask)]
    net = moml.mlp(784, 3, 10)
    answers = lambda w: jax.nn.softmax(net.predict(w, (x - pixels.mean()) / pixels.std()))
    np.testing.assert_allclose(network.predict(x), answers(learner.personal(client)), rtol=1e-6)
    assert np.abs(network.predict(x) - answers(learner.params)).max() > 1e-4
    card = json.loads((tmp_path / "one" / "card.json").read_text())
    assert (card["model"], card["client"]) == ("kept", client)
    said = refused(capsys, "forget", tmp_path / "one", "--task", client)
    assert f"is the model of client {client}: remove the folder" in said
    _, out, _ = call(capsys, "export", run, "--out", tmp_path / "all")
    assert "model:  the global one; --client I exports" in out
    common = moml_serve.load(tmp_path / "all")
    np.testing.assert_allclose(common.predict(x), answers(learner.params), rtol=1e-6)
    out = ["--out", tmp_path / "none"]
    assert "client must be" in refused(capsys, "export", run, *out, "--client", 6)


def test_what_cannot_be_exported_is_refused_in_a_line(made, tmp_path, capsys):
    run, folder = made("number")
    out = ["--out", tmp_path / "export"]
    assert "is an export already" in refused(capsys, "export", folder, *out)
    assert "exists already" in refused(capsys, "export", run.folder, "--out", folder)
    assert "holds no run" in refused(capsys, "export", tmp_path, *out)
    own = tmp_path / "own"
    own.mkdir()
    for path in run.folder.iterdir():
        (own / path.name).write_bytes(path.read_bytes())
    told = json.loads((own / "table.json").read_text()) | {"model": "nets:build"}
    (own / "table.json").write_text(json.dumps(told))
    seal(own)
    assert "has the network nets:build; only moml's own" in refused(capsys, "export", own, *out)
    for start, said in (("omniglot", "the network conv4"), ("protonet", "the method protonet")):
        place = tmp_path / start
        place.mkdir()
        config = STARTS["omniglot"]
        if start == "protonet":
            problem = replace(config.problem, model="mlp")
            config = replace(config, problem=problem, method="protonet", step_sizes=None, tied=None)
        moml.runs.record.write_record(place, config, {})
        assert said in refused(capsys, "export", place, *out)
    assert not (tmp_path / "export").exists()
