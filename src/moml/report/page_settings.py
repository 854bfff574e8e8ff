"""What a run was begun with, and how to do it again."""

import re
from shlex import quote
from typing import Any

from moml.algorithms.recipes import RECIPES
from moml.report.page_html import (
    Markup,
    Table,
    code,
    folded,
    join,
    number,
    section,
    table,
    tag,
)
from moml.report.page_runs import Row, Swept, Tabled, Trained
from moml.run.config import Config, kind_of
from moml.run.toml import words

KEPT_APART = ("problem", "log_every", "score_every", "save_seconds", "keep")
MAIN = (
    "problem.kind", "problem.dataset", "problem.n", "method", "iterations", "seed", "eta", "beta",
    "alpha", "gamma", "k", "tasks_per_step", "local_steps", "shots", "test_steps",
)  # fmt: skip


def clause(text: str) -> str:
    """The beginning of a field's help.

    >>> clause("Of the adaptation: exact, or not; from 1. By default 1.")
    'Of the adaptation: exact, or not'
    """
    return re.split(r";|\. | \(|\.$", text)[0].removesuffix(": true or false")


def fields_of(config: Config) -> dict[str, Any]:
    """Every setting that has a value, by its name."""
    own = {name: value for name, value in vars(config).items() if name not in KEPT_APART}
    task = {f"problem.{name}": value for name, value in vars(config.problem).items()}
    every = {"problem.kind": kind_of(config.problem)} | task | own
    return {name: value for name, value in every.items() if value is not None}


def _named(name: str, config: Config) -> Markup:
    part, _, field = name.rpartition(".")
    told = clause(words(type(config.problem) if part else Config).get(field, ""))
    told = RECIPES[config.method].summary if name == "method" else told
    small = tag("small", told) if told else None
    return join([tag("code", name), small])


def settings(config: Config) -> Markup:
    """The settings that people look for, and behind them all, with a word on each."""
    every = fields_of(config)
    brief = [[tag("code", name), value(every[name])] for name in MAIN if name in every]
    half = (len(brief) + 1) // 2
    sides = [table(Table(caption, ["setting", "value"], rows))
             for caption, rows in (("The main settings", brief[:half]), ("and further", brief[half:]))]  # fmt: skip
    rows = [[_named(name, config), value(every[name])] for name in every]
    whole = table(Table("All settings, as the run resolved them", ["setting", "value"], rows))
    return join([tag("div", *(tag("div", side) for side in sides), class_="pair"),
                 folded(f"All {len(rows)} settings, with a word on each", whole)])  # fmt: skip


def value(given: Any) -> str:
    """A setting's value in words."""
    return f"{given:g}" if isinstance(given, float) else number(given)


def bare(toml: str) -> str:
    """A configuration's lines without the words on them."""
    lines = [line for line in toml.splitlines() if line and not line.startswith("#")]
    return "\n".join(lines).replace("\n[", "\n\n[") + "\n"


def _versions(found: Row) -> Markup:
    rows = [[tag("code", name), str(value) if value != "" else "none"] for name, value in found.items()]
    return folded("Versions it ran with", table(Table("As the run was begun", ["what", "value"], rows)))


def repeated(run: Trained | Swept) -> Markup:
    """The commands and the configuration that give the same run."""
    file = f"{re.sub(r'[^A-Za-z0-9_-]+', '-', run.folder.resolve().name).strip('-') or 'run'}.toml"
    if isinstance(run, Swept):
        grid = " ".join(f"{n}={','.join(f'{v:g}' for v in vs)}" for n, vs in run.record["grid"].items())
        rest = f"sweep {file}{f' --grid {grid}' if grid else ''} --seeds {run.record['seeds']}"
    else:
        rest = f"train {file}"
    whole = f"cat > {file} <<'END'\n{bare(run.record['config'])}END\nmoml {rest} --out {file.removesuffix('.toml')}-again\n"
    same = run.record["versions"].get("deterministic")
    told = (
        "With the same versions on the same machine it gives the same numbers to the last bit."
        if same
        else "On this device XLA was not told to be deterministic: the last bits may differ."
    )
    changed = run.record.get("changed")
    again = f" Changed on the way: {', '.join(name for names in changed for name in names)}; a run from the beginning is not the same." if changed else ""
    return section(
        "To repeat it", tag("p", told + again), code(whole), _versions(run.record["versions"])
    )


def repeated_table(run: Tabled) -> Markup:
    """The command that gives the same run of a table, with the table's own file named TABLE."""
    about, kept = run.about, run.about.get("settings")
    option = lambda name, value: [f"--{name}", quote(str(value))] if value is not None else []
    given = ["moml", "train", "--data", "TABLE"]
    for name in ("task", "target", "order", "weight", "shots", "model", "seed"):
        given += option(name, about[name])
    if kept is not None:
        for name in ("hold_out", "missing", "members", "iterations"):
            given += option(name.replace("_", "-"), kept[name])
        for name in ("inputs", "exclude"):
            given += [f"--{name}", *map(quote, kept[name])] if kept[name] else []
        given += ["--classification"] * kept["classification"] + ["--no-refit"] * (not kept["refit"])
    lacking = None
    if kept is None:
        lacking = tag("p", "This run is of a version that did not keep all of its options: add those that were given.")
    told = "TABLE is the file or folder that it was trained on; the run keeps neither it nor its place."
    out = ["--out", quote(f"{run.folder.resolve().name}-again")]
    return section(
        "To repeat it",
        tag("p", told),
        join([lacking]),
        code(" ".join([*given, *out]) + "\n"),
        _versions(about.get("versions", {})),
    )
