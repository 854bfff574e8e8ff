"""Progress of long work: a bar on a terminal, a line now and then elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int, float], None]  # steps done, loss now


@contextmanager
def bar(what: str, total: int, *, shown: bool) -> Iterator[Advance]:
    """Show `total` steps of `what` on standard error; nothing at all unless `shown`."""
    if not shown:
        yield lambda done, loss: None
    elif sys.stderr.isatty():
        with _rich(what, total) as advance:
            yield advance
    else:
        yield _lines(what, total)


@contextmanager
def _rich(what: str, total: int) -> Iterator[Advance]:
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn(f"{what:<14}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TextColumn("loss {task.fields[loss]:.4g}"),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=Console(stderr=True)) as shown:
        task = shown.add_task(what, total=total, loss=float("nan"))
        yield lambda done, loss: shown.update(task, completed=done, loss=loss)


def _lines(what: str, total: int, every: float = 5.0) -> Advance:
    began = last = time.monotonic()

    def advance(done: int, loss: float) -> None:
        nonlocal last
        now = time.monotonic()
        if done == total or now - last > every:
            last = now
            left = (now - began) * (total - done) / done
            line = f"{what}: {done}/{total}, loss {loss:.4g}, {left:.0f} s left"
            print(line, file=sys.stderr, flush=True)

    return advance
