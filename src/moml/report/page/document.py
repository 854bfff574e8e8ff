"""`moml report`: write runs as one self-contained page of HTML that loads nothing."""

import time
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from moml.atomic import SHARED
from moml.errors import ConfigError
from moml.report.page import sweep, table, train
from moml.report.page.compare import compared
from moml.report.page.html import Markup, note, tag
from moml.report.page.runs import Run, Swept, Tabled, Trained, named, read_run
from moml.report.page.settings import repeated, repeated_table, settings
from moml.runs.model_scores import Looked, look, pieces, stored_look
from moml.storage.files import writable_folder, write_text
from moml.storage.folder import versions
from moml.tabular.store import refused
from moml.training.progress import bar

POLICY = "default-src 'none'; style-src 'unsafe-inline'"  # the page may load nothing


def report(
    folders: Sequence[Path], out: Path, *, score: bool = False, progress: bool = False
) -> Path:
    """Write the page of some runs from what they have stored; `score` computes more of them."""
    if not folders:
        raise ConfigError("report needs the folder of at least one run; got none")
    runs = [read_run(folder, name) for folder, name in named(folders)]
    out = Path(out)
    writable_folder(out.parent)
    if out.is_dir():
        raise ConfigError(f"out must be a file; got the folder {out}")
    write_text(whole(runs, _looked(runs, score, progress)), out, SHARED)
    return out


def _looked(runs: Sequence[Run], score: bool, progress: bool) -> list[Looked]:
    """What `look` computes of each training run, or what is stored of it."""
    able = [run if score and isinstance(run, Trained) and run.rows else None for run in runs]
    total, done = sum(pieces(run.config) for run in able if run), 0
    with bar("scores", total, shown=progress and total > 0) as advance:

        def one() -> None:
            nonlocal done
            done += 1
            advance(done)

        return [
            look(of.folder, of.config, one) if of else _stored(run)
            for of, run in zip(able, runs, strict=True)
        ]


def _stored(run: Run) -> Looked:
    return stored_look(run.folder) if isinstance(run, Trained) else Looked()


def whole(runs: Sequence[Run], looked: Sequence[Looked]) -> str:
    """The text of the page."""
    several = len(runs) > 1
    title = f"{len(runs)} runs" if several else runs[0].name
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title} · moml report"),
        tag("style", Markup(files(__package__).joinpath("style.css").read_text("utf-8"))),
    )
    made = tag("p", time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), class_="soft")
    articles = [_article(*one, i) for i, one in enumerate(zip(runs, looked, strict=True), start=1)]
    top = tag("header", tag("h1", "Report", class_="kicker"), made)
    if several:
        links = [tag("li", tag("a", run.name, href=f"#run-{i}")) for i, run in enumerate(runs, 1)]
        nav = tag("nav", tag("ol", *links), aria_label="Runs")
        top = tag("header", tag("h1", f"Report of {len(runs)} runs"), made, nav)
        articles.insert(0, tag("article", tag("h2", "Side by side"), *compared(runs, looked)))
    foot = tag("footer", tag("p", f"Made by moml {versions()['moml']}. The page loads nothing."))
    main = tag("main", *articles, class_=None if several else "one")
    return f"<!doctype html>\n{tag('html', head, tag('body', top, main, foot), lang='en')}\n"


def _article(run: Run, found: Looked, place: int) -> Markup:
    state = tag("span", run.state.label, class_=f"state {run.state.kind}")
    parts = [tag("div", tag("h2", run.name), state, class_="title")]
    if run.state.detail:
        parts.append(note(run.state.detail))
    match run:
        case Trained():
            parts += [*train.body(run, found), settings(run), repeated(run)]
        case Swept():
            parts += [*sweep.body(run), settings(run), repeated(run)]
        case Tabled():
            with refused(run.folder):
                parts += [*table.body(run), repeated_table(run)]
    return tag("article", *parts, id=f"run-{place}")
