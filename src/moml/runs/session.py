"""One job in one folder, from wherever it stands to its end; killed at any moment, it goes on.

RUN/  config.toml    the configuration, resolved
      run.json       the same with versions and seed, as the run was begun
      metrics.jsonl  a line a stretch
      checkpoints/   see `moml.storage.checkpoint`
      memory/        see `moml.storage.rows_on_disk`, where memories live on disk
      log.txt        what happened when
      lock           who is at work here
"""

import logging
import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from shlex import quote
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from moml.config.config import Config
from moml.config.toml import dump
from moml.errors import ConfigError, Interrupted
from moml.runs.job import Job
from moml.runtime.account import Cost
from moml.runtime.process_group import ALONE, Team, nothing
from moml.storage.checkpoint import Checkpoints, Saved
from moml.storage.folder import DETERMINISTIC, open_log, versions
from moml.storage.metrics import COST, START, Mark, Metrics, read, tensorboard, verify
from moml.training.progress import bar

log = logging.getLogger("moml")


@contextmanager
def asked_to_stop() -> Iterator[Callable[[], int]]:
    """While open, Ctrl-C and SIGTERM only leave word: the number of the signal, 0 for none.

    A second Ctrl-C does not wait.
    """
    came: list[int] = []

    def note(number: int, frame: Any) -> None:
        if came and number == signal.SIGINT:
            raise KeyboardInterrupt
        came.append(number)

    old = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: came[0] if came else 0
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


@contextmanager
def how_it_ended() -> Iterator[None]:
    """Tell the log why a run did not come to its end."""
    try:
        yield
    except BaseException as error:
        log.info("ended by %s: %s", type(error).__name__, error)
        raise


def strong(tree: Any) -> Any:
    """Fresh arrays with types of their own: a first state and a loaded one then trace alike."""
    return jax.tree.map(lambda x: jnp.array(x, dtype=x.dtype, copy=True), tree)


def _unseen(row: Any) -> None:
    """TensorBoard, where it is not asked for."""


def _finite(values: Any) -> np.ndarray:
    numbers = np.asarray(math.nan if values is None else values, float)
    return numbers[np.isfinite(numbers)]


def _mean(values: Any) -> float:
    return float(_finite(values).mean()) if _finite(values).size else math.nan


def _least(values: Any) -> float | None:
    return float(_finite(values).min()) if _finite(values).size else None


def plus(one: Cost, other: Cost) -> Cost:
    """Two costs together."""
    return Cost(*(np.add(a, b) for a, b in zip(one, other, strict=True)))


def _spent(path: Path, job: Job, done: int, *, leads: bool) -> Any:
    """What the rounds so far have cost, as the last line of metrics has it; None without rounds."""
    if job.cost is None:
        return None
    rows = read(path) if leads else []
    return Cost(**rows[-1][COST]) if rows and COST in rows[-1] else job.cost(0, done)


def _carry(job: Job, found: Saved | None) -> Any:
    """What a job goes on from, where it computes."""
    if job.place is None:
        return strong(job.first() if found is None else found.state)
    return job.place.first() if found is None else job.place.spread(found.state)


def _agreed(team: Team, halt: int, due: bool) -> tuple[int, bool]:
    """Stop where any process was asked to; save when the first one says so."""
    told = [words.split() for words in team.exchange("stretch", f"{halt} {due:d}")]
    return max(int(halt) for halt, _ in told), told[0][1] == "1"


def go_on(
    folder: Path,
    config: Config,
    job: Job,
    *,
    progress: bool = False,
    board: bool = False,
    resume: str | None = None,
    more: bool = False,
    ready: Callable[[], None] = nothing,
    team: Team = ALONE,
) -> Any:
    """Do what is left of a job in its folder; the last carry. `resume` is how a user goes on.

    For the holder of the folder's lock. Raises Interrupted after a signal, when all is saved (at
    the end only if there is `more` to do), and Diverged where the numbers end. `ready` is called
    when the state to go on from is there, before anything is changed. All processes of a `team` do
    the same; the first one writes, and all save.
    """
    resume = f"moml resume {quote(str(folder))}" if resume is None else resume
    path = folder / "metrics.jsonl"
    uses = versions()
    about = {"config": dump(config), "versions": uses}  # now: files may change under a run
    with (
        open_log(folder) if team.leads else nullcontext(),
        how_it_ended(),
        Checkpoints(folder / "checkpoints", config.keep, team) as kept,
        asked_to_stop() as stop,
        job.disk or nullcontext() as disk,
    ):
        team.together("clear", kept.clear if team.leads else nothing)
        usable = lambda info: verify(path, Mark(**info["metrics"])) or (disk and disk.verify(info))
        found = kept.load(jax.eval_shape(job.first), usable, mapped=job.place is not None)
        done, mark = (0, START) if found is None else (found.step, Mark(**found.info["metrics"]))
        if done > job.steps:
            raise ConfigError(f"{folder} is at step {done} already: iterations end at {job.steps}")
        ready()
        carry = _carry(job, found)
        if disk:
            disk.begin(carry, None if found is None else done, shown=progress)
        log.info("%s: from step %d of %d", job.name, done, job.steps)
        if not uses["deterministic"]:
            word = "the last bits may differ from run to run; XLA_FLAGS=%s=true keeps them"
            log.warning(word, DETERMINISTIC[0])
        score_due = max(1, config.score_every // config.log_every) if config.score_every else 0
        board = board and team.leads
        board_ = tensorboard(folder / "tensorboard", done) if board else nullcontext(_unseen)
        lines = Metrics(path, mark) if team.leads else nullcontext()
        note = f"saved at {done}" if done else ""
        clock = time.monotonic()
        progress = progress and team.leads and done < job.steps
        shown = bar(job.name, job.steps, shown=progress, done=done)
        with lines as metrics, board_ as show, shown as advance:
            spent = _spent(path, job, done, leads=team.leads)
            while done < job.steps:
                size = min(job.length, job.steps - done)
                with team.watch():
                    carry, row = job.stretch(carry, done, size)
                done += size
                last = done == job.steps
                now = score_due and (done // job.length) % score_due == 0
                score = np.asarray(job.score(carry), float) if now or last else None
                once = job.method.algorithm.iterations
                counts = {"step": done, "iterations": done * once, "samples": job.samples(done)}
                row = counts | row | {"score": score}
                if job.cost is not None:
                    spent = plus(spent, job.cost(done - size, size))
                    row[COST] = spent._asdict()
                if metrics:
                    metrics.write(row)
                show(row)
                old = time.monotonic() - clock >= config.save_seconds and not kept.busy
                halt, due = _agreed(team, stop(), old)  # what comes later is for the next stretch
                if last or halt or due:
                    info = {"metrics": metrics.sync()._asdict()} | about if metrics else {}
                    if disk:
                        info |= disk.saving(done, kept.good()[-config.keep :])
                    best = job.score(carry) if score is None else score
                    whole = carry if job.place is None else job.place.saved(carry)
                    kept.save(done, whole, info, _least(-best if job.higher else best))
                    note, clock = f"saved at {done}", time.monotonic()
                    log.info("saving step %d of %d", done, job.steps)
                advance(done, _mean(row["loss"]), note)
                if halt and (more or not last):
                    kept.wait()
                    log.info("stopped by signal %d at step %d", halt, done)
                    where = f"stopped at step {done} of {job.steps}, and saved"
                    raise Interrupted(f"{where}; go on with: {resume}", 128 + halt)
            if job.place is not None:
                log.info("%s", job.place.told())
        log.info("%s: done", job.name)
        return carry
