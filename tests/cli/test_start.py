"""What is imported at the start: a command's help needs no JAX, `import moml` no more than JAX."""

import ast
import inspect
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import moml
from moml.cli import COMMANDS, MODULES

HEAVY = ["jax", "optax", "equinox", "rich", "pyarrow", "matplotlib", "sklearn", "flwr"]
BY_SIGNATURE = {"train", "sweep"}  # their options are those of the methods, which import JAX


def loaded(script: str, *arguments: str) -> tuple[list[str], str]:
    """Which of the heavy modules a script has imported at its end, and what it printed."""
    show = f"sys.stderr.write(repr([m for m in {HEAVY} if m in sys.modules]))"
    script = f"import atexit, sys; atexit.register(lambda: {show}); {script}"
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return ast.literal_eval(done.stderr), done.stdout


@pytest.mark.parametrize(
    "arguments", [[], *([name] for name in COMMANDS if name not in BY_SIGNATURE)], ids=str
)
def test_help_needs_no_jax(arguments):
    found, out = loaded("from moml.cli import main; main()", *arguments, "--help")
    assert found == []
    text = " ".join(out.replace("│", " ").split())
    for name in arguments or COMMANDS:
        assert COMMANDS[name] in text


def test_a_version_and_the_list_of_data_sets_need_no_jax():
    for arguments in (["--version"], ["data", "list"]):
        found, out = loaded("from moml.cli import main; main()", *arguments)
        assert found == [] and out


def test_the_list_of_methods_needs_no_more_than_jax():
    found, out = loaded("from moml.cli import main; main()", "methods")
    assert found == ["jax", "optax"] and len(out.splitlines()) == len(moml.methods.METHODS)


def test_the_table_of_commands_says_what_the_commands_say():
    for name, text in COMMANDS.items():
        command = getattr(import_module(f"moml.cli.{MODULES.get(name, name)}"), name.capitalize())
        assert inspect.getdoc(command).partition("\n")[0] == text


def test_public_names_are_imported_at_first_use():
    assert loaded("import moml; dir(moml), moml.errors.ConfigError")[0] == []
    found, _ = loaded("import moml; [getattr(moml, name) for name in moml.__all__]")
    assert found == ["jax", "optax"]
    assert set(moml.__all__) <= set(dir(moml))
    with pytest.raises(AttributeError, match="nosuch"):
        moml.nosuch  # noqa: B018
    with pytest.raises(ImportError, match="nosuch"):
        from moml import nosuch  # noqa: F401


def test_type_checkers_see_the_public_names():
    """The imports for type checkers are those that are done at first use."""
    tree = ast.parse(Path(moml.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.name: getattr(import_module(node.module), alias.name)
        for node in block.body
        for alias in node.names
    }
    assert seen == {name: getattr(moml, name) for name in moml.__all__}
