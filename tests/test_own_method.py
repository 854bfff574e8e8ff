"""The guide's page on adding a method, executed."""

import re
from pathlib import Path

import pytest

import moml
from moml.cli.configured import parse
from moml.config.config import Config, check, options_of
from moml.config.problems import Sine
from moml.errors import ConfigError
from tests.cli.test_configured import Train

PAGE = Path(__file__).parents[1] / "docs" / "guide" / "own-method.md"
BLOCKS = re.findall(r"```\{testcode\}\n(.*?)```", PAGE.read_text(), re.S)


@pytest.fixture
def space(monkeypatch):
    """What the page's code leaves, and the table of methods as it was afterwards."""
    monkeypatch.setattr(moml.methods, "METHODS", moml.methods.METHODS)
    before, space = dict(moml.methods.METHODS), {"__name__": "own"}
    yield space
    moml.methods.METHODS.clear()
    moml.methods.METHODS.update(before)


def lines(code):
    return [line for line in code.splitlines() if line.strip()]


def test_outside_the_package(space):
    method, use, _ = BLOCKS
    assert len(lines(method)) <= 40
    exec(method, space)
    exec(use, space)
    assert space["again"].hyper.decay == 0.01
    assert space["tried"].settings[-1]["decay"] == 0.1
    assert options_of("decayed-maml")["decay"].help == "Pull of the meta-model towards zero."
    check(Config(Sine(), method="decayed-maml", decay=0.5))
    with pytest.raises(ConfigError, match=r"decay must be at least 0; got -0\.5"):
        check(Config(Sine(), method="decayed-maml", decay=-0.5))
    words = ["sine", "--out", "run", "--method", "decayed-maml", "--decay", "0.2"]
    assert parse(words, "moml train", Train)[0].options == {"decay": 0.2}


def test_inside_the_package(space):
    *_, method = BLOCKS
    assert len(lines(method)) <= 40
    exec(method, space)
    made, net = space["moml_momentum"], moml.mlp(1, 4, 1)
    chosen = made(moml.mse(net.predict), n=25)
    assert chosen.name == "moml-momentum" and chosen.options["tasks_per_step"] == 3
    assert "optimizer" not in chosen.options and chosen.hyper.beta == 0.3
    with pytest.raises(ConfigError, match="moml-momentum has no option 'nestrov'; did you mean"):
        made(moml.mse(net.predict), n=25, nestrov=True)
