"""A federation of real processes on this machine, for a test."""

import json
import os
import time
from contextlib import contextmanager
from pathlib import Path

import jax
import numpy as np

from moml.cli import run as moml
from moml.config.toml import dump
from moml.flower.local.folder import places_of
from moml.flower.local.run import rounds
from tests.flower.common import model, simulated
from tests.support.processes import begun, ended, finished


class Federation:
    """The folder of one, and its commands."""

    def __init__(self, folder):
        self.places = places_of(folder)
        self.moml = lambda *words: ("flower", words[0], folder, *words[1:])

    def does(self, *words):
        """A command that is to succeed: its output, and its errors."""
        return finished(*self.moml(*words))

    def fails(self, *words):
        """A command that is not: its exit code, and its errors."""
        process = begun(*self.moml(*words))
        _, error = ended(process)
        return process.returncode, error

    def begins(self, *words):
        """A command under way."""
        return begun(*self.moml(*words))

    def pid(self, name):
        return json.loads((self.places.home / "up.json").read_text())["processes"][name][0]

    def log(self, name):
        return (self.places.home / "logs" / f"{name}.log").read_text()

    @property
    def out(self):
        """The folder of the newest run."""
        return max(self.places.runs.iterdir())

    @property
    def rounds(self):
        return rounds(self.out) if self.places.runs.exists() else []

    def waits(self, process, condition):
        """Until it is so, while this process runs."""
        deadline = time.monotonic() + 240
        while not condition():
            assert process.poll() is None, ended(process)
            assert time.monotonic() < deadline
            time.sleep(0.1)


@contextmanager
def federation(folder, config, *options, change=lambda places: None):
    """One that is up, and down again after the test, with nothing left of it."""
    mine = folder.with_suffix(".toml")
    mine.write_text(dump(config))
    own = Federation(folder)
    moml(["flower", "init", str(folder), "--config", str(mine)])
    change(own.places)
    try:
        own.does("up", *options)
        yield own
    finally:
        own.does("down")
    assert processes_of(folder) == []


def processes_of(folder):
    """All processes that know this folder as Flower's home, whoever has started them."""
    word, found = f"FLWR_HOME={folder / '.flower'}".encode(), []
    for place in Path("/proc").iterdir():
        if place.name.isdigit() and int(place.name) != os.getpid():
            try:
                if word in (place / "environ").read_bytes().split(b"\0"):
                    found.append((place / "cmdline").read_bytes())
            except OSError:
                continue
    return found


def equal_to_the_simulator(out, config, rtol=1e-5):
    """A run's last model is the simulator's, to the rounding of float32; returns its losses."""
    with jax.enable_x64(False):  # as the processes have it
        expected, losses = simulated(config)[:2]
        mine = model(config, out)
    for one, two in zip(mine, expected, strict=True):
        assert one.dtype == two.dtype == np.float32
        np.testing.assert_allclose(one, two, rtol=rtol, atol=rtol / 10)
    return losses
