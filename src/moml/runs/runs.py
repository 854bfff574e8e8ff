"""Runs in folders: start one, resume one, load its model."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

import jax
import numpy as np
from jax.sharding import Mesh

from moml.algorithms.signature import AUTO
from moml.config.config import Config, kind_of, options_of, step_sizes, with_values
from moml.errors import CheckpointError, ConfigError
from moml.runs.choice import remove_parts, settle, undecided, why_not
from moml.runs.consistency import assert_same_config, assert_same_data, assert_same_folder
from moml.runs.job import Job, Plan, plan_of, single
from moml.runs.record import begin, record_of, unchanged, warn_of_forgotten
from moml.runs.session import Logs, run_job
from moml.runtime.process_group import ALONE, ProcessGroup, nothing
from moml.storage.checkpoint import Checkpoints
from moml.storage.files import writable_folder
from moml.storage.folder import Lock
from moml.storage.metrics import COST, mark_of, read, verify
from moml.storage.sinks import check_sinks
from moml.training.choice.choose import by_rule
from moml.training.choice.population import Choice
from moml.training.compose import hyper_of, init_key
from moml.training.disk import OnDisk
from moml.training.execution import copy_arrays
from moml.training.fit import Learner, TrainingState
from moml.training.loop import Callback
from moml.training.personal import parts_that_keep
from moml.training.rows import result_row
from moml.types import Params, Record, State


def resolved(config: Config, plan: Plan | None = None) -> Config:
    """The configuration with the method's defaults written out; `plan` is that of `config`."""
    plan = plan_of(config) if plan is None else plan
    used = hyper_of(plan.method, plan.built.init(init_key(0)), {})
    options = {name: plan.method.options[name] for name in options_of(config.method)}
    numbers = {name: float(str(np.asarray(v))) for name, v in used._asdict().items()}
    options |= {name: number for name, number in numbers.items() if name in options}
    options |= {"beta": AUTO} if plan.method.betas else {}
    place = None if config.memory_dir is None else str(Path(config.memory_dir).resolve())
    return replace(config, options=options, memory_dir=place, rounds=None)


def train(
    config: Config,
    folder: Path,
    *,
    source: Path | None = None,
    progress: bool = False,
    log: Sequence[str] = (),
    callback: Callback | None = None,
    mesh: Mesh | None = None,
    group: ProcessGroup = ALONE,
) -> tuple[Config, Job]:
    """Start a run in a folder and train to its end; the resolved configuration, and the job.

    With a `source`, another run, it starts from the parameters w there. With a `mesh` its tasks are
    distributed over many devices, those of all processes of the `group`. Services named in `log`
    get the metrics too.
    """
    check_sinks(log)

    def prepare(given: Config = config) -> tuple[Plan, Config]:
        plan = plan_of(given)
        if plan.method.betas and (reason := why_not(given, plan, group, source)):
            plan = plan._replace(method=by_rule(plan.method, reason))
        return plan, resolved(given, plan)

    plan, config = group.run_all("config", prepare)
    assert_same_config(group, config)
    start = None if source is None else group.run_all("from", lambda: _start(source, plan))
    assert_same_data(group, plan, start)
    job = single(config, plan, folder=folder, params=start, mesh=mesh, group=group)
    with ExitStack() as stack:

        def claim() -> None:
            stack.enter_context(Lock(writable_folder(folder, 0o700)))
            extra = {} if source is None else {"from": str(source)}
            begin(folder, config, extra, job.execution.check_new)

        assert_same_folder(group, folder)
        group.run_all("begin", claim if group.leads else nothing)
        if plan.method.betas:
            config = settle(folder, config, plan, progress=progress)
            job = single(config, plan, folder=folder, mesh=mesh, group=group)
        run_job(
            folder, config, job, progress=progress, logs=Logs(log), callback=callback,
            save_first=source is not None, group=group,
        )  # fmt: skip
    return config, job


def _start(source: Path, plan: Plan) -> Params:
    """The parameters w of another run, if the network is the same."""
    params = load(source).params
    shapes = lambda tree: [
        f"{jax.tree_util.keystr(at, simple=True, separator='/')} {list(leaf.shape)}"
        for at, leaf in jax.tree_util.tree_leaves_with_path(tree)
    ]
    for was, wanted in zip_longest(shapes(params), shapes(plan.built.init(init_key(0)))):
        if was != wanted:
            raise ConfigError(
                f"the network of {source} must be the same: {wanted or 'nothing'}; got "
                f"{was or 'nothing'}"
            )
    return params


def resume(
    folder: Path,
    allow: Sequence[str] = (),
    *,
    progress: bool = False,
    log: Sequence[str] = (),
    callback: Callback | None = None,
    mesh: Mesh | None = None,
    group: ProcessGroup = ALONE,
) -> tuple[Config, Job]:
    """Continue a run from its last good checkpoint, also on other devices than before."""
    check_sinks(log)
    group.run_all("record", lambda: record_of(folder))
    assert_same_folder(group, folder)
    with ExitStack() as stack:

        def claim() -> None:
            stack.enter_context(Lock(folder))

        group.run_all("begin", claim if group.leads else nothing)
        record, config, note = group.run_all("config", lambda: unchanged(folder, allow))
        assert_same_config(group, config)
        warn_of_forgotten(record)
        if "from" in record and not Checkpoints(folder / "checkpoints").steps():
            raise CheckpointError(
                f"{folder} was stopped before it began: remove it, and begin it again from "
                f"{record['from']}"
            )
        open_ = group.run_all("choice", lambda: undecided(folder, record, config))
        if open_ and group.processes > 1:
            raise ConfigError(f"{folder} has no beta yet: go on in one process until it has")
        auto = with_values(config, beta=AUTO) if open_ else config
        plan = group.run_all("plan", lambda: plan_of(auto))
        assert_same_data(group, plan, None)
        if open_:
            config = settle(folder, auto, plan, progress=progress)
        elif "choice" in record and group.leads:
            remove_parts(folder)
        job = single(config, plan, folder=folder, mesh=mesh, group=group)
        run_job(
            folder, config, job, progress=progress, logs=Logs(log), callback=callback,
            ready=note if group.leads else nothing, group=group,
        )  # fmt: skip
    return config, job


def load(folder: Path | str, *, best: bool = False) -> Learner:
    """Load the model of a run's newest good checkpoint, or of its best one.

    Parameters
    ----------
    folder
        The folder of the run.
    best
        Take the checkpoint with the best score instead of the newest.

    Returns
    -------
    A `Learner`, to adapt and to evaluate.

    >>> load("nowhere")
    Traceback (most recent call last):
        ...
    moml.errors.ConfigError: nowhere holds no run: there is no run.json in it
    """
    folder = Path(folder)
    record, config = record_of(folder)
    if "grid" in record:
        raise ConfigError(f"{folder} holds a sweep, not one model: take the best of its rows")
    plan = plan_of(config)
    job = single(config, plan, folder=folder)
    with Checkpoints(folder / "checkpoints", config.keep) as kept:
        found = kept.load(job.execution.shapes(), best=best)
    if found is None:
        raise CheckpointError(f"{folder} has no checkpoint yet")
    if problem := verify(folder / "metrics.jsonl", mark_of(found.info)):
        raise CheckpointError(problem)
    state = TrainingState(copy_arrays(found.state), found.step)
    rows = [row for row in read(folder / "metrics.jsonl") if row["step"] <= found.step]
    losses = np.array([row["loss"] for row in rows], float)
    meta, samples = state.method.meta, plan.samples(found.step)
    choice = Choice(**record["choice"]) if "choice" in record else None
    return Learner(plan.method, meta, job.hyper, state, losses, samples, choice)


def stores_of(
    folder: Path, plan: Plan, learner: Learner, *, best: bool = False
) -> Iterator[tuple[np.ndarray, State]]:
    """What the clients of a loaded run keep, in parts: their ids, and a store with a row for each.

    Nothing where they keep no models.
    """
    if parts_that_keep(learner.method) is None or learner.state is None:
        return
    if jax.tree.leaves(learner.state.memory):
        yield np.arange(learner.method.n or 0), learner.state.memory
        return
    config = record_of(folder)[1]
    with closing(single(config, plan, folder=folder).execution) as execution:
        with Checkpoints(folder / "checkpoints", config.keep) as kept:
            found = kept.load(execution.shapes(), best=best)
        if found is not None and isinstance(execution, OnDisk):
            yield from execution.saved_stores(found.state, found.info)


def row_of(
    config: Config, plan: Plan, values: Sequence[float | None], setting: Record, seconds: float
) -> Record:
    """The result row of some scores, one a seed."""
    how: Record = {"shots": config.shots, "steps": config.test_steps} if plan.kept is None else {}
    how |= {} if plan.model is None else {"model": plan.model}
    return result_row(
        table="train",
        dataset=kind_of(config.problem),
        setting={"k": config.option("k")} | how | setting,
        method=config.method,
        metric=plan.built.metric,
        values=values,
        samples=plan.samples(plan.steps),
        iterations=config.iterations,
        seconds=seconds,
    )


def last_row(config: Config, plan: Plan, folder: Path, seconds: float) -> Record:
    """The result row of a finished run."""
    score = read(folder / "metrics.jsonl")[-1]["score"]
    seen = {name: value for name, value in step_sizes(config).items() if value is not None}
    return row_of(config, plan, [score], seen | {"seed": config.seed}, seconds)


def spent(folder: Path) -> dict[str, int] | None:
    """What the rounds of a run cost, from its last line of metrics; None without rounds."""
    return read(folder / "metrics.jsonl")[-1].get(COST)
