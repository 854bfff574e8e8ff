"""The command line. Exit codes: 0 done, 2 user error, 3 diverged, 130 / 143 interrupted.

A command's module is imported when it is called: `moml --help` imports none of them, and no JAX.
"""

import os
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import make_dataclass
from functools import partial, reduce
from importlib import import_module
from io import TextIOWrapper
from operator import or_
from typing import Annotated, Any

import tyro

import moml
from moml.cli.plugins import plugins_in, with_command
from moml.errors import ConfigError, MomlError, MomlWarning, PluginNeeded, printable

COMMANDS = {  # the first lines of their help
    "demo": "Compare MAML, MOML v1 and the recommended method on sine waves, with a picture.",
    "train": "Train one model in a run folder; with --data, on your own table.",
    "resume": "Continue a run or a sweep from its last good checkpoint, bit for bit.",
    "sweep": "Train a grid of step sizes with several seeds as one compiled program, and rank it.",
    "score": "Score a run's model again, with other shots, steps or test tasks.",
    "evaluate": "Scores of a table's run on held-out tasks, by known rows, beside baselines.",
    "predict": "Predict rows: of known tasks by their personal parameters, of others unadapted.",
    "adapt": "Adapt to a table's tasks, one file each; `moml predict` takes the folder.",
    "report": "Write runs, sweeps and runs of tables as one HTML page, side by side.",
    "export": "Export a run to a folder that adapts and predicts with numpy only: no jax, no moml.",
    "forget": "Remove tasks: ids, memories and personal parameters, from every file of a run.",
    "doctor": "Show devices, versions, caches and data sets, and test one identity.",
    "flower": "Run clients as real processes, here or on many machines, under Flower.",
    "data": "List, fetch and check data sets.",
    "methods": "List the methods by name.",
    "reproduce": "Compute a table of the paper, or one of our own.",
}
MODULES = {  # in moml.cli, where they are not those of the commands' names
    **dict.fromkeys(("train", "resume", "sweep", "score", "doctor"), "runs"),
    **dict.fromkeys(("evaluate", "predict", "adapt"), "tables"),
    **dict.fromkeys(("report", "export", "forget"), "after"),
    "methods": "demo",
    "reproduce": "experiments.reproduce",
}
LIGHT = ("data", "methods")  # they compile nothing
LEAST = 1500 << 20  # bytes of addresses
MEMORY = ("RESOURCE_EXHAUSTED", "start new thread", "Cannot allocate memory", "ut of memory")
CACHE = (
    "Compiled programs are kept for the next command, in ~/.cache/moml or where MOML_CACHE says; "
    "with --no-cache, which every command takes, or MOML_CACHE=off they are not."
)


def run(arguments: Sequence[str] | None = None) -> None:
    """Parse and run one command; errors are raised as exceptions."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if "--no-cache" in words:
        words.remove("--no-cache")
        os.environ["MOML_CACHE"] = "off"  # also for the processes that a command starts
    if not words or words[0] not in COMMANDS:
        tyro.cli(_table(), args=words, prog="moml", description=f"{moml.__doc__}\n{CACHE}")
        return
    try:
        _run(*words)
    except PluginNeeded as error:
        raise with_command(error, words) from error


def _run(name: str, *words: str) -> None:
    """Run the command of this name."""
    options = {word.split("=")[0] for word in words}
    module = import_module(f"moml.cli.{MODULES.get(name, name)}")
    function, given = getattr(module, name), list(words)
    if name == "train" and "--data" in options:
        from moml.cli import tables

        function = tables.go_on if "--from" in options else tables.train
    elif name not in ("train", "sweep"):  # the options of these depend on the configuration
        given = tyro.cli(getattr(module, name.capitalize()), args=words, prog=f"moml {name}")
    if name in LIGHT:
        _import(words)
        function(given)
        return
    _check_limit()
    from moml.runtime import compile_cache, compiling

    if text := compile_cache.start():
        _print(text)
    with compiling.interruptible():
        _import(words)
        function(given)


def _import(words: Sequence[str]) -> None:
    """Import the plugins that a command names."""
    if modules := plugins_in(words):
        from moml.config.plugins import import_plugins

        import_plugins(modules)


def _check_limit() -> None:
    """Refuse a `ulimit -v` under which XLA would abort the process, without a word to Python."""
    try:
        import resource
    except ImportError:  # Windows
        return
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if 0 <= limit < LEAST:
        raise ConfigError(
            f"not enough memory: ulimit -v must be {LEAST >> 10} kB or more, for JAX to start; "
            f"got {limit >> 10}"
        )


def _table() -> Any:
    """All commands for tyro, which prints their help, or that a word is none of them."""
    made = []
    for name, text in COMMANDS.items():
        one = make_dataclass(name, [])
        one.__doc__ = text
        made.append(Annotated[one, tyro.conf.subcommand(name)])
    return reduce(or_, made)


def main() -> None:
    """The program `moml`."""
    arguments = sys.argv[1:]
    warnings.showwarning = partial(_show_warning, warnings.showwarning)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal may know ASCII alone
    if arguments == ["--version"]:
        print(f"moml {moml.__version__}")
        return
    try:
        run(arguments)
    except MomlError as error:
        _print(error)
        _exit(error.exit_code)
    except BrokenPipeError:  # the reader of the output has closed it, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _exit(1)
    except KeyboardInterrupt:
        print("moml: interrupted", file=sys.stderr)
        _exit(130)
    except (MemoryError, RuntimeError, OSError) as error:
        if not isinstance(error, MemoryError) and not any(sign in str(error) for sign in MEMORY):
            raise
        _print(f"not enough memory: {error or 'Python could not allocate more'}")
        _exit(2)


def _print(text: object) -> None:
    print(f"moml: {printable(text)}", file=sys.stderr)


def _show_warning(shown: Callable[..., None], message: object, *given: Any, **more: Any) -> None:
    """Print our own warnings in a line, others as Python does."""
    if isinstance(message, MomlWarning):
        _print(f"warning: {message}")
    else:
        shown(message, *given, **more)


def _exit(code: int) -> None:
    """End the program, at once where a thread is inside the compiler and would be waited for."""
    compiling = sys.modules.get("moml.runtime.compiling")  # imported by commands that compile
    if compiling is not None and compiling.busy():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
