"""`moml report`: runs as one page of HTML that needs nothing else, and no network."""

import time
from collections.abc import Sequence
from pathlib import Path

from moml.errors import ConfigError
from moml.report.page import sweep as page_sweep
from moml.report.page import table as page_table
from moml.report.page import train as page_train
from moml.report.page.compare import compared
from moml.report.page.html import Markup, note, section, tag
from moml.report.page.runs import Run, Swept, Tabled, Trained, named, read_run
from moml.report.page.settings import repeated, repeated_table, settings
from moml.report.page.style import STYLE
from moml.runs.model_scores import Looked, look, pieces
from moml.storage.files import writable_folder, write_text
from moml.storage.folder import versions
from moml.training.progress import bar

ALONE = "default-src 'none'; style-src 'unsafe-inline'"  # the page may ask for nothing


def report(
    folders: Sequence[Path], out: Path, *, scores: bool = True, progress: bool = False
) -> Path:
    """Write the page of some runs; without `scores` nothing is computed, and no data is read."""
    if not folders:
        raise ConfigError("give the folder of a run, or of several")
    runs = [read_run(folder, name) for folder, name in named(list(folders))]
    out = Path(out)
    writable_folder(out.parent)
    if out.is_dir():
        raise ConfigError(f"{out} is a folder; give a file for the page")
    write_text(whole(runs, _looked(runs, scores, progress)), out)
    return out


def _looked(runs: Sequence[Run], scores: bool, progress: bool) -> list[Looked]:
    """What can be computed of each run."""
    able = {
        i: run for i, run in enumerate(runs) if isinstance(run, Trained) and run.rows and scores
    }
    total, done = sum(pieces(run.config) for run in able.values()), 0
    with bar("scores", total, shown=progress and total > 0) as advance:

        def one() -> None:
            nonlocal done
            done += 1
            advance(done)

        found = {i: look(run.folder, run.config, one) for i, run in able.items()}
    return [found.get(i, Looked()) for i in range(len(runs))]


def whole(runs: Sequence[Run], looked: Sequence[Looked]) -> str:
    """The page."""
    several = len(runs) > 1
    title = f"{len(runs)} runs" if several else runs[0].name
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=ALONE),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title} · moml report"),
        tag("style", Markup(STYLE)),
    )
    made = tag("p", time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), class_="soft")
    articles = [
        _article(run, found, i) for i, (run, found) in enumerate(zip(runs, looked, strict=True), 1)
    ]
    if several:
        links = [tag("li", tag("a", run.name, href=f"#run-{i}")) for i, run in enumerate(runs, 1)]
        nav = tag("nav", tag("ol", *links), aria_label="Runs")
        top = tag("header", tag("h1", f"Report of {len(runs)} runs"), made, nav)
        articles.insert(0, tag("article", tag("h2", "Side by side"), *compared(runs, looked)))
    else:
        top = tag("header", tag("h1", "Report", class_="kicker"), made)
    foot = tag("footer", tag("p", f"Made by moml {versions()['moml']}. The page loads nothing."))
    main = tag("main", *articles, class_=None if several else "one")
    return f"<!doctype html>\n{tag('html', head, tag('body', top, main, foot), lang='en')}\n"


def _article(run: Run, found: Looked, place: int) -> Markup:
    state = tag("span", run.state.word, class_=f"state {run.state.kind}")
    parts = [tag("div", tag("h2", run.name), state, class_="title")]
    if run.state.told:
        parts.append(note(run.state.told))
    match run:
        case Trained():
            parts += page_train.body(run, found)
        case Swept():
            parts += page_sweep.body(run)
        case Tabled():
            parts += [*page_table.body(run), repeated_table(run)]
    if isinstance(run, Trained | Swept):
        parts += [section("Settings", settings(run)), repeated(run)]
    return tag("article", *parts, id=f"run-{place}")
