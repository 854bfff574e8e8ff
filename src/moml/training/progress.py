"""Progress of long work: a bar on a terminal, a line now and then elsewhere."""

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[..., None]  # steps done, loss now if any, a note such as the last checkpoint


@contextmanager
def bar(what: str, total: int, *, shown: bool, done: int = 0) -> Iterator[Advance]:
    """Show `total` steps of `what`, `done` already, on standard error; nothing unless `shown`."""
    if not shown:
        yield lambda done, loss=math.nan, note="": None
    elif sys.stderr.isatty():
        with _rich(what, total, done) as advance:
            yield advance
    else:
        yield _lines(what, total, done)


@contextmanager
def _rich(what: str, total: int, first: int) -> Iterator[Advance]:
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn(f"{what:<14}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TextColumn("{task.fields[rate]}/s{task.fields[loss]}"),
        progress.TimeRemainingColumn(),
        progress.TextColumn("{task.fields[note]}"),
    )
    began = time.monotonic()
    with progress.Progress(*columns, console=Console(stderr=True)) as shown:
        task = shown.add_task(what, total=total, completed=first, loss="", note="", rate="-")

        def advance(done: int, loss: float = math.nan, note: str = "") -> None:
            rate = f"{(done - first) / max(time.monotonic() - began, 1e-9):.0f}"
            told = "" if math.isnan(loss) else f"  loss {loss:.4g}"
            shown.update(task, completed=done, loss=told, note=note, rate=rate)

        yield advance


def _lines(what: str, total: int, first: int, every: float = 5.0) -> Advance:
    began = last = time.monotonic()

    def advance(done: int, loss: float = math.nan, note: str = "") -> None:
        nonlocal last
        now = time.monotonic()
        if done == total or now - last > every:
            last = now
            rate = (done - first) / max(now - began, 1e-9)
            left = (total - done) / rate if rate else math.inf
            told = "" if math.isnan(loss) else f"loss {loss:.4g}"
            words = [f"{done}/{total}", f"{rate:.0f}/s", told, f"{left:.0f} s left", note]
            line = f"{what}: {', '.join(filter(None, words))}"
            print(line, file=sys.stderr, flush=True)

    return advance
