"""Processes of a run as threads, for the tests of how they agree."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from moml.runtime.process_group import ProcessGroup


class Words:
    """What JAX's client does with keys and values, for threads."""

    def __init__(self, count):
        self.words, self.changed, self.gone = {}, threading.Condition(), False
        self.barrier = threading.Barrier(count)
        self.end = time.monotonic() + 60  # a test that waits so long has failed

    def key_value_set(self, name, words):
        assert words  # JAX waits for a value that is not empty
        with self.changed:
            assert name not in self.words
            self.words[name] = words
            self.changed.notify_all()

    def blocking_key_value_get(self, name, milliseconds):
        with self.changed:
            if self.gone or not self.changed.wait_for(
                lambda: name in self.words or self.gone, milliseconds / 1000
            ):
                over = self.gone or time.monotonic() > self.end
                raise ValueError("UNAVAILABLE" if over else "DEADLINE_EXCEEDED: too late")
            return self.words[name]

    def key_value_delete(self, name):
        with self.changed:
            del self.words[name]

    def key_value_dir_get(self, name):
        with self.changed:
            return [(at, words) for at, words in self.words.items() if at.startswith(name)]

    def wait_at_barrier(self, name, milliseconds):
        try:
            self.barrier.wait(milliseconds / 1000)
        except threading.BrokenBarrierError as error:
            raise ValueError("DEADLINE_EXCEEDED") from error


def process_groups(count):
    words = Words(count)
    return words, [ProcessGroup(i, count, words) for i in range(count)]


def each(members, part):
    """What every member's thread gives, or raises."""
    with ThreadPoolExecutor(len(members)) as pool:
        jobs = [pool.submit(part, member) for member in members]
        return [job.exception() or job.result() for job in jobs]
