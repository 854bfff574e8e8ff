"""The choice of beta in the folder of a run: a part for each rung, then the winner's own run.

RUN/  part-000/ ...   the members of each rung, as those of a sweep; removed after the choice
      run.json        has the choice, with the scores of all members, as soon as it is made
"""

import shutil
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np

from moml.algorithms.signature import AUTO
from moml.config.config import Config, with_values
from moml.config.toml import dump
from moml.errors import ConfigError
from moml.runs.job import Job, Plan, schedule_of, scores_of
from moml.runs.record import record_of, resume_words, save_record
from moml.runs.session import run_job
from moml.runtime.process_group import ProcessGroup
from moml.storage.checkpoint import Checkpoints
from moml.storage.files import writable_folder
from moml.storage.folder import versions
from moml.storage.metrics import START, Metrics, read
from moml.training.choice.choose import too_large, too_short, winner
from moml.training.choice.population import Choice, Population, rung_row, survivors, take
from moml.training.compose import first_program, hyper_of, init_key, run_key
from moml.training.execution import Execution
from moml.training.loop import Members
from moml.types import Record, State


def why_not(config: Config, plan: Plan, group: ProcessGroup, source: Path | None) -> str | None:
    """Why a run cannot choose beta, or None."""
    if reason := too_short(plan.steps):
        return reason
    if config.memory == "disk":
        return "memories are on disk"
    if source is not None:
        return "the run starts from another one"
    if group.processes > 1:
        return "several processes train one model"
    if plan.built.validation is None:
        return "the problem has no tasks to hold out (episodes: problem.validation)"
    params = plan.built.init(init_key(0))
    given = plan.built.tasks, run_key(0), hyper_of(plan.method, params, {})
    return too_large(plan.method, jax.eval_shape(first_program(plan.method), params, *given))


def population_of(config: Config, plan: Plan) -> Population:
    """The members of a run that chooses its beta."""
    built = plan.built
    if built.validation is None:
        raise ConfigError("beta = auto needs tasks to hold out; the problem has none")
    tasks = built.validation()
    score = jax.jit(scores_of(config, built, tasks, plan.method.adaptation))
    return Population(
        plan.method, built.init(init_key(config.seed)), built.tasks, run_key(config.seed),
        schedule_of(config), score, tasks, steps=plan.steps, length=plan.length,
        higher=built.higher,
    )  # fmt: skip


def undecided(folder: Path, record: Record, config: Config) -> bool:
    """Whether the run in a folder has still to choose its beta, or to start with it."""
    begun = bool(Checkpoints(folder / "checkpoints").steps())
    return not begun and (config.option("beta") == AUTO or "choice" in record)


def settle(folder: Path, config: Config, plan: Plan, *, progress: bool = False) -> Config:
    """Choose beta, from wherever that was interrupted: the configuration with it.

    The caller has the lock. Killed at any moment, it is repeated from the checkpoints of the parts;
    then the winner's state and metrics are those of the run, which continues as any other.
    """
    population = population_of(config, plan)
    betas = list(plan.method.betas)
    rungs, rows, step = population.rungs(), [], 0
    carry = population.first(betas)
    lines: list[Record] = []
    resume = resume_words(folder, config.plugin)
    for place, rung in enumerate(rungs):
        part = writable_folder(folder / f"part-{place:03d}", 0o700)
        if place and not Checkpoints(part / "checkpoints").steps():
            _install(part, config, step, carry, lines)
        job = _job(config, plan._replace(steps=rung.until), population, betas, carry)
        carry = run_job(part, config, job, progress=progress, resume=resume, more=True)
        step, lines = rung.until, read(part / "metrics.jsonl")
        scores = population.scores(carry, betas)
        left = rungs[place + 1].members if place + 1 < len(rungs) else 1
        best = survivors(scores, left, higher=population.higher, one=betas[0] == 1)
        rows.append(rung_row(step, betas, scores, best))
        betas = [betas[i] for i in best]
        carry = take(carry, np.array(best))
        lines = [_of_members(row, best) for row in lines]
    held = population.validation.n or 0
    choice = Choice(betas[0], float(plan.method.hyper.beta), held, rows)
    save_record(folder, record_of(folder)[0] | {"choice": choice._asdict()})
    config = with_values(config, beta=choice.beta)
    _install(folder, config, step, winner(carry), [_of_members(row, 0) for row in lines])
    remove_parts(folder)
    return config


def remove_parts(folder: Path) -> None:
    """Remove what the choice left: members have memories too."""
    for part in folder.glob("part-*"):
        shutil.rmtree(part)


def _job(
    config: Config, plan: Plan, population: Population, betas: Sequence[float], first: Members
) -> Job:
    """A rung as a job; it is scored when it is done."""
    unscored = lambda carry: np.full(len(betas), np.nan)
    execution = Execution(lambda: first, population.advance(betas))
    name = f"{config.method} x {len(betas)}"
    return Job(name, "", plan, population.hyper(betas), execution, unscored, None)


def _of_members(row: Record, which: Sequence[int] | int) -> Record:
    """A line of metrics of some members, or of one; without scores."""
    pick = lambda all_: all_[which] if isinstance(which, int) else [all_[i] for i in which]
    return row | {"loss": pick(row["loss"]), "norm": pick(row["norm"]), "score": None}


def _install(
    folder: Path, config: Config, step: int, state: State, lines: Sequence[Record]
) -> None:
    """Begin the job of a folder at a step, with the metrics up to it."""
    with Metrics(folder / "metrics.jsonl", START) as metrics:
        for line in lines:
            metrics.write(line)
        mark = metrics.sync()
    info = {"metrics": mark._asdict(), "config": dump(config), "versions": versions()}
    with Checkpoints(folder / "checkpoints", config.keep) as kept:
        kept.save(step, state, info)
