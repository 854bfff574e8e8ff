"""What a run was begun with, and how to do it again."""

import re
from shlex import quote
from typing import Any

from moml.config.config import Config, kind_of
from moml.config.toml import texts_of, words
from moml.methods import summary
from moml.report.page.html import (
    Markup,
    Table,
    code,
    folded,
    join,
    number,
    section,
    table,
    tag,
    tiles,
)
from moml.report.page.runs import Row, Swept, Tabled, Trained

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
    own = {name: value for name, value in config.flat().items() if name not in KEPT_APART}
    task = {f"problem.{name}": value for name, value in vars(config.problem).items()}
    every = {"problem.kind": kind_of(config.problem)} | task | own
    return {name: value for name, value in every.items() if value is not None}


def _named(name: str, config: Config) -> Markup:
    part, _, field = name.rpartition(".")
    told = clause((words(type(config.problem)) if part else texts_of(config)).get(field, ""))
    told = summary(config.method) if name == "method" else told
    small = tag("small", told) if told else None
    return join([tag("code", name), small])


def settings(run: Trained | Swept) -> Markup:
    """The settings that people look for, and behind them all, with a word on each."""
    config, every = run.config, fields_of(run.config)
    if isinstance(run, Swept):
        every |= run.record["grid"] | {"seed": list(range(run.record["seeds"]))}
    brief = [(tag("code", name), value(every[name])) for name in MAIN if name in every]
    rows = [[_named(name, config), value(every[name])] for name in every]
    caption = "All settings, as the run resolved them"
    whole = table(Table(caption, ["setting", "value"], rows, mixed=True))
    return join(
        [tiles(brief, "facts"), folded(f"All {len(rows)} settings, with a word on each", whole)]
    )


def value(given: Any) -> str:
    """A setting's value in words."""
    return f"{given:g}" if isinstance(given, float) else number(given)


def bare(toml: str) -> str:
    """A configuration's lines without the words on them."""
    lines = [line for line in toml.splitlines() if line and not line.startswith("#")]
    return "\n".join(lines).replace("\n[", "\n\n[") + "\n"


def _versions(found: Row) -> Markup:
    rows = [
        [tag("code", name), str(value) if value != "" else "none"] for name, value in found.items()
    ]
    return folded(
        "Versions it ran with",
        table(Table("As the run was begun", ["what", "value"], rows, mixed=True)),
    )


def repeated(run: Trained | Swept) -> Markup:
    """The commands and the configuration that give the same run."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", run.folder.resolve().name).strip("-") or "run"
    command = f"train {name}.toml"
    told = "With the same versions on the same machine it gives the same numbers to the last bit."
    if not run.record["versions"].get("deterministic"):
        told = "On this device XLA was not told to be deterministic: the last bits may differ."
    if isinstance(run, Swept):
        grid = [f"{n}={','.join(map(repr, vs))}" for n, vs in run.record["grid"].items()]
        command = " ".join([f"sweep {name}.toml", *(["--grid"] if grid else []), *grid])
        command += f" --seeds {run.record['seeds']}"
        told += " A sweep that is done in other parts may differ in the last bits."
    if changed := run.record.get("changed"):
        fields = ", ".join(name for names in changed for name in names)
        told += f" Changed on the way: {fields}; begun anew, it is not the same run."
    file = f"cat > {name}.toml <<'END'\n{bare(run.record['config'])}END\n"
    block = code(f"{file}moml {command} --out {name}-again\n")
    return section("To repeat it", tag("p", told), block, _versions(run.record["versions"]))


def repeated_table(run: Tabled) -> Markup:
    """The command that gives the same run of a table, with the table's own file named TABLE."""
    about, kept = run.about, run.about.get("settings")
    option = lambda name, value: [f"--{name}", quote(str(value))] if value is not None else []
    given = [["moml", "train", "--data", "TABLE"]]
    given += [option(name, about[name]) for name in ("task", "target", "order", "weight")]
    given += [option(name, about[name]) for name in ("shots", "seed", "model")]
    if kept is not None:
        for name in ("hold_out", "missing", "members", "iterations"):
            given.append(option(name.replace("_", "-"), kept[name]))
        for name in ("inputs", "exclude"):
            given.append([f"--{name}", *map(quote, kept[name])] if kept[name] else [])
        given.append(["--classification"] if kept["classification"] else [])
        given.append([] if kept["refit"] else ["--no-refit"])
    given.append(["--out", quote(f"{run.folder.resolve().name}-again")])
    told = "TABLE is what it was trained on; the run keeps neither the table nor its place."
    if kept is None:
        told += " This run's version did not keep all options: add those that were given."
    return section(
        "To repeat it",
        tag("p", told),
        code(" \\\n    ".join(" ".join(words) for words in given if words) + "\n"),
        _versions(about.get("versions", {})),
    )
