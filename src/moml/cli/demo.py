"""`moml demo`, `moml methods`."""

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import moml
from moml.cli.validation import places
from moml.errors import check_count


@dataclass(frozen=True)
class Demo:
    """Compare MAML, MOML v1 and the recommended method on sine waves, with a picture."""

    out: Path = Path("demo")
    """Folder for the picture and the rows."""
    iterations: int = 40_000
    """Training steps of every method."""
    seeds: int = 5
    """Number of seeds; their networks are trained as one program."""
    json: Path | None = None
    """File for the result rows; default rows.json in the folder."""


def demo(command: Demo) -> None:
    """Train and score the methods, print the table, write the picture."""
    from moml.paper.sine.demo import ENTRIES, row_of, run_entry
    from moml.paper.sine.figure import curves_and_fits
    from moml.paper.sine.score import example_waves, fitted
    from moml.report.terminal.rows import print_rows
    from moml.storage.files import write_json

    iterations = check_count("iterations", command.iterations)
    seeds = check_count("seeds", command.seeds)
    folder, rows_file = places(command.out, command.json)
    trained, rows = {}, []
    for entry in ENTRIES:
        trained[entry.label] = run_entry(entry, iterations=iterations, seeds=seeds, progress=True)
        rows.append(row_of(entry, trained[entry.label]))
        write_json(rows, rows_file)
    waves = example_waves(1, 400)
    picture = curves_and_fits(
        {label: done.finite_curve() for label, done in trained.items() if done.curve},
        {"untrained": rows[0]["mean"]},
        {label: fitted(done.run, waves) for label, done in trained.items()},
        waves,
        folder / "demo",
    )
    print_rows(rows, "Sine regression, K = 1: error on 500 unseen tasks")
    print(f"picture: {picture}\nrows:    {rows_file}")


@dataclass(frozen=True)
class Methods:
    """List the methods by name."""


def methods(command: Methods) -> None:
    """Print a line for each method."""
    for name, line in summaries().items():
        print(f"{name:<14}{line}")


def summaries() -> dict[str, str]:
    """First lines of the methods' docstrings, read from the sources: importing them takes a second.

    >>> summaries()["fo-maml"]
    'First-order MAML: MAML with J_A = I.'
    """
    found, texts = {}, {}
    for node in _parsed("moml.methods").body:
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("moml.algorithms"):
            for made in _parsed(str(node.module)).body:
                if isinstance(made, ast.FunctionDef):
                    texts[made.name] = (ast.get_docstring(made) or "").partition("\n")[0]
        if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Dict):  # METHODS
            for key, value in zip(node.value.keys, node.value.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(value, ast.Name):
                    found[str(key.value)] = texts[value.id]
    return found


@cache
def _parsed(module: str) -> ast.Module:
    path = Path(moml.__file__).parents[1].joinpath(*module.split(".")).with_suffix(".py")
    return ast.parse(path.read_text(encoding="utf-8"))
