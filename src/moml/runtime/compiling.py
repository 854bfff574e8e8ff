"""Compilation of commands in a thread: meanwhile signals are handled, and a line says what happens.

XLA compiles in one call into C++, which Python cannot interrupt. Inside `interruptible`, JAX makes
this call, which reads no setting of its thread, in another thread, and the main thread waits.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from functools import partial
from typing import ParamSpec, TypeVar

from jax._src import compiler

P, T = ParamSpec("P"), TypeVar("T")
Display = Callable[[bool], None]  # is called with True while it compiles, with False after that
CALL = "backend_compile_and_load"
TEXT = "compiling ..."
AFTER = 1.0  # seconds without movement before a line is shown


class _State:
    """What this process compiles."""

    threads = 0  # that compile
    waits = False  # whether the main thread waits for one of them
    since: float | None = None  # when the first compilation after the last movement began
    lock = threading.Lock()


def line(prefix: str = "") -> Display:
    """Display by a line on standard error, one until something moves again."""
    said: float | None = None

    def display(compiles: bool) -> None:
        nonlocal said
        if compiles and said != _State.since:
            said = _State.since
            print(f"{prefix}{TEXT}", file=sys.stderr, flush=True)

    return display


_displays: list[Display] = [line()]


@contextmanager
def interruptible() -> Iterator[None]:
    """Compile in threads; where JAX has no such call, it compiles as before."""
    usual = getattr(compiler, CALL, None)
    if usual is not None:
        setattr(compiler, CALL, in_thread(usual))
    moved()
    try:
        yield
    finally:
        if usual is not None:
            setattr(compiler, CALL, usual)


def waits() -> bool:
    """Whether the main thread waits for the compiler, and so can be interrupted."""
    return _State.waits


def busy() -> bool:
    """Whether a thread is inside the compiler: the process can then only end by `os._exit`."""
    return _State.threads > 0


def moved() -> None:
    """Note that something was shown: a line is shown when nothing was for a second."""
    _State.since = None


@contextmanager
def shown(display: Display) -> Iterator[None]:
    """Show compilations by `display` instead of by a line."""
    _displays.append(display)
    moved()
    try:
        yield
    finally:
        _displays.remove(display)
        moved()


def in_thread(call: Callable[P, T]) -> Callable[P, T]:
    """A function that calls another one in a thread, and waits for it where signals are handled."""

    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        answer: Future[T] = Future()

        def work() -> None:
            try:
                value = call(*args, **kwargs)
                finish = partial(answer.set_result, value)
            except BaseException as error:
                finish = partial(answer.set_exception, error)
            with _State.lock:
                _State.threads -= 1
            finish()

        with _State.lock:
            _State.threads += 1
        if threading.current_thread() is threading.main_thread():
            _wait(threading.Thread(target=work, daemon=True), answer)
        else:
            work()  # whoever waits for this thread can be interrupted
        return answer.result()

    return wrapped


def _wait(thread: threading.Thread, answer: "Future[T]") -> None:
    """Wait in the main thread for another one; say so where nothing has moved for a while."""
    if _State.since is None:
        _State.since = time.monotonic()
    display, said = _displays[-1], False
    _State.waits = True
    try:
        thread.start()
        while True:
            left = None if said else max(0.0, _State.since + AFTER - time.monotonic())
            if wait([answer], left).done:
                return
            display(True)
            said = True
    finally:
        _State.waits = False
        if said:
            display(False)
