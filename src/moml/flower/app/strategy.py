"""Who is asked in a round, and which answers count.

The mean itself is Flower's unmodified `FedAvg.aggregate_train`, which its wrappers for differential
privacy and its accountant require.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

from moml.errors import ConfigError
from moml.flower.app.nodes import Nodes
from moml.flower.app.records import ARRAYS, CONFIG, problem_of
from moml.flower.app.records import unmoved as is_unmoved
from moml.flower.app.settings import Settings
from moml.types import Meta


class Failure(NamedTuple):
    """Tasks of a round that are not in its mean."""

    partition: int
    tasks: list[int]
    reason: str


class Asked(NamedTuple):
    """A message of a round: to whom, about which tasks."""

    node: int
    partition: int
    tasks: list[int]


class Cohorts(FedAvg):
    """FedAvg whose cohorts are tasks drawn from (seed, round), as the simulator draws them.

    One message a node, with all its tasks of the round; with `alone`, one message a task. With
    `whole`, nobody is asked where somebody cannot be asked.
    """

    def __init__(
        self,
        settings: Settings,
        cohort: Callable[[int], tuple[np.ndarray, np.ndarray]],
        nodes: Nodes,
        run: str,
        heard: np.ndarray,
        *,
        alone: bool = False,
        whole: bool = False,
    ) -> None:
        super().__init__()
        self.timeout, self.action = settings.timeout, settings.action
        self.cohort, self.nodes, self.run, self.heard = cohort, nodes, run, heard
        self.alone, self.whole = alone, whole
        self.asked: list[Asked] = []
        self.failed: list[Failure] = []  # not asked, or without an answer that counts

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Return the messages of a round."""
        ids, present = self.cohort(server_round - 1)
        holders = self.nodes.holders(grid, self.timeout)
        if not self.nodes.partitions:
            raise ConfigError(f"no node says which partition it holds: {self.nodes.reason}")
        self.asked, self.failed = [], []
        for partition, tasks in self._by_partition(ids[present]).items():
            if partition in holders:
                parts = [[task] for task in tasks] if self.alone else [tasks]
                self.asked += [Asked(holders[partition], partition, part) for part in parts]
            else:
                self.failed.append(Failure(partition, tasks, "no node holds this partition"))
        for partition, tasks in self._by_partition(ids[~present]).items():
            self.failed.append(Failure(partition, tasks, "dropped out, as drawn"))
        if self.whole and self.failed:
            short = "not asked: with privacy a round has all its clients or none"
            self.failed += [Failure(each.partition, each.tasks, short) for each in self.asked]
            self.asked = []
        messages, group = [], str(server_round)
        for node, _, tasks in self.asked:
            ask = ConfigRecord({**config, "server-round": server_round, "run": self.run})
            ask["tasks"], ask["heard"] = tasks, self.heard[tasks].tolist()
            content = RecordDict({ARRAYS: arrays, CONFIG: ask})
            messages.append(Message(content, node, self.action, ttl=self.timeout, group_id=group))
        return messages

    def _by_partition(self, ids: np.ndarray) -> dict[int, list[int]]:
        of = ids % self.nodes.partitions
        return {int(part): ids[of == part].tolist() for part in np.unique(of)}

    def sifted(
        self, replies: list[Message | None], meta: Meta, *, weighted: bool, unmoved: bool
    ) -> list[tuple[Asked, Message]]:
        """Return the answers that can go into the mean, with `unmoved` also of the same model."""
        good = []
        for each, reply in zip(self.asked, replies, strict=True):
            reason: str | None = f"no answer within {self.timeout:g} s"
            if reply is not None:
                reason = problem_of(reply, meta, None if weighted else len(each.tasks))
                if reason is None and not unmoved and is_unmoved(reply, meta):
                    reason = "its model is the one it was sent: there is nothing to clip"
                if reason is None:
                    good.append((each, reply))
            if reason is not None:
                self.failed.append(Failure(each.partition, each.tasks, reason))
        return good
