"""The guide's page on a problem of one's own, executed."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

import moml
from moml.config.config import check
from moml.config.plugins import import_plugins
from moml.config.toml import load
from moml.flower.app.learning import server_of
from moml.runs.doctor import facts
from tests.flower.common import nodes, serve, settings, simulated
from tests.flower.grid import InProcess
from tests.plugins.code import code_lines

PAGE = (Path(__file__).parents[2] / "docs" / "guide" / "own-problem.md").read_text()
BLOCKS = re.findall(r"```(?:python|toml)\n# (mine\.\w+)\n(.*?)```", PAGE, re.S)


@pytest.fixture
def mine(folder):
    """The page's files, and data whose classes differ in their means."""
    for name, text in BLOCKS:
        (folder / name).write_text(text)
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, (8, 40))
    x = rng.normal(size=(8, 40, 6)) + 2.0 * np.eye(6)[y]
    np.savez(folder / "machines.npz", x=x, y=y)
    return folder


def test_it_is_one_short_file():
    assert [name for name, _ in BLOCKS] == ["mine.py", "mine.toml"]
    assert len(code_lines(BLOCKS[0][1])) <= 60
    assert len([line for line in BLOCKS[0][1].splitlines() if line.strip()]) <= 62


def test_the_commands_of_the_page(mine, moml_):
    words = ("--plugin", "mine", "--eta", 0.3, "--out", "run", "--json", "rows.json")
    code, _, wrong = moml_("train", "mine.toml", *words)
    assert code == 0, wrong
    assert json.loads(Path("rows.json").read_text())[0]["mean"] > 80  # a third is chance
    record = json.loads((mine / "run" / "run.json").read_text())
    assert record["plugin"] == ["mine"] and 'plugin = ["mine"]' in record["config"]
    lines = (mine / "run" / "metrics.jsonl").read_text().splitlines()
    assert len(lines) == 10
    assert sum(json.loads(line)["score"] is not None for line in lines) == 5
    code, out, _ = moml_("score", "run", "--plugin", "mine", "--json", "rows.json")
    assert code == 0 and "worst" in out
    each = [row for row in json.loads(Path("rows.json").read_text()) if "client" in row["setting"]]
    assert len(each) == 8 * 3  # clients; global, fine-tuned and adapted models
    code, _, wrong = moml_("report", "run", "--plugin", "mine", "--score")
    page = (mine / "report.html").read_text()
    assert code == 0 and "8 tasks of machines" in page and "Not all of this page" not in page
    code, out, _ = moml_("sweep", "mine.toml", "--plugin", "mine", "--grid", "mu=.1,.5",
                         "--seeds", 1, "--rounds", 3, "--out", "all")  # fmt: skip
    assert code == 0 and "mu" in out
    assert moml_("export", "run", "--plugin", "mine", "--out", "x")[2].startswith(
        "moml: run has mine.Machines; only fully connected networks"
    )
    code, out, _ = moml_("train", "mine.toml", "--plugin", "mine", "--help")
    assert "Kinds of faults" in out and "--mu" in out and "--problem.channels" in out


def test_mistakes_are_one_line(mine, moml_):
    words = ("train", "mine.toml", "--plugin", "mine", "--out", "run")
    for more, said in {
        (
            "--problem.faults",
            "0",
        ): ("problem.faults must be a whole number from 1 to 2147483647; got 0"),
        ("--problem.n", "9"): "machines.npz must have x [9, readings, 6]",
        ("--mu", "-1"): "mu must be at least 0; got -1.0",
        ("--problem.model", "nosuch"): "problem.model must be one of mlp, cnn, resnet18, conv4, "
        "smooth; got 'nosuch'",
    }.items():
        code, out, wrong = moml_(*words, *more)
        assert (code, out, wrong) == (2, "", f"moml: {said}\n")


def test_the_model_is_for_clients_too(mine):
    import_plugins(["mine"])
    net = moml.problems.Clients("mnist", model="smooth").network()
    assert net.init(jax.random.key(0)).body[0].weight.shape == (16, 784)


def test_under_flower(mine):
    import_plugins(["mine"])
    config = load("mine.toml")
    server_of(config)  # needs no data
    asked = settings(config, mine / "out", rounds=2, plugin="mine")
    w, rows = serve(InProcess(asked, nodes(2, mine)), asked)
    assert [row["answered"] for row in rows] == [4, 4] and 0 <= rows[-1]["after"] <= 100
    short = check(replace(config, rounds=2))
    for one, two in zip(w, simulated(short)[0], strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-10, atol=1e-12)


def test_doctor_and_methods_list_what_is_registered(mine, moml_):
    code, out, _ = moml_("methods", "--plugin", "mine")
    assert code == 0 and "pulled        FedProx: FedAvg with a pull" in out
    assert dict(facts())["added models"] == "smooth" and "mine" in sys.modules
