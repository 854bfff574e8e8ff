"""Rounds instead of iterations; networks of the problem `clients`."""

from dataclasses import dataclass, replace
from pathlib import Path

import jax
import pytest

from moml.cli.configured import parse as command
from moml.config.config import Config, changed, check
from moml.config.problems import Clients, Synthetic
from moml.config.toml import dump, parse
from moml.errors import ConfigError


def made(**given):
    return check(Config(Synthetic(), **{"method": "fedavg"} | given))


@pytest.mark.parametrize(
    "given, iterations, log_every, score_every",
    [
        ({"rounds": 100, "local_epochs": 1}, 100, 10, 20),
        ({"rounds": 100}, 500, 50, 100),
        ({"rounds": 15}, 75, 5, 15),
        ({"rounds": 3}, 15, 5, 5),
        ({"rounds": 1}, 5, 5, 5),
        ({"rounds": 1_000_000}, 5_000_000, 1000, 10_000),
        ({"rounds": 100, "log_every": 5, "score_every": 15}, 500, 5, 15),
        ({"rounds": 100, "log_every": 35, "score_every": 350}, 500, 35, 70),
        ({"rounds": 100, "score_every": 0}, 500, 50, 0),
    ],
)
def test_a_run_in_rounds_has_ten_lines_or_one_for_each_round(
    given, iterations, log_every, score_every
):
    config = made(**given)
    assert (config.iterations, config.log_every) == (iterations, log_every)
    assert config.score_every == score_every
    assert check(config) == config and parse(dump(config), "x") == config
    assert "# iterations =" in dump(config) and f"\nrounds = {given['rounds']}\n" in dump(config)


def test_what_does_not_go_together():
    for method in ("maml", "moml", "bspiderboost"):
        with pytest.raises(ConfigError, match=f"rounds must be left out: {method} has none"):
            made(method=method, rounds=10)
    with pytest.raises(ConfigError, match=r"x: rounds or iterations must be given, not both"):
        parse("method='fedavg'\nrounds = 3\niterations = 15\n[problem]\nkind='synthetic'", "x")
    with pytest.raises(ConfigError, match="rounds must be a whole number from 1"):
        parse("method='fedavg'\nrounds = 0\n[problem]\nkind='synthetic'", "x")


@dataclass(frozen=True)
class Train:
    """Train."""

    out: Path = Path("run")


def test_options_count_rounds_anew(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text("method='fedavg'\nrounds = 40\n[problem]\nkind='synthetic'\n")
    given = lambda *words: command([str(file), *words], "moml train", Train)[0]
    assert given().iterations == 200
    assert given("--local-steps", "2").iterations == 80
    assert given("--rounds", "10", "--local-steps", "3").iterations == 30
    assert given("--iterations", "70").iterations == 70
    assert given("--iterations", "70").rounds is None
    with pytest.raises(ConfigError, match="rounds or iterations must be given, not both"):
        given("--iterations", "70", "--rounds", "3")


def test_an_option_replaces_the_files_word_for_the_same(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text("method='fedavg'\nk = 5\nlocal_epochs = 2\n[problem]\nkind='synthetic'\n")
    given = lambda *words: command([str(file), *words], "moml train", Train)[0].options
    assert given("--batch-size", "8") == {"batch_size": 8, "local_epochs": 2}
    assert given("--k", "3", "--local-steps", "4") == {"k": 3, "local_steps": 4}
    with pytest.raises(ConfigError, match="k and batch_size are the same number; got 5 and 8"):
        given("--batch-size", "8", "--k", "5")


def test_a_change_of_rounds_has_its_name():
    assert "rounds" in changed(made(rounds=3), made(rounds=4))


@pytest.mark.parametrize("dataset", ["mnist", "cifar100"])
@pytest.mark.parametrize("model", ["mlp", "cnn", "resnet18", "conv4"])
def test_networks_of_clients(model, dataset):
    problem = check(Config(Clients(dataset, model=model), method="fedavg", shots=1)).problem
    params = jax.eval_shape(problem.network().init, jax.random.key(0))
    assert params.head.bias.shape == ({"mnist": 10, "cifar100": 20}[dataset],)


def test_hidden_layers_are_of_the_mlp():
    with pytest.raises(ConfigError, match=r"problem\.hidden is for mlp; the model is cnn"):
        check(Config(Clients(model="cnn", hidden=(3,)), method="fedavg"))
    with pytest.raises(ConfigError, match=r"problem\.model must be one of mlp, cnn, .*'lenet'"):
        check(Config(replace(Clients(), model="lenet"), method="fedavg"))
