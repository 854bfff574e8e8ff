"""The processes of one run, and how they agree: by words through JAX's coordinator."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from typing import Any, TypeVar

from moml.errors import LostProcess, MomlError, OtherFailed

PATIENCE = 3600.0  # seconds that the slowest process may be behind
GLANCE = 1000  # milliseconds between two looks at whether all is lost
END = "moml/end"
T = TypeVar("T")
SIGNS = ("Gloo", "NCCL", "Connection", "UNAVAILABLE", "DEADLINE_EXCEEDED", "heartbeat")


class Team:
    """Process `process` of `processes`; without a client, one that is alone.

    Devices take no part in what is said here, so that threads may speak, each on its own topic.

    >>> ALONE.exchange("colour", "blue")
    ['blue']
    """

    def __init__(self, process: int = 0, processes: int = 1, client: Any = None):
        self.process, self.processes = process, processes
        self._client = client
        self._count: Counter[str] = Counter()
        self._lost = Event()

    @property
    def leads(self) -> bool:
        """Whether this is the process that prints and writes."""
        return self.process == 0

    def exchange(self, topic: str, words: str) -> list[str]:
        """What every process says on a topic, by process; all wait for all."""
        if self._client is None:
            return [words]
        at = self._count[topic]
        self._count[topic] += 1
        name = lambda at, process: f"moml/{topic}/{at}/{process}"
        try:
            self._client.key_value_set(name(at, self.process), f".{words}")  # never empty
            found = [self._get(name(at, process)) for process in range(self.processes)]
            if at:  # all have read what was said before
                self._client.key_value_delete(name(at - 1, self.process))
        except MomlError:
            raise
        except (RuntimeError, ValueError) as error:  # what JAX raises differs by version
            raise self.lost(error) from error
        return [words.removeprefix(".") for words in found]

    def _get(self, name: str) -> str:
        end, ended = time.monotonic() + PATIENCE, ""
        while True:
            try:
                return self._client.blocking_key_value_get(name, GLANCE)
            except MomlError:
                raise
            except (RuntimeError, ValueError) as error:
                late = "DEADLINE_EXCEEDED" in str(error) and time.monotonic() < end
                if self._lost.is_set() or not late:
                    raise
            if ended:  # before we last looked: nothing more will be said
                raise OtherFailed(ended)
            for at, words in self._client.key_value_dir_get(f"{END}/"):
                ended = f"process {at.rpartition('/')[2]}: {words}"

    def agree(self, topic: str, words: str) -> str:
        """What the first process says."""
        return self.exchange(topic, words)[0]

    def together(self, topic: str, part: Callable[[], T]) -> T:
        """What a part gives, when all processes have done theirs; one that fails fails for all."""
        try:
            done = part()
        except Exception as error:
            self.exchange(topic, str(error) or repr(error))
            raise
        for process, words in enumerate(self.exchange(topic, "")):
            if words:
                raise OtherFailed(f"process {process}: {words}")
        return done

    def all_end(self, why: str = "", seconds: float = 60.0) -> bool:
        """Whether all processes come to their end within some seconds; `why` is for the others."""
        try:
            if why:
                self._client.key_value_set(f"{END}/{self.process}", why)
            self._client.wait_at_barrier(END, int(1000 * seconds))
        except MomlError:
            raise
        except (RuntimeError, ValueError):
            return False
        return True

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Tell a computation that fails because another process is gone from one that fails."""
        try:
            yield
        except MomlError:
            raise
        except (RuntimeError, ValueError) as error:
            if self._client is None or not any(word in str(error) for word in SIGNS):
                raise
            raise self.lost(error) from error

    def lost(self, error: BaseException) -> LostProcess:
        """What to raise where another process no longer answers."""
        self._lost.set()
        reason = " ".join(str(error).split())[:160]
        mine = f"process {self.process} of {self.processes} stops: another one was lost"
        return LostProcess(f"{mine} ({reason}); what was saved last is good")


def nothing() -> None:
    """The part of those who have none."""


ALONE = Team()
