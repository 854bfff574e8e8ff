"""Cells of an experiment in several processes, until a limit of time; each result is kept."""

import argparse
import math
import multiprocessing
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

T, R = TypeVar("T"), TypeVar("R")


def run_all(
    work: Callable[[T], R],
    cells: Sequence[T],
    keep: Callable[[T, R], None],
    *,
    processes: int,
    minutes: float,
) -> None:
    """`keep(cell, work(cell))` for all cells, in their order, until the minutes are over.

    `keep` is called in this process, as soon as a cell is done. What runs at the end is stopped.
    Each cell has a process of its own: compiled programs of many cells fill the address space.
    """
    end = time.monotonic() + 60 * minutes
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes, maxtasksperchild=1) as pool:  # terminated at the end
        waiting = {i: pool.apply_async(work, (cell,)) for i, cell in enumerate(cells)}
        while waiting and time.monotonic() < end:
            for i in [i for i, one in waiting.items() if one.ready()]:
                try:
                    keep(cells[i], waiting.pop(i).get())
                    print(f"{time.strftime('%H:%M:%S')} {cells[i]}", flush=True)
                except Exception as error:  # one cell must not end the others
                    print(f"{cells[i]}: {error!r}", flush=True)
            time.sleep(0.2)
    print(f"{len(waiting)} of {len(cells)} cells are not done", flush=True)


def whole(text: str) -> int:
    """An argument that must be a whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1; got {text}")
    return int(text)


def positive(text: str) -> float:
    """An argument that must be a number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number above 0; got {text}")
    return value
