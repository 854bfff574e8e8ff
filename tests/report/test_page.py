import json
import os
import re
import shutil
import tomllib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import moml
from moml.algorithms.single.diagnostics import samples_of, tracking_error
from moml.config import toml
from moml.errors import CheckpointError, DataError
from moml.report.page import table as tables
from moml.report.page.document import report
from moml.report.page.runs import read_run
from moml.report.page.settings import bare, repeated_table
from moml.runs import sweeps
from moml.runs.job import SCORED
from moml.runs.record import record_of, save_record
from moml.runs.score import score
from moml.storage import manifest
from moml.storage.folder import Lock
from moml.storage.metrics import read
from tests.report.reading import Page
from tests.support.program import call


def sound(path):
    """A page that is as it must be, whatever is on it."""
    made = Page(path)
    assert not made.flaws and len(made.all("h1")) == 1
    for place, (name, _, _) in enumerate(made.tags):
        if name == "figure":
            under = [tag for tag, _, above in made.tags[place + 1 :] if "figure" in above]
            assert under.index("svg") < under.index("figcaption") < under.index("table")
    for svg in made.all("svg"):
        assert svg.get("aria-hidden") == "true" or (svg["role"] == "img" and svg["aria-label"])
    assert all(th["scope"] in ("col", "row") for th in made.all("th"))
    places = {"points", "cx", "cy", "x", "y", "x1", "x2", "y1", "y2"}
    drawn = [value for _, given, _ in made.tags for key, value in given.items() if key in places]
    assert not any("nan" in value or "inf" in value for value in drawn)
    return made


def page(path, *folders, score=False):
    """The page of some runs."""
    return sound(report(list(folders), path, score=score))


def test_a_sine_run_with_all_that_is_computed_of_it(sine, looked, tmp_path, monkeypatch):
    monkeypatch.setattr("moml.report.page.document.look", lambda folder, config, done: looked)
    made = page(tmp_path / "new" / "page.html", sine, score=True)
    rows = read(sine / "metrics.jsonl")
    assert f"Its last score is {rows[-1]['score']:.4g}" in made.words
    for title in ("Learning curves", "Scores by known samples", "Fitted functions", "Memory"):
        assert title in made.said("h3")
    for row in rows:
        assert f"{row['samples']:,}" in made.said("td") and f"{row['loss']:.4g}" in made.said("td")
    told = " ".join(made.said("td"))
    assert all(f"{level.each.mean():.4g} ± " in told for level in looked.levels)
    assert len([svg for svg in made.all("svg") if "role" in svg]) == 2 + 2 + 3 + 1
    assert os.listdir(tmp_path / "new") == ["page.html"]


def test_what_is_computed_is_what_the_library_says(sine, looked):
    run, learner = read_run(sine, "it"), moml.load(sine)
    assert looked.wrong is None and looked.alone is None and not looked.clients
    assert [level.shots for level in looked.levels] == [0, 1, 2]
    np.testing.assert_allclose(looked.levels[-1].each.mean(), run.score)
    samples = samples_of(moml.sine(), jax.random.key(SCORED), 100)
    error = jax.jit(tracking_error(learner.method.adaptation(1), learner.method.memory, samples))
    mean = error(learner.state.memory, learner.meta, jnp.arange(25), learner.hyper)
    np.testing.assert_allclose(looked.tracked.memory.mean(), float(mean))
    assert looked.tracked.tasks == 25 and not looked.tracked.exact
    predict = moml.mlp(1, 8, 1).predict
    for fit, place in zip(looked.fits, (1, 9, 17), strict=True):
        assert fit.error == np.sort(looked.levels[-1].each)[place]
        x, y = (jnp.asarray(values)[:, None] for values in zip(*fit.samples, strict=True))
        mine = learner.adapt(moml.Batch(x, y), steps=2)
        np.testing.assert_allclose(predict(mine, fit.x[:, None])[:, 0], fit.after)
        np.testing.assert_allclose(predict(learner.params, fit.x[:, None])[:, 0], fit.before)
        np.testing.assert_allclose(np.interp(x[:, 0], fit.x, fit.wave), y[:, 0], atol=0.01)


def test_tasks_that_diverge_do_not_spoil_the_pictures(sine, looked, tmp_path, monkeypatch):
    first, second, third = looked.levels
    wild = [
        first,
        second._replace(each=np.where(np.arange(20) < 1, np.inf, second.each)),
        third._replace(each=np.where(np.arange(20) < 8, np.inf, third.each)),
    ]
    fits = [fit._replace(after=np.full_like(fit.after, np.nan)) for fit in looked.fits]
    spoiled = looked._replace(levels=wild, fits=fits)
    monkeypatch.setattr("moml.report.page.document.look", lambda folder, config, done: spoiled)
    made = page(tmp_path / "page.html", sine, score=True)
    assert "Outside the chart, since some tasks diverge: inf at 1; inf at 2." in made.words


def test_by_default_nothing_is_computed(sine, tmp_path, monkeypatch):
    monkeypatch.setattr("moml.report.page.document.look", lambda *_: pytest.fail("computed"))
    made = page(tmp_path / "page.html", sine)
    assert "Learning curves" in made.said("h3") and "Memory" not in made.said("h3")


def test_every_client_is_listed(clients, data, tmp_path):
    made = page(tmp_path / "page.html", clients, score=True)
    _, rows = score(clients)
    each = [row for row in rows if "client" in row["setting"]]
    assert len(each) == 3 * 6 + 2 * 2 and len(rows) == len(each) + 2 * 4 + 3 * 5
    for row in rows:
        form = ".0f" if row["metric"].startswith("worse") else ".1f"
        assert f"{row['mean']:{form}}" in made.said("td"), row
    named = [text for text in made.said("th") if text in ("took part", "never took part")]
    assert len(named) == (3 + 2) + (6 + 2)  # a line a model, a line a client
    assert {"fine-tuned, 1 epoch", "adapted, 1 shot", "global"} <= set(made.said("td"))
    assert "Two points per client" in made.words and "Stored by" not in made.words
    assert "The tracking error is" in made.words and "on all of its data" in made.words
    assert "bytes sent" in made.said("th") and "kB down" in made.words


def test_stored_scores_of_clients_are_shown_at_once(clients, data, tmp_path, monkeypatch):
    score(clients, shots=[2])
    monkeypatch.setattr("moml.report.page.document.look", lambda *_: pytest.fail("computed"))
    monkeypatch.delenv("MOML_DATA")
    made = page(tmp_path / "page.html", clients)
    assert "adapted, 2 shots" in made.said("td") and "Stored by moml score at step 6." in made.words
    assert "worst tenth of the clients, fine-tuned" in made.said("dt")


def test_missing_data_is_reported_and_the_rest_is_shown(clients, tmp_path, monkeypatch):
    monkeypatch.delenv("MOML_DATA", raising=False)
    made = page(tmp_path / "page.html", clients, score=True)
    assert "Not all of this page could be computed: where is the data?" in made.words
    assert "Learning curves" in made.said("h3")
    assert "Scores by known samples" not in made.said("h3")


def test_a_table_run_beside_its_rivals_and_without_ids(table, tmp_path):
    made = page(tmp_path / "page.html", table)
    rows = json.loads((table / "evaluation.json").read_text())
    told = " ".join(made.said("td"))
    for row in rows:
        assert f"{row['mean']:.4g} ± {row['std']:.2g}" in told
        if row["model"] in ("personal", "pooled"):
            assert f"{row['quantiles'][0]:.4g}" in told and f"{row['quantiles'][-1]:.4g}" in told
    assert {"personal", "pooled", "per-task", "shrunken-mean"} <= set(made.said("li"))
    about = json.loads((table / "table.json").read_text())
    *_, most = about["coverage"]
    held = None if most["share"] is None else f"{100 * most['share']:.0f} % of the rows of a task"
    assert ("Intervals of 0.9 hold" in made.words) == (held is not None)
    assert held is None or f"{held} after {most['shots']} known row" in made.words
    assert not any(id_ in made.words.split() for id_ in about["held_out"] + about["trained"])
    (repeat,) = made.said("pre")
    words = repeat.replace("\\\n", "").split()
    for given in ("--target y", "--order day", "--exclude x", "--iterations 10"):
        assert given in " ".join(words)
    assert not {"--hold-out", "--no-refit", "--kinds"} & set(words)  # it is cross-fitted


def test_how_to_repeat_a_run_with_a_part_held_out(table):
    run = read_run(table, "table")
    settings = run.about["settings"] | {"hold_out": 0.3, "refit": False, "kinds": ["head", "steps"]}
    about = run.about | {"settings": settings, "held_out": ["many"]}
    words = str(repeated_table(run._replace(about=about))).replace("\\\n   ", "")
    for given in ("--hold-out 0.3", "--kinds head steps", "--no-refit"):
        assert given in words


def test_table_runs_of_other_versions_are_refused(table, tmp_path):
    old = tmp_path / "old"
    shutil.copytree(table, old)
    about = json.loads((old / "table.json").read_text())
    (old / "table.json").write_text(json.dumps(about | {"format": 1}))
    with pytest.raises(CheckpointError, match="cannot be trusted"):
        page(tmp_path / "page.html", old)
    manifest.seal(old)
    with pytest.raises(CheckpointError, match="in format 1; this version reads format 5"):
        page(tmp_path / "page.html", old)


def test_a_sweep_is_ranked_as_its_rows_are(swept, tmp_path):
    made = page(tmp_path / "page.html", swept)
    _, rows = sweeps.resume_sweep(swept)
    assert [row["lost"] for row in rows] == [0, 0, 0, 0, 2, 2]
    cells = made.said("td")
    best = [f"{rows[0]['setting'][name]:g}" for name in ("eta", "beta")]
    start = next(i for i in range(len(cells)) if cells[i : i + 2] == best)
    for place, row in enumerate(rows):
        score = ["–", "–"] if row["mean"] is None else [f"{row[n]:.4g}" for n in ("mean", "std")]
        told = [f"{value:g}" for value in (row["setting"]["eta"], row["setting"]["beta"])]
        at = start + 5 * place
        assert cells[at : at + 5] == [*told, *score, str(row["lost"])]
    assert "6 settings with 2 seeds each" in made.words
    assert "--grid eta=0.002,1e+30,0.01 beta=0.2,0.5 --seeds 2" in made.said("pre")[0]


def test_runs_side_by_side(sine, plain, swept, table, diverged, tmp_path):
    made = page(tmp_path / "page.html", sine, plain, swept, table, diverged)
    assert made.said("h2") == ["Side by side", "memory", "plain", "grid", "table", "wild"]
    links = [a["href"] for a in made.all("a")]
    ids = [attributes.get("id") for _, attributes, _ in made.tags]
    assert links[:5] == [f"#run-{i}" for i in range(1, 6)] and all(
        link[1:] in ids for link in links
    )
    assert "What differs" in made.said("h3") and "Together" in made.said("h3")
    legend = made.said("li")
    assert legend.count("memory") >= 3 and legend.count("plain") >= 3
    assert "diverged" in made.said("span") and "diverged at step" in made.words


def test_state_of_a_run(plain, tmp_path):
    killed = tmp_path / "killed"
    shutil.copytree(plain, killed, ignore=shutil.ignore_patterns("checkpoints"))
    lines = (killed / "metrics.jsonl").read_text().splitlines(keepends=True)
    (killed / "metrics.jsonl").write_text("".join(lines[:3]))
    assert read_run(killed, "it").state.label == "unfinished"
    with Lock(killed):
        assert read_run(killed, "it").state.label == "running"
    state = read_run(killed, "it").state
    assert (
        state.detail.startswith("30 of 60 iterations") and f"moml resume {killed}" in state.detail
    )
    assert read_run(plain, "it").state == ("good", "finished", "")
    (killed / "metrics.jsonl").unlink()
    assert "0 of 60 iterations" in page(tmp_path / "page.html", killed, score=True).words


def test_a_stopped_run_that_once_diverged_is_unfinished(plain, tmp_path):
    stopped = tmp_path / "stopped"
    shutil.copytree(plain, stopped, ignore=shutil.ignore_patterns("checkpoints"))
    (stopped / "metrics.jsonl").write_text("")
    with open(stopped / "log.txt", "a") as log:
        log.write("2026-01-01T00:00:00Z INFO ended by Diverged: maml diverged\n")
    assert read_run(stopped, "it").state.label == "diverged"
    with open(stopped / "log.txt", "a") as log:
        log.write("2026-01-01T00:00:00Z INFO maml: from step 20 of 60\n")
    assert read_run(stopped, "it").state.label == "unfinished"


@pytest.mark.parametrize("line", ['{"step": 1}', "nothing"])
def test_metrics_of_another_kind_are_refused(plain, tmp_path, line):
    other = tmp_path / "other"
    shutil.copytree(plain, other, ignore=shutil.ignore_patterns("checkpoints"))
    (other / "metrics.jsonl").write_text(line + "\n")
    with pytest.raises(DataError, match="line 1 of"):
        read_run(other, "it")


def test_copied_configuration_is_equal(sine):
    record, config = record_of(sine)
    short = bare(record["config"])
    assert "#" not in short and tomllib.loads(short)["problem"]["kind"] == "sine"
    assert toml.parse(short, "page") == config


def test_names_are_escaped(plain, table, tmp_path):
    name = "<script>alert(1)<\\script>\"'&"
    for folder in (plain, table):
        shutil.copytree(folder, tmp_path / folder.name / name)
    both = [tmp_path / "plain" / name, tmp_path / "table" / name]
    made = page(tmp_path / "page.html", *both)
    assert not made.all("script") and "<script" not in made.source
    assert str(both[0]) in made.said("h2")
    evil = tmp_path / "evil"
    shutil.copytree(plain, evil)
    record, _ = record_of(evil)
    record["versions"]["device"] = "</style><script>alert(2)</script>"
    save_record(evil, record)
    made = page(tmp_path / "page.html", evil)
    assert not made.all("script") and "</style><script>alert(2)</script>" in made.said("td")


def test_the_command(plain, tmp_path, capsys):
    out = tmp_path / "page.html"
    code, said, _ = call(capsys, "report", plain, "--out", out)
    assert (code, said) == (0, f"page: {out}\n") and Page(out).said("h2") == ["plain"]
    assert f"moml report {plain} --score" in Page(out).words
    code, _, errors = call(capsys, "report", plain, "--score", "--out", out)
    assert code == 0 and "scores: 7/7" in errors
    assert "Fitted functions" in Page(out).said("h3") and "--score" not in Page(out).words


@pytest.mark.parametrize(
    "words, said",
    [
        (["nothing", "--out", "page.html"], "must hold run.json or table.json; got nothing"),
        ([".", "--out", "page.html"], "must hold run.json or table.json; got ."),
        (["RUN", "--out", "folder"], "out must be a file; got the folder folder"),
        (["RUN", "--out", "file/page.html"], "cannot make the folder file"),
        ([], "the folder of at least one run; got none"),
    ],
)
def test_mistakes_are_one_line(words, said, plain, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    given = [str(plain) if word == "RUN" else word for word in words]
    code, _, errors = call(capsys, "report", *given)
    assert code == 2 and errors.startswith("moml: ") and said in errors and errors.count("\n") == 1
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


def test_a_continued_table_run_does_not_contradict_itself(table):
    run = read_run(table, "table")
    later = {"hold_out": 0.2, "iterations": 30, "seed": 1, "scored": True, "trained": True}
    about = run.about | {"continued": later, "held_out": ["many"] * 99}
    new = run._replace(about=about)
    text = "".join(map(str, tables.body(new)))
    scored = run.rows[0]["tasks"]
    assert f"scored are new tasks; the scores are on {scored} held-out tasks" in text
    assert "99 held-out" not in text and "in the run that this one continues" in text
    command = "moml train --from RUN --data TABLE --hold-out 0.2 --iterations 30 --seed 1 --out"
    assert command in str(repeated_table(new)) and "--task" not in str(repeated_table(new))
    before = run._replace(about=about | {"continued": later | {"scored": False, "trained": False}})
    text = "".join(map(str, tables.body(before)))
    assert "Its model is the same" in text and "scored are tasks of the run before" in text


def test_importance_of_inputs(table):
    run = read_run(table, "table")
    ranks = run.about["importance"]
    assert {row["input"] for row in ranks} == {"day", "kind"}
    assert [row["permuted"] for row in ranks] == sorted(
        (r["permuted"] for r in ranks), reverse=True
    )
    text = "".join(map(str, tables.body(run)))
    assert "Importance of inputs" in text
    assert re.search(r'<td class="n">[+-]', text) and not re.search(r"<td>[+-]\d", text)
    assert "tasks, each by members that have not seen it" in text
