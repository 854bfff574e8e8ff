"""One job in one folder, from its last checkpoint to its end; killed at any moment, it resumes.

RUN/  config.toml    the configuration, resolved
      run.json       the same with versions and seed, as the run was started
      metrics.jsonl  a line a stretch
      checkpoints/   see `moml.storage.checkpoint`
      memory/        see `moml.storage.rows_on_disk`, where memories are on disk
      log.txt        what happened when
      logs.json      ids in services that get the metrics too, see `moml.storage.sinks`
      lock           the process that is using the folder
"""

import logging
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import numpy as np

from moml.config.config import Config, fields_of
from moml.config.toml import dump
from moml.errors import ConfigError, Interrupted
from moml.runs.job import Job
from moml.runs.record import resume_words
from moml.runtime import compiling
from moml.runtime.account import Cost
from moml.runtime.process_group import ALONE, ProcessGroup, nothing
from moml.storage.checkpoint import Checkpoints
from moml.storage.folder import DETERMINISTIC, open_log, versions
from moml.storage.metrics import COST, START, Metrics, mark_of, read, verify
from moml.storage.sinks import About, open_sinks
from moml.training.loop import Callback, TrainingInfo, loop
from moml.types import Record, State

log = logging.getLogger("moml")


class Logs(NamedTuple):
    """Services that get the metrics too; of a sweep also its folder, and its members' settings."""

    names: Sequence[str] = ()
    group: Path | None = None
    members: tuple[Record, ...] | None = None


NO_LOGS = Logs()


class WhileCompiling(KeyboardInterrupt):
    """A signal came while the main thread waited for the compiler, which may be done by now."""


@contextmanager
def stop_signals(*, waits: bool = True) -> Iterator[Callable[[], int]]:
    """Record Ctrl-C and SIGTERM instead of stopping at once: a function to ask for the signal.

    It gives 0 while there was none. A second Ctrl-C interrupts. So does the first signal while
    the main thread `waits` for the compiler, after which nothing is to be saved.
    """
    received: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if waits and compiling.waits():
            raise WhileCompiling
        if received[1:] and number == signal.SIGINT:
            raise KeyboardInterrupt

    old = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: received[0] if received else 0
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


@contextmanager
def log_errors() -> Iterator[None]:
    """Write to the log why a run ended early."""
    try:
        yield
    except BaseException as error:
        log.info("ended by %s: %s", type(error).__name__, error)
        raise


@contextmanager
def _stopped(kept: Checkpoints, signalled: Callable[[], int], command: str) -> Iterator[None]:
    """Say what is saved where a signal came while the compiler was waited for."""
    try:
        yield
    except WhileCompiling as error:
        kept.wait()
        saved = f"step {kept.good()[-1]} is saved" if kept.good() else "no step is saved yet"
        text = f"stopped while compiling; {saved}; go on with: {command}"
        raise Interrupted(text, 128 + signalled()) from error


def _spent(path: Path, job: Job, done: int, *, leads: bool) -> Cost | None:
    """What the rounds so far cost, from the last line of metrics; None without rounds."""
    if job.cost is None:
        return None
    rows = read(path) if leads else []
    return Cost(**rows[-1][COST]) if rows and COST in rows[-1] else job.cost(0, done)


def _agreed(group: ProcessGroup, halt: int, due: bool) -> tuple[int, bool]:
    """Stop if any process was asked to; save when the first one says so."""
    answers = [words.split() for words in group.exchange("stretch", f"{halt} {due:d}")]
    return max(int(halt) for halt, _ in answers), answers[0][1] == "1"


def run_job(
    folder: Path,
    config: Config,
    job: Job,
    *,
    progress: bool = False,
    logs: Logs = NO_LOGS,
    callback: Callback | None = None,
    resume: str | None = None,
    more: bool = False,
    save_first: bool = False,
    ready: Callable[[], None] = nothing,
    group: ProcessGroup = ALONE,
) -> State:
    """Do what is left of a job in a folder whose lock the caller has; the last carry.

    Metrics, scores and checkpoints are written after the stretches of the loop. Raises Interrupted
    after a signal, when all is saved (at the end only if there is `more` to do), and Diverged.
    `logs` get the metrics too. `resume` is the command that continues. `save_first` saves step 0.
    `ready` is called when the state to continue from is loaded, before anything is changed. All
    processes of a `group` do the same; the first one writes, and all save.
    """
    plan, path = job.plan, folder / "metrics.jsonl"
    resume = resume or resume_words(folder, config.plugin, logs.names)
    uses = versions()
    about = {"config": dump(config), "versions": uses}  # now: files may change under a run
    with (
        open_log(folder) if group.leads else nullcontext(),
        log_errors(),
        Checkpoints(folder / "checkpoints", config.keep, group) as kept,
        stop_signals(waits=group.processes == 1) as signalled,
        _stopped(kept, signalled, resume),
        closing(job.execution) as execution,
    ):
        group.run_all("clear", kept.clear if group.leads else nothing)
        usable = lambda info: verify(path, mark_of(info)) or execution.verify(info)
        found = kept.load(execution.shapes(), usable, mapped=True)
        done, mark = (0, START) if found is None else (found.step, mark_of(found.info))
        if done > plan.steps:
            raise ConfigError(f"{folder} is at step {done} already: iterations end at {plan.steps}")
        ready()
        if found is None:
            carry = execution.first(progress=progress)
        else:
            carry = execution.load(found.state, done)
        log.info("%s: from step %d of %d", job.name, done, plan.steps)
        if not uses["deterministic"]:
            text = "the last bits may differ from run to run; XLA_FLAGS=%s=true keeps them"
            log.warning(text, DETERMINISTIC[0])
        every = max(1, config.score_every // config.log_every) if config.score_every else 0
        for_sinks = About(fields_of(config), logs.group, logs.members)
        with (
            Metrics(path, mark) if group.leads else nullcontext() as metrics,
            open_sinks(logs.names if group.leads else (), folder, for_sinks, done) as show,
        ):
            spent = _spent(path, job, done, leads=group.leads)
            clock, halt = time.monotonic(), 0

            def save(step: int, carry: State, score: np.ndarray | None) -> None:
                nonlocal clock
                info = {"metrics": metrics.sync()._asdict()} | about if metrics else {}
                state, notes = execution.snapshot(carry, step, kept.good()[-config.keep :])
                kept.save(step, state, info | notes, _least(score, higher=plan.built.higher))
                clock = time.monotonic()
                log.info("saving step %d of %d", step, plan.steps)

            def after(info: TrainingInfo) -> bool | str | None:
                nonlocal spent, halt
                step, carry, size = info.step, info.carry, info.losses.shape[-1]
                last = step == plan.steps
                due = every and (step // plan.length) % every == 0
                score = job.score(carry) if due or last else None
                once = plan.method.algorithm.iterations
                row: Record = {"step": step, "iterations": step * once, "loss": info.loss}
                row |= {"samples": plan.samples(step), "norm": info.norm, "score": score}
                if job.cost is not None and spent is not None:
                    spent = Cost(*map(np.add, spent, job.cost(step - size, size)))
                    row[COST] = spent._asdict()
                if metrics:
                    metrics.write(row)
                show(row)
                late = time.monotonic() - clock >= config.save_seconds and not kept.busy
                halt, due = _agreed(group, signalled(), late)  # later signals: after the next one
                stop = callback is not None and callback(
                    info._replace(hyper=job.hyper, score=score)
                )
                if last or halt or stop or due:
                    save(step, carry, job.score(carry) if score is None else score)
                return bool(halt or stop) or (f"saved at {step}" if last or due else None)

            if save_first and found is None:
                save(0, carry, None)
            carry, done = loop(
                job.name,
                execution.advance,
                carry,
                steps=plan.steps,
                length=plan.length,
                done=done,
                after=after,
                about=job.about,
                note=f"saved at {done}" if done else "",
                progress=progress and group.leads,
            )
            if halt and (more or done < plan.steps):
                kept.wait()
                log.info("stopped by signal %d at step %d", halt, done)
                text = f"stopped at step {done} of {plan.steps}, and saved; go on with: {resume}"
                raise Interrupted(text, 128 + halt)
            if text := execution.describe():
                log.info("%s", text)
        log.info("%s: done", job.name)
        return carry


def _least(scores: np.ndarray | None, *, higher: bool) -> float | None:
    """The best score of all members, as a number of which less is better."""
    values = np.asarray([] if scores is None else scores, float)
    values = values[np.isfinite(values)]
    return float((-values if higher else values).min()) if values.size else None
