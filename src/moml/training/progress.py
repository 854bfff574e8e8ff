"""Progress of long work: a bar on a terminal, a line now and then elsewhere."""

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from moml.runtime import compiling

Advance = Callable[..., None]  # steps done, loss if there is one, a note such as the last save
EVERY = 5.0  # seconds between two lines


@contextmanager
def bar(what: str, total: int, *, shown: bool, done: int = 0) -> Iterator[Advance]:
    """Show `total` steps of `what`, `done` already, on standard error; nothing unless `shown`."""
    worked = lambda: time.monotonic() - compiling.spent()  # seconds
    first, began = done, [(done, worked())]

    def rate(done: int) -> tuple[float, bool]:
        """Steps a second, and whether to trust it: programs are traced before the first call."""
        start, at = began[-1]
        speed = (done - start) / max(worked() - at, 1e-9)
        if len(began) == 1:
            began.append((done, worked()))
            return speed, done == total
        return speed, True

    text = lambda loss: "" if math.isnan(loss) else f"loss {loss:.4g}"
    if not shown:
        yield lambda done, loss=math.nan, note="": None
    elif not sys.stderr.isatty():
        with compiling.shown(compiling.line(f"{what}: ")):
            yield _lines(what, total, rate, text)
    else:
        from rich import progress
        from rich.console import Console

        columns = (
            progress.TextColumn(f"{what:<14}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TextColumn("{task.fields[rate]}/s  {task.fields[loss]}"),
            progress.TextColumn("{task.fields[left]}"),
            progress.TextColumn("{task.fields[note]}"),
        )
        with progress.Progress(*columns, console=Console(stderr=True)) as rich:
            task = rich.add_task(
                what, total=total, completed=first, loss="", note="", rate="-", left=""
            )
            last = ""

            def advance(done: int, loss: float = math.nan, note: str = "") -> None:
                nonlocal last
                (speed, sure), last = rate(done), note
                left = _left(total - done, speed) if sure else ""
                said = f"{speed:.0f}"
                rich.update(task, completed=done, loss=text(loss), note=note, rate=said, left=left)
                compiling.moved()

            def wait(compiles: bool) -> None:
                rich.update(task, note=compiling.TEXT if compiles else last)

            with compiling.shown(wait):
                yield advance


def _left(steps: int, speed: float) -> str:
    """The time that is left, by the speed so far; compilation does not count.

    >>> _left(30, 2.0)
    '15 s left'
    """
    return f"{steps / speed if speed else math.inf:.0f} s left"


def _lines(
    what: str, total: int, rate: Callable[[int], tuple[float, bool]], text: Callable[[float], str]
) -> Advance:
    last = time.monotonic()

    def advance(done: int, loss: float = math.nan, note: str = "") -> None:
        nonlocal last
        speed, sure = rate(done)
        if done == total or time.monotonic() - last > EVERY:
            last = time.monotonic()
            left = _left(total - done, speed) if sure else ""
            parts = [f"{done}/{total}", f"{speed:.0f}/s", text(loss), left, note]
            print(f"{what}: {', '.join(filter(None, parts))}", file=sys.stderr, flush=True)
            compiling.moved()

    return advance
