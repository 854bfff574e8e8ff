"""Runs that choose their beta: interrupted anywhere, on a mesh, on the page; or by the rule."""

import json
import logging
import shutil
from dataclasses import replace

import jax
import pytest

import moml
from moml.config.config import Config, with_values
from moml.config.problems import Sine
from moml.config.toml import parse
from moml.errors import ConfigError
from moml.report.page.document import report
from moml.runs import choice as choosing
from moml.runs import runs, sweeps
from moml.runs.job import plan_of
from moml.runs.record import record_of
from moml.runtime.mesh import mesh
from moml.runtime.process_group import ProcessGroup
from moml.storage.checkpoint import Checkpoints
from moml.storage.metrics import read
from moml.training.choice import choose
from tests.report.reading import Page
from tests.support.processes import last_state, names

pytestmark = pytest.mark.usefixtures("short")
AUTO = Config(
    Sine(hidden=(8,)), iterations=200, eta=0.01, log_every=20, score_every=100, save_seconds=0.0,
    test_tasks=20, test_steps=2, shots=5, beta="auto",
)  # fmt: skip


@pytest.fixture(scope="module")
def short():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choose, "SHORTEST", 100)
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory, short):
    folder = tmp_path_factory.mktemp("choice") / "whole"
    runs.train(AUTO, folder)
    return folder


def same_end(one, two):
    assert last_state(one) == last_state(two)
    assert (one / "metrics.jsonl").read_bytes() == (two / "metrics.jsonl").read_bytes()
    assert record_of(one)[0].get("choice") == record_of(two)[0].get("choice")


def test_the_choice_is_in_the_run_and_in_its_learner(whole):
    record = json.loads((whole / "run.json").read_text())
    chosen, (_, config) = record["choice"], record_of(whole)
    assert parse((whole / "config.toml").read_text(), "").options["beta"] == "auto"
    assert config.options["beta"] == chosen["beta"] == chosen["rungs"][-1]["kept"][0]
    assert chosen["tasks"] == 200 and 1.0 in chosen["rungs"][0]["beta"]
    learner = moml.load(whole)
    assert float(learner.hyper.beta) == pytest.approx(chosen["beta"])
    assert learner.choice._asdict() == chosen and learner.history.shape[0] > 10
    assert not names(whole, "part-*")
    found = choose.choose(choosing.population_of(AUTO, plan_of(AUTO)), length=50)
    assert json.loads(json.dumps(found.choice._asdict())) == chosen
    rows = read(whole / "metrics.jsonl")
    assert rows[-1]["step"] == 200 and {100, 120, 170} <= {row["step"] for row in rows}


class Killed(BaseException):
    """As from a signal that nobody can handle."""


def killing(monkeypatch, name, at):
    """Raise at the `at`-th call of a function of the choice, before it."""
    calls, function = [], getattr(choosing, name)

    def dies(*given, **options):
        calls.append(name)
        if len(calls) == at:
            raise Killed
        return function(*given, **options)

    monkeypatch.setattr(choosing, name, dies)


@pytest.mark.parametrize(
    "name, at",
    [("run_job", 2), ("_install", 1), ("save_record", 1), ("_install", 2), ("remove_parts", 1)],
)
def test_killed_and_resumed_it_ends_the_same(whole, tmp_path, monkeypatch, name, at):
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        killing(patch, name, at)
        with pytest.raises(Killed):
            runs.train(AUTO, run)
    assert names(run, "part-*")
    runs.resume(run)
    same_end(run, whole)
    assert not names(run, "part-*")


def test_stopped_inside_a_rung_it_goes_on(whole, tmp_path, monkeypatch):
    run, save, calls = tmp_path / "run", Checkpoints.save, []

    def dies(self, step, *given):
        calls.append(step)
        if len(calls) == 4:
            raise Killed
        save(self, step, *given)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", dies)
        with pytest.raises(Killed):
            runs.train(AUTO, run)
    with pytest.raises(ConfigError, match="in one process"):
        runs.resume(run, group=Two())
    runs.resume(run)
    same_end(run, whole)


class Two(ProcessGroup):
    """Two processes that say the same."""

    def __init__(self):
        super().__init__(0, 2)

    def exchange(self, topic, value):
        return [value, value]


def test_on_a_mesh_it_chooses_the_same(whole, tmp_path):
    runs.train(AUTO, tmp_path / "mesh", mesh=mesh(1))
    assert record_of(tmp_path / "mesh")[0]["choice"] == record_of(whole)[0]["choice"]
    last = [read(folder / "metrics.jsonl")[-1]["score"] for folder in (whole, tmp_path / "mesh")]
    assert last[0] == pytest.approx(last[1], rel=1e-9)


def test_a_page_shows_the_choice(whole, tmp_path):
    made = Page(report([whole], tmp_path / "page.html"))
    assert not made.flaws and "Choice of β" in made.said("h3")
    told = record_of(whole)[0]["choice"]
    assert f"β = {told['beta']:.3g} was chosen of {len(told['rungs'][0]['beta'])}" in made.words
    assert f"{told['rungs'][0]['score'][0]:.4g}" in made.said("td")
    alone = tmp_path / "alone"
    runs.train(with_values(AUTO, beta="rule", iterations=20), alone)
    assert "Choice of β" not in Page(report([alone], tmp_path / "other.html")).said("h3")


def test_where_a_run_uses_the_rule_a_line_says_so(whole, tmp_path, caplog):
    cases = {
        "steps are too few": (AUTO, {"iterations": 80}),
        "memories are on disk": (AUTO, {"memory": "disk"}),
    }
    for number, (words, (config, values)) in enumerate(cases.items()):
        caplog.clear()
        folder = tmp_path / str(number)
        config, _ = runs.train(with_values(config, **values), folder)
        lines = [line for line in caplog.messages if "by the matching rule" in line]
        assert len(lines) == 1 and words in lines[0]
        assert isinstance(config.options["beta"], float) and "choice" not in record_of(folder)[0]
    caplog.clear()
    runs.train(with_values(AUTO, iterations=100), tmp_path / "from", source=whole)
    sweeps.sweep_run(with_values(AUTO, iterations=20), tmp_path / "sweep", {}, 1)
    lines = [line.partition("rule: ")[2] for line in caplog.messages if "matching rule" in line]
    assert len(lines) == 2 and "starts from another" in lines[0] and "a sweep" in lines[1]


def test_the_word_rule_is_silent_and_resolved(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "moml"):
        config, _ = runs.train(with_values(AUTO, beta="rule", iterations=20), tmp_path / "run")
    rule = moml.match_beta(1, 5, steps=2, visits=20 * 3 / 25, both_ways=True)
    assert config.options["beta"] == pytest.approx(rule) and not caplog.messages


def test_a_changed_beta_goes_before_the_choice(whole, tmp_path):
    run = shutil.copytree(whole, tmp_path / "run")
    text = (run / "config.toml").read_text()
    (run / "config.toml").write_text(text.replace('beta = "auto"', "beta = 0.5"))
    with pytest.raises(ConfigError, match="beta was"):
        runs.resume(run)
    runs.resume(run, allow=["beta"])
    assert record_of(run)[1].options["beta"] == 0.5


def test_problems_give_tasks_of_their_own_to_choose_on():
    for config in (AUTO, replace(AUTO, problem=moml.problems.Synthetic())):
        built = config.problem.build(config)
        held = built.validation()
        assert held.n == 200
        draw = lambda tasks: tasks.fetch(
            jax.numpy.arange(3), tasks.draw(jax.random.key(0), jax.numpy.arange(3), 2)
        )
        assert not (draw(held).y == draw(built.unseen).y).all()
