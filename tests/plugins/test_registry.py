"""Names: registered once, checked, from entry points; modules that cannot be imported."""

import sys
from dataclasses import dataclass, fields

import pytest

import moml
from moml.config.config import Config, check
from moml.config.models import MODELS, network
from moml.config.plugins import import_plugins
from moml.config.problems import PROBLEMS, Sine
from moml.config.toml import dump, parse, words
from moml.errors import ConfigError, MomlWarning
from moml.methods import METHODS
from moml.plugins import register_method, register_model, register_problem
from moml.problems import Problem


@dataclass(frozen=True)
class Waves(Sine):
    """Sine waves with fields of their own."""

    offset: int = 0
    """Whole number that is added; from 0."""
    below: int = -3
    """From -3."""
    plain: float = 2.5
    name: str | None = None
    """Of nothing."""


def test_a_name_is_one_object(folder):
    for register, rows, one, other in (
        (register_problem, PROBLEMS, Waves, Sine),
        (register_method, METHODS, moml.methods.maml, moml.methods.reptile),
        (register_model, MODELS, lambda shape, k: moml.mlp(1, k), lambda shape, k: None),
    ):
        register("mine", one)
        register("mine", one)
        with pytest.raises(ConfigError, match=r"moml\.\w+ has 'mine' already"):
            register("mine", other)
        assert rows.find("mine") is one
        for bad in ("", "a b", "-x", "a/b"):
            with pytest.raises(ConfigError, match="letters, digits"):
                register(bad, one)
        with pytest.raises(ConfigError, match="must be a"):
            rows.add("other", 3)
    with pytest.raises(ConfigError, match="already"):
        register_method("maml", moml.methods.reptile)


def test_fields_of_a_problem(folder):
    register_problem("waves", Waves)
    config = check(Config(Waves(offset=0, below=-3, name="x"), test_tasks=3))
    assert parse(dump(config), "x") == config
    assert 'kind = "waves"' in dump(config) and "\nplain = 2.5\n" in dump(config)
    texts = words(Waves)
    assert list(texts) == [f.name for f in fields(Waves)]
    assert texts["noise"].startswith("Standard deviation") and texts["plain"] == ""
    for bad in (Waves(offset=-1), Waves(below=-4), Waves(noise=-1.0)):
        with pytest.raises(ConfigError, match=r"problem\.(offset|below|noise) must be"):
            check(Config(bad))


def test_a_class_that_cannot_be_a_problem(folder):
    @dataclass(frozen=True)
    class NoDefault(Problem):
        n: int

    @dataclass(frozen=True)
    class Odd(Problem):
        n: dict = None

    @dataclass(frozen=True)
    class Kind(Problem):
        kind: str = "x"

    @dataclass(frozen=True)
    class Unlike(Problem):
        n: int = "3"

    for bad, said in {NoDefault: "NoDefault.n", Odd: "Odd.n", Kind: "Kind.kind"}.items():
        with pytest.raises(ConfigError, match=rf"{said} must have a default"):
            register_problem("bad", bad)
    with pytest.raises(ConfigError, match=r"problem\.n must be a whole number from 1 to"):
        register_problem("bad", Unlike)

    class Plain(Problem):
        pass

    with pytest.raises(ConfigError, match="must be a dataclass"):
        register_problem("bad", Plain)
    assert "bad" not in PROBLEMS
    with pytest.raises(ConfigError, match="problem must be one of sine"):
        check(Config(Waves()))  # it is not registered


@pytest.mark.parametrize(
    "made, said",
    [(lambda shape, k: None, "must return"), (lambda shape, k: moml.mlp(4, k + 1), r"\[K, 3\]")],
)
def test_a_model_is_checked(folder, made, said):
    register_model("mine", made)
    with pytest.raises(ConfigError, match=said):
        network("mine", (4,), 3)


WRONG = {
    "nosuch": ("", r"plugin nosuch: ModuleNotFoundError: No module named 'nosuch'$"),
    "broken": ("1 / 0", r"plugin broken: ZeroDivisionError: division by zero \(.*broken.py, 1\)$"),
    "unread": ("def", r"plugin unread: SyntaxError"),
    "taken": (
        "import moml; moml.plugins.register_method('maml', 3)",
        r"plugin taken: moml\.methods has",
    ),
    "no module": ("", r"plugin must be a module, such as my_package\.mine; got 'no module'"),
    "..up": ("", r"plugin must be a module"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_plugin_that_cannot_be_imported_is_one_line(name, folder):
    text, said = WRONG[name]
    if text:
        (folder / f"{name}.py").write_text(text)
    with pytest.raises(ConfigError, match=said) as refused:
        import_plugins([name])
    assert "\n" not in str(refused.value)
    with pytest.raises(ConfigError, match="must be a list"):
        import_plugins(name)


POINTS = """[moml.methods]
theirs = their_package:method
broken = their_broken:method
maml = their_broken:method

[moml.problems]
their-waves = their_package:Waves

[moml.models]
their-net = their_package:net
"""
THEIRS = """
import moml
from tests.plugins.test_registry import Waves
method = moml.methods.maml
def net(shape, outputs): return moml.mlp(shape[0], outputs)
"""


@pytest.fixture
def installed(folder, monkeypatch):
    """A package with entry points, one of them broken."""
    about = folder / "theirs-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(POINTS)
    (folder / "their_package.py").write_text(THEIRS)
    (folder / "their_broken.py").write_text("raise RuntimeError('not\\ntoday')")
    monkeypatch.syspath_prepend(folder)
    for rows in (METHODS, PROBLEMS, MODELS):
        rows.__dict__.pop("_declared", None)


def test_entry_points_are_imported_when_they_are_named(installed):
    assert METHODS.find("maml") is moml.methods.maml  # ours, whatever they declare
    assert {"theirs", "broken"} <= set(METHODS.names())
    with pytest.raises(ConfigError, match=r"one of maml, .*theirs, broken; got 'nosuch'"):
        METHODS.find("nosuch")
    assert "their_package" not in sys.modules
    assert METHODS.find("theirs") is moml.methods.maml and "their_package" in sys.modules
    assert PROBLEMS.find("their-waves") is Waves
    assert network("their-net", (4,), 2).init
    config = parse("method = 'theirs'\nk = 2\n[problem]\nkind = 'their-waves'\noffset = 2", "x")
    assert config.problem == Waves(offset=2) and config.plugin == ()


def test_a_broken_entry_point_is_one_warning(installed, moml_):
    with (
        pytest.warns(MomlWarning, match="method broken of the package theirs is left out: Runtime"),
        pytest.raises(ConfigError, match="method must be one of"),
    ):
        METHODS.find("broken")
    METHODS.__dict__.pop("_declared")
    with pytest.warns(MomlWarning, match="RuntimeError: not") as warned:
        listed = METHODS.listed()
    assert len(warned) == 1 and "\n" not in str(warned[0].message)
    assert "theirs" in listed and "broken" not in listed
    METHODS.__dict__.pop("_declared")
