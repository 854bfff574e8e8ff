"""Settings of a run, and the commands that repeat it."""

import re
from shlex import quote

from moml.config.config import Config, kind_of
from moml.config.plugins import plugin_words
from moml.config.toml import texts_of, words
from moml.methods import summary
from moml.report.page.html import Markup, folded, join, number, section, table, tag, tiles
from moml.report.page.runs import Swept, Tabled, Trained
from moml.types import Record

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


def fields_of(config: Config) -> Record:
    """Every setting that has a value, by name."""
    own = {name: value for name, value in config.flat().items() if name not in KEPT_APART}
    task = {f"problem.{name}": value for name, value in vars(config.problem).items()}
    every = {"problem.kind": kind_of(config.problem)} | task | own
    return {name: value for name, value in every.items() if value not in (None, ())}


def _named(name: str, config: Config) -> Markup:
    part, _, field = name.rpartition(".")
    help_ = clause((words(type(config.problem)) if part else texts_of(config)).get(field, ""))
    help_ = summary(config.method) if name == "method" else help_
    return join([tag("code", name), tag("small", help_) if help_ else None])


def settings(run: Trained | Swept) -> Markup:
    """The main settings, and a folded table of all settings with their help."""
    every = fields_of(run.config)
    if isinstance(run, Swept):
        every |= run.record["grid"] | {"seed": list(range(run.record["seeds"]))}
    main = [(tag("code", name), number(every[name], 6)) for name in MAIN if name in every]
    rows = [[_named(name, run.config), number(value, 6)] for name, value in every.items()]
    whole = table("All settings, as the run resolved them", ["setting", "value"], rows, mixed=True)
    every_one = folded(f"All {len(rows)} settings, with their descriptions", whole)
    return section("Settings", tiles(main, "facts"), every_one)


def bare(toml: str) -> str:
    """The lines of a configuration without comments."""
    lines = [line for line in toml.splitlines() if line and not line.startswith("#")]
    return "\n".join(lines).replace("\n[", "\n\n[") + "\n"


def _repeat(text: str, commands: str, versions: Record) -> Markup:
    rows = [[tag("code", name), str(v) if v != "" else "none"] for name, v in versions.items()]
    found = table("When the run was started", ["what", "value"], rows, mixed=True)
    block = tag("pre", tag("code", commands), class_="tall", tabindex="0")  # a click selects all
    return section("How to repeat it", tag("p", text), block, folded("Versions it ran with", found))


def repeated(run: Trained | Swept) -> Markup:
    """The configuration and the command that repeat a run."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", run.folder.resolve().name).strip("-") or "run"
    command = f"train {name}.toml"
    text = "With the same versions on the same machine it gives the same numbers to the last bit."
    if not run.record["versions"].get("deterministic"):
        text = "XLA was not set to be deterministic on this device: the last bits may differ."
    if isinstance(run, Swept):
        grid = [f"{n}={','.join(map(repr, vs))}" for n, vs in run.record["grid"].items()]
        command = " ".join([f"sweep {name}.toml", *(["--grid"] if grid else []), *grid])
        command += f" --seeds {run.record['seeds']}"
        text += " A sweep that is split into other parts may differ in the last bits."
    if changed := run.record.get("changed"):
        fields = ", ".join(name for names in changed for name in names)
        text += f" Changed during the run: {fields}; a new run with them is not the same run."
    file = f"cat > {name}.toml <<'END'\n{bare(run.record['config'])}END\n"
    command += f" --out {name}-again{plugin_words(run.config.plugin)}"
    return _repeat(text, f"{file}moml {command}\n", run.record["versions"])


def repeated_table(run: Tabled) -> Markup:
    """The command that repeats the run of a table; TABLE stands for the table's file."""
    if "continued" in run.about:
        return _repeated_from(run)
    about, kept = run.about, run.about["settings"]
    option = lambda name, value: [f"--{name}", quote(str(value))] if value is not None else []
    names = ("task", "target", "order", "weight", "shots", "seed", "model")
    given = [["moml", "train", "--data", "TABLE"], *(option(name, about[name]) for name in names)]
    text = (
        "TABLE is the table that it was trained on; the run stores neither the table nor its path."
    )
    given.append(option("hold-out", kept["hold_out"]) if about["held_out"] else [])
    for name in ("missing", "members", "iterations"):
        given.append(option(name, kept[name]))
    cells = kept.get("cells", {})
    lists = {name: kept.get(name) or () for name in ("inputs", "exclude", "categorical", "kinds")}
    for name, some in (lists | {name: cells.get(name, ()) for name in ("units", "na")}).items():
        given.append([f"--{name}", *map(quote, some)] if some else [])
    given += [option(name, cells.get(name)) for name in ("decimal", "thousands")]
    given.append(["--classification"] if kept["classification"] else [])
    given.append(["--no-refit"] if about["held_out"] and not kept["refit"] else [])
    given.append(["--out", quote(f"{run.folder.resolve().name}-again")])
    command = " \\\n    ".join(" ".join(words) for words in given if words) + "\n"
    return _repeat(text, command, about["versions"])


def _repeated_from(run: Tabled) -> Markup:
    """The command that continues the same run by the same table."""
    about, later = run.about, run.about["continued"]
    text = (
        "RUN is the run that it continues and TABLE the table of new rows; neither is stored, nor "
        "their paths."
    )
    given = ["moml", "train", "--from", "RUN", "--data", "TABLE"]
    for name in ("hold_out", "iterations", "seed"):
        if later[name] is not None:
            given += [f"--{name.replace('_', '-')}", str(later[name])]
    given += ["--model", quote(about["model"])] if about["model"] else []
    given += ["--out", quote(f"{run.folder.resolve().name}-again")]
    return _repeat(text, f"{' '.join(given)}\n", about["versions"])
