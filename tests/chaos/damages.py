"""Damaged files of every kind: what reads them refuses, says so, or gives what it gave before."""

import json
import logging
import os
import random
import shutil
import time
import warnings
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np

from tests.chaos.made import ARROW, ITERATIONS, page, trained, tree

KINDS = ("flip", "flip", "truncate", "swap", "other", "delete", "zeros", "insert")
Answer = object  # what a reader gives: compared by its repr


def damage(path: Path, kind: str, rng: random.Random, others: list[Path], twin: Path) -> bool:
    """Damage a file; False where this kind would change nothing."""
    content = path.read_bytes()
    at = rng.randrange(len(content)) if content else 0
    if kind == "delete":
        path.unlink()
        return True
    if kind == "swap":
        other = rng.choice(others)
        new, theirs = other.read_bytes(), content
        path.write_bytes(new)
        other.write_bytes(theirs)
        return new != content
    if kind == "other":
        new = twin.read_bytes() if twin.is_file() else content
    elif kind == "truncate":
        new = content[:at]
    elif kind == "zeros":
        size = rng.randint(1, 512)
        new = content[:at] + bytes(len(content[at : at + size])) + content[at + size :]
    elif kind == "insert":
        new = content[:at] + rng.randbytes(rng.randint(1, 64)) + content[at:]
    else:
        new = (
            content
            and content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :]
        )
    path.write_bytes(new)
    return new != content


def _load(folder: Path) -> Answer:
    from moml.runs.runs import load

    me = load(folder)
    return [np.asarray(leaf).tobytes() for leaf in _leaves(me.params)], me.history.tolist()


def _leaves(tree: object) -> list:
    import jax

    return jax.tree.leaves(tree)


def _resume(folder: Path) -> Answer:
    from moml.runs.runs import resume

    resume(folder)
    return trained(folder)


def _resume_sweep(folder: Path) -> Answer:
    from moml.runs.sweeps import resume_sweep

    _, rows = resume_sweep(folder)
    return [row | {"seconds": 0} for row in rows], trained(folder)


def _page(folder: Path) -> Answer:
    from moml.report.page.document import report

    return page(report([folder], folder.parent / "page.html"))


def _forget_task(folder: Path) -> Answer:
    from moml.serving.forget import forget

    forget(folder, ["1"])
    return {name: rest for name, rest in trained(folder).items() if "state" in name}


def _forget_on_disk(folder: Path) -> Answer:
    """Forget, then read all memories: rows of other tasks are looked at only then."""
    from moml.errors import CheckpointError
    from moml.runs.job import single
    from moml.runs.record import record_of
    from moml.serving.forget import forget
    from moml.storage.checkpoint import newest_info

    forget(folder, ["1"])
    execution = single(record_of(folder)[1], folder=folder).execution
    _, info = newest_info(folder / "checkpoints", whole=False) or ("", {})
    with closing(execution.store) as store:
        if problem := execution.verify(info):
            raise CheckpointError(problem)
        store.back_to(ITERATIONS)
        return store.read(np.arange(store.n)).tobytes()


def _predict(folder: Path) -> Answer:
    from moml.tabular.run import load_table_run
    from tests.support.small_run import visits

    run = load_table_run(folder)
    made = run.predict(visits(12, 0))
    return {
        name: np.asarray(values).tolist() for name, values in made.columns.items()
    }, run.evaluation


def _forget_person(folder: Path) -> Answer:
    from moml.serving.forget import forget

    forget(folder, ["pers\u00f6n-9"])  # of the adapted run as well
    return tree(folder)


def _export(folder: Path) -> Answer:
    from moml.serving.export import export

    out = folder.parent / "out"
    shutil.rmtree(out, ignore_errors=True)
    export(folder, out)
    return tree(out)


def _served(folder: Path) -> Answer:
    from moml.serving import moml_serve

    data = moml_serve.read_csv(folder.parent.parent / "made" / "rows.csv")
    made = moml_serve.load(folder).predict(data)
    return {name: np.asarray(values).tolist() for name, values in made.items()}


def _programs(folder: Path) -> Answer:
    """What the cache of compiled programs gives; None where there is no good one is right."""
    from moml.runtime.compile_cache import Entries

    found = [Entries(folder).get(f"key-{i}") for i in range(4)]
    return [
        rest if rest is None or rest == _program(i) else "WRONG" for i, rest in enumerate(found)
    ]


def _program(i: int) -> bytes:
    return random.Random(i).randbytes(4096)


def _images(folder: Path) -> Answer:
    from moml.data.images.cache import open_cache

    found = open_cache(folder / "set-train.npz", "key")
    return (
        None if found is None else (found.x.tobytes(), found.y.tobytes(), found.names, found.split)
    )


def caches(folder: Path) -> None:
    """Caches to damage: compiled programs and images."""
    from moml.data.images.arrays import Images
    from moml.data.images.cache import write_cache
    from moml.runtime.compile_cache import Entries

    rng = np.random.default_rng(0)
    for name in ("programs", "images"):
        (folder / name).mkdir()
    for i in range(4):
        Entries(folder / "programs").put(f"key-{i}", _program(i))
    x, y = rng.integers(0, 256, (30, 8, 8, 1), np.uint8), rng.integers(0, 3, 30)
    images = Images(x, y, ("a", "b", "c"), "train", np.arange(30), None)
    write_cache(images, folder / "images" / "set-train.npz", "key")


READERS: dict[str, tuple[str, Callable[[Path], Answer]]] = {
    "run, load": ("run", _load),
    "run, resume": ("run-half", _resume),
    "run, page": ("run", _page),
    "run, forget": ("run", _forget_task),
    "memories on disk, load": ("disk", _load),
    "memories on disk, resume": ("disk-half", _resume),
    "memories on disk, forget": ("disk", _forget_on_disk),
    "sweep, resume": ("swept-half", _resume_sweep),
    "sweep, page": ("swept", _page),
    "table": ("table", _predict),
    "adapted": ("adapted", _predict),
    "table, forget": ("table", _forget_person),
    "adapted, forget": ("adapted", _forget_person),
    "table, export": ("table", _export),
    "export": ("exported", _served),
    "programs": ("programs", _programs),
    "images": ("images", _images),
}
NEEDS_ARROW = ("table", "adapted")  # read tables
CACHES = ("programs", "images")  # may say nothing, and give nothing


class Told(logging.Handler):
    """Notes that something was said."""

    said = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.said += record.levelno >= logging.WARNING


def readers(made: Path) -> list[str]:
    """The readers that have something to read, and what they need to do so."""
    there = (name for name, (source, _) in READERS.items() if (made / source).exists())
    return [name for name in there if ARROW or name not in NEEDS_ARROW]


def damaged(root: Path, seed: int, count: int, seconds: float, out: Path) -> None:
    """Damage so many files, for so long at most; counts and problems go to a file."""
    rng, deadline = random.Random(seed), time.monotonic() + seconds
    counts = dict.fromkeys(("refused", "said", "harmless"), 0)
    problems: list[str] = []
    truth: dict[str, str] = {}
    told, logger = Told(), logging.getLogger("moml")
    logger.addHandler(told)
    logging.lastResort = None  # `told` listens
    deck: list[str] = []
    for _ in range(count):
        if time.monotonic() > deadline:
            break
        there = readers(root / "made")
        deck = deck or rng.sample(there, len(there))
        name = deck.pop()
        source, reader = READERS[name]
        place = root / "damaged" / source
        fresh = lambda place=place, source=source: _copy(root / "made" / source, place)
        if name not in truth:
            fresh()
            truth[name] = repr(reader(place))
        fresh()
        files = sorted(
            p for p in place.rglob("*") if p.is_file() and p.name not in ("lock", "log.txt")
        )
        path, kind = rng.choice(files), rng.choice(KINDS)
        what = f"seed {seed}, {name}: {kind} of {path.relative_to(place)}"
        twin = root / "made" / f"{source.removesuffix('-half')}-other" / path.relative_to(place)
        if not damage(path, kind, rng, [p for p in files if p != path] or files, twin):
            continue
        told.said = 0
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                answer = repr(reader(place))
            except Exception as error:
                one = type(error).__name__ == "ServeError" or hasattr(error, "exit_code")
                counts["refused"] += 1
                if not one or "\n" in str(error):
                    problems.append(f"{what}: a traceback, {type(error).__name__}: {error}")
                continue
        if answer == truth[name] or (name in CACHES and "WRONG" not in answer and "None" in answer):
            counts["said" if told.said or warned else "harmless"] += 1
        elif told.said or warned:
            counts["said"] += 1
        else:
            problems.append(f"{what}: accepted silently")
            shutil.copytree(place, root / f"accepted-{seed}-{len(problems)}")
    logger.removeHandler(told)
    out.write_text(json.dumps({"counts": counts, "problems": problems}))


def _copy(old: Path, new: Path) -> None:
    shutil.rmtree(new.parent, ignore_errors=True)
    shutil.copytree(old, new)
    for path in new.rglob("*"):
        os.utime(path)
