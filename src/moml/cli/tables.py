"""`moml train --data`, `moml evaluate`, `moml predict`, `moml adapt`: a user's own table."""

import inspect
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, fields, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from moml.cli.execution import Execution, execution
from moml.cli.validation import rows_file, say, some

if TYPE_CHECKING:
    from moml.tabular.run import TableRun
    from moml.types import Record

AGAIN = "nothing was written; start all processes again"
PROCESSES = {given.name for given in fields(Execution)} - {"devices"}


@dataclass(frozen=True, kw_only=True)
class OfRun:
    """The options of commands on a table's run."""

    run: tyro.conf.Positional[Path]
    """Folder of a run, or of `moml adapt`."""
    model: str | None = None
    """MODULE:FUNCTION, if the run has a network of your own."""

    decimal: str | None = None
    """Decimal mark of numbers in texts; by default that of training, as the next three."""
    thousands: str | None = None
    """Mark between groups of three digits."""
    units: list[str] | None = None
    """Signs before or after numbers that are not part of them."""
    na: list[str] | None = None
    """Texts or numbers that stand for a missing value."""

    def load(self) -> "TableRun":
        """Open the run."""
        from moml.tabular.run import load_table_run

        run = load_table_run(self.run, self.model)
        form = {name: getattr(self, name) for name in ("decimal", "thousands", "units", "na")}
        given = {name: value for name, value in form.items() if value is not None}
        return run.reading(**given) if given else run


@dataclass(frozen=True, kw_only=True)
class Evaluate(OfRun):
    """Scores of a table's run on held-out tasks, by known rows, beside baselines."""

    data: Path | None = None
    """Another table, whose tasks that training has not seen are scored."""
    json: Path | None = None
    """File for the rows."""


@dataclass(frozen=True, kw_only=True)
class Predict(OfRun):
    """Predict rows: of known tasks by their personal parameters, of others unadapted."""

    data: Path
    """Table with the rows."""
    out: Path
    """File for the rows with a column `prediction`; its ending gives the format."""
    adapt_on: Path | None = None
    """Table with later rows of known tasks, or rows of new ones, to adapt to first."""
    interval: float | None = None
    """Add columns `lower` and `upper` that enclose this share of the targets, such as 0.9."""
    safe: bool = False
    """Put ' before texts in a CSV that a spreadsheet would take as formulas, such as =1+1."""


@dataclass(frozen=True, kw_only=True)
class Adapt(OfRun):
    """Adapt to a table's tasks, one file each; `moml predict` takes the folder."""

    data: Path
    """Table with later rows of known tasks, or rows of new ones."""
    out: Path
    """Folder for the personal models; it must not exist."""


def train(arguments: Sequence[str]) -> None:
    """Train on a table, print how it was understood, and the scores."""
    from moml.tabular.train import train_table

    some_names = dict.fromkeys(("exclude", "categorical", "units", "na"), tuple[str, ...])
    missing = Literal["impute", "refuse"]
    kinds = list[Literal["summary", "head", "steps"]] | None
    types = some_names | {"inputs": list[str] | None, "missing": missing, "kinds": kinds}
    train_by(train_table, arguments, "moml train --data", **types)


def go_on(arguments: Sequence[str]) -> None:
    """Continue a table's run, print what is done, and the scores."""
    from moml.tabular.continuation import continue_table

    train_by(continue_table, arguments, "moml train --data --from")


def train_by(
    function: Callable[..., "TableRun"], arguments: Sequence[str], prog: str, **types: object
) -> None:
    """Call a training function with the options that are its parameters, and print the scores.

    The help texts are those of its docstring. `types` replace annotations; None drops an option.
    """
    helped = [word for word in arguments if word in ("-h", "--help")]  # also after --data alone
    command: object = tyro.cli(_options(function, types), args=helped or arguments, prog=prog)
    options = dict(vars(command))
    file = rows_file(options.pop("json"))
    some("inputs", options.get("inputs"))
    with ExitStack() as open_:
        leads = True
        if isinstance(command, Execution):
            _, group = open_.enter_context(execution(command, options["out"], again=AGAIN))
            leads = group.leads
            options = {k: v for k, v in options.items() if k not in PROCESSES} | {
                "process_group": group
            }
        run = function(**options, progress=leads, say=lambda line: say(line, flush=True))
        if leads:
            report(run.evaluation, run.about["target"], file)
            say(f"folder: {options['out']}")


def _options(function: Callable[..., "TableRun"], types: dict[str, object]) -> type:
    """A dataclass of a function's parameters, for tyro; of one for many processes, theirs last."""
    import docstring_parser

    text = docstring_parser.parse(function.__doc__ or "")
    help_ = {param.arg_name: param.description for param in text.params}
    types = {"source": Path, "data": Path, "out": Path, "progress": None, "say": None} | types
    parameters, types["process_group"] = inspect.signature(function).parameters, None
    types["log"] = tuple[str, ...]
    found = []
    for name, given in parameters.items():
        kind, needed = types.get(name, given.annotation), given.default is given.empty
        if kind is not None:
            word = "from" if name == "source" else name.replace("_", "-")
            text_ = " ".join((help_[name] or "").split())
            kind = Annotated[kind, tyro.conf.arg(name=word, help=text_)]
            found.append((name, kind, field() if needed or name == "out" else given.default))
    found.append(("json", Annotated[Path | None, tyro.conf.arg(help="File for the rows.")], None))
    made = make_dataclass("Train", found, frozen=True, kw_only=True)
    if "process_group" in parameters:  # its fields after those of the table, but for common ones
        common = [one for one in found if one[0] in {each.name for each in fields(Execution)}]
        made = make_dataclass("Train", common, bases=(Execution, made), frozen=True, kw_only=True)
    made.__doc__ = text.short_description
    return made


def evaluate(command: Evaluate) -> None:
    """Print the scores of a run."""
    file, run = rows_file(command.json), command.load()
    report(run.evaluate(command.data, progress=True, say=say), run.about["target"], file)


def predict(command: Predict) -> None:
    """Write the predictions, and print remarks on them."""
    out = command.out
    made = command.load().predict(
        command.data, out, adapt_on=command.adapt_on, interval=command.interval, safe=command.safe,
        progress=True,
    )  # fmt: skip
    for line in made.remarks:
        say(line)
    say(f"predictions: {out}")


def adapt(command: Adapt) -> None:
    """Write the personal models."""
    made = command.load().adapt(command.data, command.out, progress=True, say=say)
    say(f"{len(made.tasks.places):,} personal models: {command.out}")


def report(rows: "list[Record]", target: str, file: Path | None) -> None:
    """Print the scores, and write their rows to a file if there is one."""
    from moml.report.terminal import print_scores, verdict
    from moml.storage.files import write_json

    print_scores(rows, target)
    say(verdict(rows))
    if file is not None:
        write_json(rows, file)
        say(f"rows:   {file}")
