"""Messages to nodes and their answers; and which node has which partition."""

import logging
import time

from flwr.app import Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from moml.errors import ConfigError, one_line
from moml.flower.app.records import METRICS

log = logging.getLogger("moml")
QUERY = 60.0  # seconds for a node to say which partition it holds
EVERY = 0.3  # seconds between two looks for answers; Flower's own `send_and_receive` takes 3

OWN = (ErrorCode.LOAD_CLIENT_APP_EXCEPTION, ErrorCode.CLIENT_APP_RAISED_EXCEPTION)  # of a node


def exchange(grid: Grid, messages: list[Message], timeout: float) -> list[Message | None]:
    """Return the answer to each message, None where none came in time."""
    end = time.monotonic() + timeout
    open_ = {given for given in grid.push_messages(messages) if given}
    replies: dict[str, Message] = {}
    while open_:
        for reply in grid.pull_messages(open_):
            replies[reply.metadata.reply_to_message_id] = reply
        open_ -= set(replies)
        if open_ and time.monotonic() > end:
            break
        time.sleep(EVERY if open_ else 0)
    return [replies.get(message.metadata.message_id) for message in messages]


class Nodes:
    """Which node has which partition: nodes are asked once, when they are first seen."""

    def __init__(self) -> None:
        self.partitions = 0
        self.reason = "none has answered"  # why the last one was left out
        self._partition_of: dict[int, int | None] = {}  # None: it has none for us

    def holders(self, grid: Grid, timeout: float) -> dict[int, int]:
        """Return partition -> node, of the nodes online now; of two, the one that came last."""
        online = set(grid.get_node_ids())
        new = sorted(online - set(self._partition_of))
        timeout = min(timeout, QUERY)
        messages = [Message(RecordDict(), node, "query", ttl=timeout) for node in new]
        replies = exchange(grid, messages, timeout) if new else []
        for node, reply in zip(new, replies, strict=True):
            lost = reply is None or (reply.has_error() and reply.error.code not in OWN)
            if reply is not None and not lost:  # else it is asked again in the next round
                self._partition_of[node] = self._read(node, reply)
        found = {part: node for node, part in self._partition_of.items() if node in online}
        return {part: node for part, node in found.items() if part is not None}

    def _read(self, node: int, reply: Message) -> int | None:
        try:
            metrics = reply.content.metric_records[METRICS]
            partition, count = (int(str(metrics[f])) for f in ("partition-id", "num-partitions"))
        except (ValueError, KeyError, TypeError):
            reason = reply.error.reason if reply.has_error() else "its answer cannot be read"
            self.reason = one_line(reason)
            log.warning("node %d is left out: %s", node, self.reason)
            return None
        others = self.partitions or count
        if count < 1 or not 0 <= partition < count or others != count:
            words = "node %d is left out: it has partition %d of %d, others are of %d"
            log.warning(words, node, partition, count, others)
            return None
        self.partitions = count
        return partition


def wait(grid: Grid, count: int, timeout: float) -> None:
    """Return when `count` nodes are online."""
    end = time.monotonic() + timeout
    while (there := len(list(grid.get_node_ids()))) < count:
        if time.monotonic() > end:
            raise ConfigError(f"min-nodes = {count}, but after {timeout:g} s there are {there}")
        time.sleep(EVERY)
