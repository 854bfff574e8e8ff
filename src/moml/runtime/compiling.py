"""Compilation of commands in threads: meanwhile signals are handled, and a line says what happens.

XLA compiles in one call into C++, which Python cannot interrupt. Inside `interruptible`, JAX makes
this call, which reads no setting of its thread, in another thread, and the main thread waits.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

import jax
from jax._src import compiler
from jax.stages import Compiled, Lowered, Wrapped

P, T = ParamSpec("P"), TypeVar("T")
Display = Callable[[bool], None]  # is called with True while it compiles, with False after that
CALL = "backend_compile_and_load"
TEXT = "compiling ..."
AFTER = 1.0  # seconds without movement before it is shown


class _State:
    """What this process compiles."""

    threads = 0  # inside the compiler
    waits = False  # whether the main thread waits for one of them
    since: float | None = None  # when the first compilation after the last movement began
    shown = False
    begun = 0.0  # when the first of the threads began
    spent = 0.0  # seconds in which a thread compiled, before that
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


def spent() -> float:
    """Seconds of this process in which something was compiled inside `interruptible`."""
    with _State.lock:
        return _State.spent + (time.monotonic() - _State.begun if _State.threads else 0.0)


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


class Threads(ThreadPoolExecutor):
    """A pool for programs that are compiled side by side; Ctrl-C does not wait for them."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        """End the threads."""
        self.shutdown(wait=not isinstance(error, KeyboardInterrupt), cancel_futures=True)
        return None


def quick_jit(function: Callable[..., object], level: int = 1, **options: Any) -> Wrapped:
    """Jit with less optimisation of machine code, 0 to 3: it compiles in half the seconds.

    The level is that of XLA_FLAGS, if it is set there; other devices than CPUs have their own.
    """
    name = "xla_backend_optimization_level"
    ours = jax.default_backend() == "cpu" and name not in os.environ.get("XLA_FLAGS", "")
    return jax.jit(function, compiler_options={name: level} if ours else None, **options)


def compile_all(*programs: Lowered) -> list[Compiled]:
    """Compile lowered programs side by side; jitted functions find them when they are called."""
    with _waiting(), Threads(len(programs)) as pool:
        return list(pool.map(lambda program: program.compile(), programs))


@contextmanager
def _waiting() -> Iterator[None]:
    """Note that the main thread waits for the compiler."""
    main = threading.current_thread() is threading.main_thread()
    if main:
        _State.waits = True
    try:
        yield
    finally:
        if main:
            _State.waits = False


def in_thread(call: Callable[P, T]) -> Callable[P, T]:
    """A function that calls another one in a thread, and waits for it where signals are handled.

    In other threads than the main one, which handles no signals, it only shows what happens.
    """

    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        if threading.current_thread() is not threading.main_thread():
            with _timed():
                return call(*args, **kwargs)
        answer: Future[T] = Future()

        def work() -> None:
            try:
                with _timed():
                    finish = partial(answer.set_result, call(*args, **kwargs))
            except BaseException as error:
                finish = partial(answer.set_exception, error)
            finish()

        with _waiting():
            threading.Thread(target=work, daemon=True).start()
            return answer.result()

    return wrapped


@contextmanager
def _timed() -> Iterator[None]:
    """Count a thread that compiles; show it where nothing has moved for a while."""
    display = _displays[-1]

    def show() -> None:
        with _State.lock:
            if _State.threads and display in _displays:  # it may have ended meanwhile
                _State.shown = True
                display(True)

    with _State.lock:
        _State.begun = _State.begun if _State.threads else time.monotonic()
        _State.threads += 1
        _State.since = _State.since or time.monotonic()
        timer = threading.Timer(max(0.0, _State.since + AFTER - time.monotonic()), show)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        with _State.lock:
            _State.threads -= 1
            _State.spent += 0.0 if _State.threads else time.monotonic() - _State.begun
            if _State.shown and not _State.threads:
                _State.shown = False
                display(False)
