from dataclasses import dataclass, fields
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from moml.cli.configured import parse
from moml.cli.plugins import Plugins
from moml.config.config import PROBLEMS, Config
from moml.config.problems import Sine
from moml.config.starts import STARTS
from moml.config.toml import dump, load, texts_of
from moml.errors import ConfigError


@dataclass(frozen=True)
class Train(Plugins):
    """Train as the words say."""

    out: Path
    """Folder of the run."""
    json: Path | None = None
    """File for the rows."""


@dataclass(frozen=True)
class Grid:
    """Many at once."""

    grid: tuple[str, ...] = ()
    """Lists of values."""
    seeds: int = 5
    """How many."""


def train(*arguments):
    return parse(arguments, "moml train", Train)


def shown(capsys, *arguments, own=Train):
    with pytest.raises(SystemExit) as stopped:
        parse(arguments, "moml train", own)
    assert stopped.value.code == 0
    return " ".join(capsys.readouterr().out.replace("│", " ").split())


@pytest.mark.parametrize("name", STARTS)
def test_a_name_is_enough(name):
    config, own = train(name, "--out", "run")
    assert config == load(name)
    assert own == Train(Path("run"))


def test_a_file_is_the_default_of_every_option(tmp_path):
    file = tmp_path / "my.toml"
    file.write_text(dump(Config(Sine(n=7, noise=0.5), eta=0.1, tasks_per_step=4)))
    config, _ = train(str(file), "--out", "run", "--problem.n", "9", "--k", "2")
    assert config == Config(Sine(n=9, noise=0.5), eta=0.1, tasks_per_step=4, k=2)


OVERRIDES = {
    "method": "moml-v2", "score-every": 20_000, "log-every": 5_000, "optimizer": "sgd",
    "curvature": "first-order", "decay-after": 0.5, "eta": 0.1, "beta": 0.5,
    "save-seconds": 1.5, "alpha": 0.5,
}  # fmt: skip


def test_every_field_can_be_given():
    """Those that belong together; the others are shown by type below."""
    words = [word for name, value in OVERRIDES.items() for word in (f"--{name}", str(value))]
    config, _ = train("sine", *words, "--out", "run", "--two-batches", "True")
    for name, value in OVERRIDES.items():
        assert config.flat()[name.replace("-", "_")] == value
    assert config.options["two_batches"] is True


@pytest.mark.parametrize("kind", PROBLEMS)
def test_every_number_and_none_can_be_given(kind, tmp_path):
    (tmp_path / "table.toml").write_text("method = 'maml'\n[problem]\nkind = 'table'\n")
    parts = {"": Config, "problem.": PROBLEMS[kind]}
    for prefix, part in parts.items():
        words, numbers, nones = [], set(), set()
        hints = get_type_hints(part)
        hints.pop("options", None)
        for name, hint in hints.items():
            types = get_args(hint) or (hint,)
            if type(None) in types:
                words += [f"--{prefix}{name}", "None"]
                nones.add(name)
            elif types[0] in (int, float) and hint != tuple[int, ...]:
                words += [f"--{prefix}{name}", "1" if name not in ("classes", "ways") else "2"]
                numbers.add(name)
        more = {  # what goes with so small numbers
            "synthetic": ["--problem.samples", "100"] if prefix else [],
            "clients": ["--problem.partition", "dirichlet", "--tasks-per-step", "None"],
        }
        starts = {"episodes": "omniglot-small", "clients": "mnist-clients"}
        start = (starts | {"table": str(tmp_path / "table.toml")}).get(kind, kind)
        config, _ = train(start, "--out", "run", *words, *more.get(kind, []))
        own = config.problem if prefix else config
        assert all(getattr(own, name) in (1, 2, 100) for name in numbers)
        assert all(getattr(own, name) is None for name in nones)


def test_lists_flags_and_underscores():
    config, _ = train("sine", "--out", "r", "--problem.hidden", "3", "4", "--tasks_per_step", "2")
    assert config.problem.hidden == (3, 4) and config.options["tasks_per_step"] == 2
    config, _ = train("synthetic", "--problem.hidden", "--problem.unequal", "--out", "r")
    assert config.problem.hidden == () and config.problem.unequal


def test_a_command_has_options_of_its_own():
    words = ["sine", "--grid", "eta=.002,.005", "beta=.1,.3", "--seeds", "3", "--k", "2"]
    config, own = parse(words, "moml sweep", Grid)
    assert own == Grid(("eta=.002,.005", "beta=.1,.3"), seeds=3)
    assert config.options["k"] == 2


def test_help_explains_every_field_of_every_problem(capsys):
    text = shown(capsys, "--help")
    assert "usage: moml train CONFIG" in text
    assert "Train as the words say." in text and "Folder of the run." in text
    for name in texts_of(Config(Sine())):
        assert f"--{name.replace('_', '-')} " in text
    for kind, problem in PROBLEMS.items():
        assert kind in text
        for field in fields(problem):
            assert f"--problem.{field.name}" in text
    for words in ("(default: 40000)", "(0, 1]", "first-order", "moml methods", "log-normal"):
        assert words in text
    assert shown(capsys, "--out", "run", "-h") == text
    other = shown(capsys, "sine", "--method", "localmoml", "--help")
    assert "--local-steps" in other and "--both-ways" not in other


def test_help_of_a_starting_point_has_its_own_values(capsys, tmp_path):
    text = shown(capsys, "synthetic", "--help")
    assert "usage: moml train synthetic" in text
    assert "--problem.samples" in text and "--problem.noise" not in text
    (tmp_path / "my.toml").write_text(dump(Config(Sine(n=77))))
    assert "(default: 77)" in shown(capsys, str(tmp_path / "my.toml"), "--help")


@pytest.mark.parametrize(
    "arguments, words",
    [
        ([], ["CONFIG", "sine, synthetic", "nothing"]),
        (["--out", "run"], ["CONFIG", "sine, synthetic", "--out"]),
        (["nosuch"], ["nosuch", "sine, synthetic"]),
        (["sine", "--out", "run", "--k", "0"], ["k must be", "0"]),
        (["sine", "--out", "run", "--eta", "-1"], ["eta", "-1"]),
        (["sine", "--out", "run", "--eta", "nan"], ["eta", "nan"]),
        (["sine", "--out", "run", "--problem.noise", "-1"], ["problem.noise", "-1"]),
        (["sine", "--out", "run", "--method", "maml", "--beta", ".3"], ["beta", "maml"]),
    ],
)
def test_a_mistake_is_one_line(arguments, words):
    with pytest.raises(ConfigError) as refused:
        train(*arguments)
    for word in words:
        assert word in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "arguments",
    [
        ["sine"],
        ["sine", "--out", "run", "--etta", "1"],
        ["sine", "--out", "run", "--k", "abc"],
        ["sine", "--out", "run", "--problem.samples", "3"],
        ["sine", "synthetic", "--out", "run"],
    ],
)
def test_a_misspelt_option_is_code_2(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        train(*arguments)
    assert stopped.value.code == 2
