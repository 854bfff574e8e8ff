"""Differential privacy by Flower's own wrappers, and what it has cost by Flower's accountant."""

import hashlib
import json
import os
from pathlib import Path

import numpy as np
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideFixedClipping,
    Strategy,
)
from flwr.supercore.privacy_accounting import (
    GaussianPrivacyEvent,
    NeighboringRelation,
    PrivacyConfig,
    SamplingMethod,
)
from flwr.supercore.privacy_accounting.rdp_accountant import RdpAccountant

from moml.atomic import open_plain
from moml.errors import CheckpointError, ConfigError
from moml.flower.app.settings import Privacy
from moml.flower.app.strategy import Cohorts
from moml.storage.files import write_text
from moml.storage.manifest import sync_folder

CENTRAL = {
    "server": DifferentialPrivacyServerSideFixedClipping,
    "client": DifferentialPrivacyClientSideFixedClipping,
}


class Ledger:
    """A run's privacy: the strategy with its noise, and each client's releases, kept in a file.

    Central: a mean that is released counts for every client. Local: a request counts for its own
    client, as the server may have seen the answer even if it is late, refused or lost. Both are on
    disk before they happen, so a run that was killed has at most counted too many.
    """

    def __init__(self, privacy: Privacy, n: int, clients: int, path: Path, begun: bool) -> None:
        self.privacy, self.clients, self.path = privacy, clients, path
        self.releases = np.zeros(n, np.int64)  # of each client
        if begun or os.path.lexists(path):
            self.releases = self._read()

    @property
    def asks(self) -> dict[str, bool]:
        """Options of `Cohorts`: each client is asked, and clipped, by itself."""
        return {"alone": True, "whole": self.privacy.where in CENTRAL}

    @property
    def epsilon(self) -> float:
        """Of the client with the most releases."""
        privacy = self.privacy
        return epsilon_after(int(self.releases.max()), privacy.noise_multiplier, privacy.delta)

    def wrapped(self, cohorts: Cohorts) -> Strategy:
        """Return the strategy, private where that is the server's part."""
        if self.privacy.where not in CENTRAL:
            return cohorts
        numbers = (self.privacy.noise_multiplier, self.privacy.clipping_norm, self.clients)
        strict = accountant(self.privacy.delta, len(self.releases))  # with it: all clients or none
        return CENTRAL[self.privacy.where](cohorts, *numbers, accountant=strict)

    def before_asking(self, tasks: list[int]) -> None:
        """Count the answers that these clients may send."""
        if self.privacy.where not in CENTRAL:
            self._count(tasks)

    def before_release(self) -> None:
        """Count a mean that is about to be released."""
        if self.privacy.where in CENTRAL:
            self._count(list(range(len(self.releases))))

    def _count(self, tasks: list[int]) -> None:
        self.releases[tasks] += 1
        counts = self.releases.tolist()
        text = json.dumps({"releases": counts, "sha256": _digest(counts)})
        write_text(text + "\n", self.path)
        sync_folder(self.path.parent)

    def _read(self) -> np.ndarray:
        try:
            with open_plain(self.path) as file:
                kept = json.load(file)
            found = np.array(kept["releases"])
            if kept["sha256"] != _digest(kept["releases"]):
                raise ValueError("it was changed: its SHA-256 is not the one in it")
            if found.shape != self.releases.shape or found.dtype != np.int64 or found.min() < 0:
                raise ValueError(f"it must have {self.releases.size} counts")
        except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
            raise CheckpointError(
                f"cannot read {self.path}, without which epsilon is not known: {error}"
            ) from error
        return found


def _digest(counts: list[int]) -> str:
    return hashlib.sha256(json.dumps(counts).encode()).hexdigest()


def accountant(delta: float, n: int) -> RdpAccountant:
    """Return Flower's accountant for a population of n, without amplification by sampling."""
    relation, sampling = NeighboringRelation.ADD_OR_REMOVE_ONE, SamplingMethod.NO_AMPLIFICATION
    try:
        return RdpAccountant(PrivacyConfig(delta, n, relation, sampling))
    except ImportError as error:
        raise ConfigError("privacy needs an accountant: pip install 'moml[flower]'") from error


def epsilon_after(releases: int, noise_multiplier: float, delta: float = 1e-5) -> float:
    """Return epsilon after some releases with this noise.

    >>> [round(epsilon_after(10, noise), 1) for noise in (1, 2, 4, 8)]
    [19.1, 8.1, 3.6, 1.7]
    """
    if not releases:
        return 0.0
    spent = accountant(delta, 1)
    spent.compose(GaussianPrivacyEvent(noise_multiplier, 1, 1), releases)
    return spent.get_privacy_spent().epsilon
