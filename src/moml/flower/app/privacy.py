"""Differential privacy by Flower's own wrappers, and what it has cost by Flower's accountant."""

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

from moml.errors import ConfigError
from moml.flower.app.settings import Privacy
from moml.flower.app.strategy import Cohorts
from moml.types import Record

CENTRAL = {
    "server": DifferentialPrivacyServerSideFixedClipping,
    "client": DifferentialPrivacyClientSideFixedClipping,
}


class Ledger:
    """A run's privacy: the strategy with its noise, and epsilon by the rounds so far.

    Central: each mean that is released counts, whoever took part. Local: each answer counts for its
    own client, and epsilon is that of the client that has answered most often.
    """

    def __init__(self, privacy: Privacy, n: int, clients: int) -> None:
        self.privacy, self.clients = privacy, clients
        self.answers = np.zeros(n, np.int64)  # of each task
        self.accountant = accountant(privacy.delta, n)  # of the server's means

    @property
    def asks(self) -> dict[str, bool]:
        """Options of `Cohorts`: each client is asked, and clipped, by itself."""
        return {"alone": True, "whole": self.privacy.where in CENTRAL}

    def wrapped(self, cohorts: Cohorts) -> Strategy:
        """Return the strategy, private where that is the server's part."""
        if self.privacy.where not in CENTRAL:
            return cohorts
        numbers = (self.privacy.noise_multiplier, self.privacy.clipping_norm, self.clients)
        return CENTRAL[self.privacy.where](cohorts, *numbers, accountant=self.accountant)

    def count(self, tasks: list[int]) -> float:
        """Return epsilon after a round that these tasks answered; a wrapper counts by itself."""
        self.answers[tasks] += 1
        if self.privacy.where in CENTRAL:
            return _spent(self.accountant)
        return epsilon_after(
            int(self.answers.max()), self.privacy.noise_multiplier, self.privacy.delta
        )

    def state(self) -> Record:
        """Return what a checkpoint keeps."""
        return {"accountant": self.accountant.state_dict(), "answers": self.answers.tolist()}

    def load(self, state: Record) -> None:
        """Restore from a checkpoint."""
        self.accountant.load_state_dict(state["accountant"])
        self.answers = np.array(state["answers"], np.int64)


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
    spent = accountant(delta, 1)
    if releases:
        spent.compose(GaussianPrivacyEvent(noise_multiplier, 1, 1), releases)
    return _spent(spent)


def _spent(accountant: RdpAccountant) -> float:
    spent = accountant.get_privacy_spent()
    return spent.epsilon if spent.num_releases else 0.0
