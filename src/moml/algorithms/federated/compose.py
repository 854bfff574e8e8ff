"""From a federated method's keywords to the method."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from moml.algorithms.federated.client import Update
from moml.algorithms.federated.rounds import rounds
from moml.algorithms.method import Method, Work
from moml.algorithms.parts.adapt import Leaves, no_leaves
from moml.algorithms.parts.choices import Sampling
from moml.algorithms.parts.memory import none
from moml.algorithms.signature import Adaptation, Below1, Count, Group, Probability
from moml.errors import ConfigError
from moml.types import Hyper, Meta, SampleSpec


@dataclass(frozen=True)
class Participation(Group):
    """What a client does in a round, who answers, and how many clients run side by side."""

    local_steps: Count = 5
    local_epochs: Count | None = None
    batch_size: Count | None = None
    dropout: Below1 = 0.0
    straggle: Probability = 0.0
    weighted: bool = False
    at_once: Count | None = None

    def k(self, batch: Sampling) -> int:
        """Samples of S1: k, which is also called batch_size here."""
        if self.batch_size is not None and batch.k not in (Sampling.k, self.batch_size):
            raise ConfigError(
                f"k and batch_size are the same number; got {batch.k} and {self.batch_size}"
            )
        return self.batch_size or batch.k

    def samples(self, batch: Sampling) -> SampleSpec:
        """What the clients of a round draw: S1 of k samples in each local step."""
        if self.straggle and self.local_epochs is None and self.local_steps == 1:
            raise ConfigError("straggle needs local_steps of at least 2; got local_steps = 1")
        return SampleSpec(
            batch.size, support=self.k(batch), epochs=self.local_epochs,
            visits=self.local_steps if self.local_epochs is None else None,
            dropout=self.dropout, straggle=self.straggle, weighted=self.weighted,
        )  # fmt: skip


def federated(
    adaptation: Adaptation,
    update: Update,
    hyper: Hyper,
    batch: Sampling,
    clients: Participation,
    *,
    inner_steps: int = 1,
    work: Work = Work(1),  # noqa: B008
    query: bool = False,
    hessian: bool = False,
    restart: int = 0,
    begin: Callable[[Meta], Any] | None = None,
    private: Leaves = no_leaves,
    **parts: Any,
) -> Method:
    """A method of rounds with this client update; further parts are those of `rounds`.

    Parameters
    ----------
    adaptation
        How the model adapts when it is used.
    update
        A client's round.
    hyper
        The method's numbers.
    batch, clients
        Its groups of keywords.
    inner_steps
        Steps of the adaptation, where the model has a step size for each.
    work
        What a local step costs.
    query, hessian
        Whether local steps draw S3 and S2 besides S1, of as many samples.
    restart
        Samples of S0, drawn once a round.
    begin, private, **parts
        As of `rounds`.

    Returns
    -------
    Method
        The composed method.
    """
    k = clients.k(batch)
    need = clients.samples(batch)._replace(
        query=k if query else 0, hessian=k if hessian else 0, restart=restart
    )
    keeps = begin is not None or private is not no_leaves
    algorithm = rounds(
        adaptation(inner_steps).init, update, need, n=batch.count if keeps else None,
        begin=begin, private=private, at_once=clients.at_once, **parts,
    )  # fmt: skip
    memory = none() if algorithm.rounds is None else algorithm.rounds.memory
    used = {"tasks_per_step": batch.size, "k": k}
    return Method(algorithm, adaptation, hyper, memory, work, used)
