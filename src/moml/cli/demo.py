"""`moml demo`, `moml methods`."""

import itertools
import threading
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import moml
from moml.cli.plugins import Plugins
from moml.cli.validation import places, say
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
    from moml.paper.sine.figure import curves_and_fits
    from moml.paper.sine.score import example_waves, fitted
    from moml.paper.sine.table import ENTRIES, run_entry
    from moml.report.figures import pyplot
    from moml.report.terminal import print_rows
    from moml.runtime.compiling import Threads
    from moml.storage.files import write_json
    from moml.training.progress import bar

    iterations = check_count("iterations", command.iterations)
    seeds = check_count("seeds", command.seeds)
    folder, rows_file = places(command.out, command.json)
    steps, stopped = itertools.count(1), threading.Event()
    with bar("demo", 3 * iterations, shown=True) as show, Threads(2) as pool:

        def moved(size: int) -> None:
            if stopped.is_set():
                raise KeyboardInterrupt
            show(min(3 * iterations, size * next(steps)))

        run = partial(run_entry, iterations=iterations, seeds=seeds, moved=moved)
        untrained, *others = ENTRIES
        begun = {label: pool.submit(run, label) for label in reversed(others)}
        trained, fits, rows = {}, {}, []
        try:
            control = run(untrained)  # compiles the score, which all use
            waves = example_waves(1, 400)
            pyplot()  # imported while methods are trained
            for label in ENTRIES:
                trained[label], row = begun[label].result() if label in begun else control
                fits[label] = fitted(trained[label].run, waves)
                rows.append(row)
                write_json(rows, rows_file)
        finally:
            stopped.set()
    picture = curves_and_fits(
        {label: done.finite_curve() for label, done in trained.items() if done.curve},
        {"untrained": rows[0]["mean"]},
        fits,
        waves,
        folder / "demo",
    )
    print_rows(rows, "Sine regression, K = 1: error on 500 unseen tasks")
    say(f"picture: {picture}")
    say(f"rows:    {rows_file}")


@dataclass(frozen=True)
class Methods(Plugins):
    """List the methods by name."""


def methods(command: Methods) -> None:
    """Print a line for each method."""
    for name in moml.methods.METHODS.listed():
        say(f"{name:<14}{moml.methods.summary(name)}")
