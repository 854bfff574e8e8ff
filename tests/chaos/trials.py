"""Trials of commands that write: killed, without space, beside another command; then done again.

Each trial ends with the files of a command that nothing happened to, or it is a loss.
"""

import pickle
import random
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from moml.atomic import atomic_write
from tests.chaos.children import End, Fate, begin, end, moml
from tests.chaos.made import ARROW, DISK, GRID, RUN, WHO, Content, page, progress, trained, tree

Words = tuple[object, ...]


class Command(NamedTuple):
    """A command, on copies of what was made; `{x}` in its words is the folder or file x."""

    words: Words
    again: Words = ()  # what continues it, if it has made its folder; else the same words
    sources: tuple[str, ...] = ()  # what is copied
    result: Callable[[Path], Content] = tree  # of `out`
    out: str = "out"
    done: str = "\0"  # said in an error if all was done before
    beside: tuple[Words, ...] = ()  # commands of a second process


TABLE = ("--data", "{rows.csv}", "--task", "person", "--target", "y", "--seed", "0")
RESUME = ("resume", "{out}")
READ = (("score", "{out}"), ("report", "{out}", "--out", "{two.html}"), RESUME)
READ_TABLE = (
    ("predict", "{table}", "--data", "{rows.csv}", "--out", "{two.csv}"),
    ("export", "{table}", "--out", "{two}"),
    ("adapt", "{table}", "--data", "{new.csv}", "--out", "{two}"),
)
COMMANDS = {
    "train": Command(("train", *RUN, "--out", "{out}"), RESUME, result=trained, beside=READ),
    "train, disk": Command(("train", *DISK, "--out", "{out}"), RESUME, result=trained, beside=READ),
    "resume": Command(("resume", "{run-half}"), out="run-half", sources=("run-half",),
                      result=trained, beside=(("score", "{run-half}"), ("resume", "{run-half}"))),
    "resume, disk": Command(("resume", "{disk-half}"), out="disk-half", sources=("disk-half",),
                            result=trained, beside=(("resume", "{disk-half}"),)),
    "sweep": Command(("sweep", *RUN, *GRID, "--out", "{out}"), RESUME, result=trained,
                     beside=(RESUME, ("report", "{out}", "--out", "{two.html}"))),
    "forget memories": Command(("forget", "{run}", "--task", "1"), sources=("run",), out="run",
                               beside=(("resume", "{run}"), ("score", "{run}"))),
    "forget, disk": Command(("forget", "{disk}", "--task", "1"), sources=("disk",), out="disk",
                            result=trained, beside=(("resume", "{disk}"),)),
    "table train": Command(("train", *TABLE, "--out", "{out}"), sources=("rows.csv",)),
    "adapt": Command(("adapt", "{table}", "--data", "{new.csv}", "--out", "{out}"),
                     sources=("table", "new.csv")),
    "from": Command(("train", "--data", "{new.csv}", "--from", "{table}", "--out", "{out}"),
                    sources=("table", "new.csv")),
    "predict": Command(("predict", "{table}", "--data", "{rows.csv}", "--out", "{out.csv}"),
                       sources=("table", "rows.csv"), out="out.csv"),
    "export": Command(("export", "{table}", "--out", "{out}"), sources=("table",)),
    "forget": Command(("forget", "{table}", "--task", WHO), out="table",
                      sources=("table", "rows.csv", "new.csv"), done="has no task",
                      beside=READ_TABLE),
    "forget, adapted": Command(("forget", "{adapted}", "--task", "pers\u00f6n-9"), out="adapted",
                               sources=("adapted",), done="has no task"),
    "forget, export": Command(("forget", "{exported}", "--task", WHO), out="exported",
                              sources=("exported",), done="has no task"),
    "report": Command(("report", "{run}", "--out", "{out.html}"), sources=("run",), out="out.html",
                      result=page),
}  # fmt: skip
NEEDS_ARROW = ("table train", "adapt", "from", "predict")  # read or write files of tables
SLOW = ("table train", "from")  # tried less often than the others, and those more often:
QUICK = ("predict", "export", "forget", "forget, adapted", "forget, export", "report")
SHORT = ("train, disk", "resume", "adapt", "export", "forget", "report")
FULL = ("no space", "too large", "cannot write")


def commands(made: Path) -> list[str]:
    """The commands that have their sources, and what they need to read them."""
    there = (n for n, c in COMMANDS.items() if all((made / each).exists() for each in c.sources))
    return [name for name in there if ARROW or name not in NEEDS_ARROW]


class Trials:
    """Trials in a folder, with what is expected of each command, found out once."""

    def __init__(
        self,
        root: Path,
        home: Path,
        rng: random.Random,
        counts: dict[str, int],
        disk: Path | None,
    ):
        self.root, self.rng, self.counts, self.disk = root, rng, counts, disk
        self.most = 8  # kills of a command before it may end
        self.known = home / "known"
        self.known.mkdir(exist_ok=True)

    def place(self, name: str, where: Path | None = None) -> Path:
        """A folder with copies of what a command reads."""
        place = (where or self.root) / "trial"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        for source in COMMANDS[name].sources:
            old = self.root / "made" / source
            (shutil.copytree if old.is_dir() else shutil.copy2)(old, place / source)
        return place

    def expected(self, name: str) -> tuple[Content, End]:
        """The files that a command leaves which nothing happens to, and how it ends."""
        file = self.known / name
        if not file.exists():
            place = self.place(name)
            done = moml(self.root, *_filled(COMMANDS[name].words, place))
            if done.code:
                raise SystemExit(f"chaos: {name}: {done.error}")
            with atomic_write(file) as to:
                pickle.dump((_result(COMMANDS[name], place), tuple(done)), to)
        content, done = pickle.loads(file.read_bytes())
        return content, End(*done)

    def kill(self, name: str) -> str:
        """Kill a command once or more, then let it end; what is wrong, or nothing."""
        expected, usual = self.expected(name)
        place, command, rng = self.place(name), COMMANDS[name], self.rng
        before = self._others(command, place)
        for _ in range(rng.randint(1, self.most)):
            kind = rng.choice(["touch", "torn", "time"])
            most = usual.seconds if kind == "time" else usual.touches
            clock = rng.randrange(10**6) if rng.random() < 0.25 else None
            if clock is not None:
                self.counts["clocks that jumped"] += 1
            fate = Fate(kind, rng.uniform(0, 1.05 * most), clock)
            saved = progress(place / command.out)
            if not (words := self._next(command, place)):
                break
            done = moml(self.root, *words, fate=fate)
            if done.killed:
                self.counts["kills"] += 1
                self.counts["kills at a write"] += kind != "time"
            elif done.code and command.done not in done.error:
                return f"{fate}: exit code {done.code}: {done.error}"
            if progress(place / command.out) < saved:
                return f"{fate}: saved steps are lost"
            if self._others(command, place) != before:
                return f"{fate}: what the command reads was changed"
        return self._finish(command, place, expected)

    def fill(self, name: str) -> str:
        """Let a disk be full at some moment, then have space again; what is wrong, or nothing."""
        expected, usual = self.expected(name)
        command, rng = COMMANDS[name], self.rng
        kind = rng.choice(["full", "limit", *["tmpfs"] * 2 * (self.disk is not None)])
        place = self.place(name, self.disk if kind == "tmpfs" else None)
        before = self._others(command, place)
        largest = max(map(len, expected.values()))
        at = rng.uniform(0, usual.touches) if kind == "full" else rng.randint(4096, 4097 + largest)
        if kind == "tmpfs":
            used, total = _used(place), sum(map(len, expected.values()))
            _resize(self.disk, used + rng.randint(8192, 8193 + total))
            kind = ""
        self.counts["full disks"] += 1
        done = moml(self.root, *self._next(command, place), fate=Fate(kind, at))
        if not kind:
            _resize(self.disk, 1 << 28)
            self.counts["full disks of a size"] += 1
        if done.code not in (0, 2) or "Traceback" in done.error:
            return f"full disk ({kind or 'tmpfs'}, {at}): exit code {done.code}: {done.error}"
        if done.code and not any(word in done.error.lower() for word in FULL):
            return f"full disk ({kind or 'tmpfs'}, {at}): {done.error}"
        if self._others(command, place) != before:
            return f"full disk ({kind or 'tmpfs'}, {at}): what the command reads was changed"
        if left := [path.name for path in place.rglob(".*") if path.name != ".keep"]:
            return f"full disk ({kind or 'tmpfs'}, {at}): {left} left behind"
        return self._finish(command, place, expected)

    def beside(self, name: str) -> str:
        """Run two commands in a folder, one perhaps killed, then finish; what is wrong."""
        expected, usual = self.expected(name)
        place, command, rng = self.place(name), COMMANDS[name], self.rng
        self.counts["second processes"] += 1
        fate = Fate("time", rng.uniform(0, usual.seconds)) if rng.random() < 0.3 else Fate()
        first = begin(self.root, fate, *self._next(command, place))
        time.sleep(rng.uniform(0, usual.seconds))
        second = [words for words in command.beside if ARROW or words[0] not in NEEDS_ARROW]
        words = rng.choice([command.words, *second])
        second = moml(self.root, *_filled(words, place))
        done = end(first)
        self.counts["kills"] += done.killed
        for each, name in ((done, "the first"), (second, f"the second, {words[0]},")):
            if not (each.killed and fate.kind) and (
                each.code not in (0, 2) or "Traceback" in each.error
            ):
                return f"{fate}: {name} ended with {each.code}: {each.error}"
        return self._finish(command, place, expected)

    def _finish(self, command: Command, place: Path, expected: Content) -> str:
        """Let the command end; its files must be the expected ones."""
        words = self._next(command, place)
        if words:
            done = moml(self.root, *words)
            if done.code and command.done not in done.error:
                return f"{words[0]} cannot go on: {done.error}"
        found = _result(command, place)
        if found != expected:
            names = {*found, *expected}
            other = sorted(n for n in names if found.get(n) != expected.get(n))
            return f"other files than without a kill: {', '.join(other)}"
        return ""

    def _next(self, command: Command, place: Path) -> Words:
        """The words that begin or continue a command; none where it has ended."""
        out = place / command.out
        if command.out in command.sources or not out.is_dir():
            return _filled(command.words, place)
        if command.again:
            began = (out / "run.json").exists()
            return _filled(command.again if began else command.words, place)
        return ()  # folders appear complete, or not at all

    def _others(self, command: Command, place: Path) -> Content:
        """The sources that a command must not change."""
        told = {}
        for name in command.sources:
            if name != command.out:
                told |= {f"{name}/{at}": rest for at, rest in tree(place / name).items()}
        return told


def _filled(words: Words, place: Path) -> Words:
    return tuple(
        place / word[1:-1] if isinstance(word, str) and word.startswith("{") else word
        for word in words
    )


def _result(command: Command, place: Path) -> Content:
    return command.result(place / command.out)


def _used(place: Path) -> int:
    return sum(path.stat().st_size + 4096 for path in place.rglob("*"))


def _resize(disk: Path, size: int) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", str(disk)], check=True)
