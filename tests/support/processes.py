"""Runs in processes of their own, and what they leave, for the tests of runs and sweeps."""

import os
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np

from moml.runs.job import many, plan_of, single
from moml.runs.record import record_of
from moml.storage.checkpoint import Checkpoints
from moml.training.sweep import grid_of

MOML = "from moml.cli import main; main()"


def environment(**given):
    """That of a process of moml, which shares compiled programs with this one."""
    return os.environ | {"JAX_PLATFORMS": "cpu"} | given


def begun(*words, script=MOML, **given):
    """A process of moml, under way."""
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**given),
    )


def ended(process):
    """Its output and its errors, once it is over."""
    try:
        return process.communicate(timeout=300)
    finally:
        process.kill()


def finished(*words, **given):
    """A process of moml that is to succeed."""
    process = begun(*words, **given)
    out, error = ended(process)
    assert process.returncode == 0, error
    return out, error


def until(process, condition, seconds=240.0):
    """Wait for a condition; False where the process ends before, an error where neither comes."""
    deadline = time.monotonic() + seconds
    while not condition():
        if process.poll() is not None:
            return False
        assert time.monotonic() < deadline, "neither did it come so far, nor did it end"
        time.sleep(0.0005)
    return True


def names(folder, pattern):
    return [path.name for path in Path(folder).glob(pattern)]


def lines(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


def last_state(folder, part=None):
    """Every leaf of a run's last checkpoint, or of a sweep's part: its name, type, shape, bytes."""
    record, config = record_of(folder)
    if part is None:
        job = single(config)
    else:
        at = part * record["members"]
        settings = grid_of(record["grid"], record["seeds"])[at : at + record["members"]]
        job = many(config, settings, plan_of(config))
        folder = folder / f"part-{part:03d}"
    found = Checkpoints(folder / "checkpoints").load(job.execution.shapes())
    assert found.step == job.plan.steps
    leaves = jax.tree_util.tree_leaves_with_path(found.state)
    told = lambda leaf: (str(leaf.dtype), leaf.shape, np.asarray(leaf).tobytes())
    return {jax.tree_util.keystr(at): told(leaf) for at, leaf in leaves}
