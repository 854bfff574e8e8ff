import os
import shutil

import numpy as np
import pytest

from moml.data import load
from moml.data.images import cache
from moml.data.images.arrays import by_class
from tests.data import made


def same(one, two):
    for name, left in one._asdict().items():
        right = getattr(two, name)
        if isinstance(left, np.ndarray):
            np.testing.assert_array_equal(left, right)
            assert left.dtype == right.dtype
        else:
            assert left == right and type(left) is type(right)


@pytest.fixture
def grey():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (9, 5, 5, 3), np.uint8)
    return by_class(x, rng.integers(0, 3, 9), ["a", "b", "c"], "train", ["p", "p", "q"])


class Source:
    """A file and a reader that counts its calls."""

    def __init__(self, root, images):
        self.root, self.images, self.reads = root, images, 0
        self.path = root / "source"
        self.path.write_bytes(b"1234")

    def get(self):
        return cache.cached(self.root, "set", "train", [self.path], self.read)

    def read(self):
        self.reads += 1
        return self.images

    @property
    def file(self):
        return self.root / cache.FOLDER / "set-train.npz"


@pytest.fixture
def source(tmp_path, grey):
    return Source(tmp_path, grey)


def test_read_once_and_the_same_from_the_cache(source, grey):
    for _ in range(3):
        same(source.get(), grey)
    assert source.reads == 1
    assert [path.name for path in source.file.parent.iterdir()] == ["set-train.npz"]


def test_black_and_white_takes_bits(tmp_path):
    x = np.random.default_rng(0).integers(0, 2, (40, 105, 105, 1), np.uint8) * np.uint8(255)
    images = by_class(x, np.arange(40) // 20, ["a", "b"], "background")
    source = Source(tmp_path, images)
    source.get()
    same(source.get(), images)
    assert source.reads == 1 and source.file.stat().st_size < x.size / 7


def test_another_time_size_or_path_is_read_anew(source):
    source.get()
    os.utime(source.path, ns=(1, 1))
    source.get()
    assert source.reads == 2
    source.path.write_bytes(b"12345")
    os.utime(source.path, ns=(1, 1))
    source.get()
    assert source.reads == 3
    other = source.path.with_name("other")
    shutil.copy2(source.path, other)
    source.path = other
    source.get()
    assert source.reads == 4
    source.get()
    assert source.reads == 4


@pytest.mark.parametrize("at", [0, 10, 200, 700, 1200, -1, -30, -300])
def test_a_flipped_bit_is_never_trusted(source, grey, at):
    source.get()
    raw = bytearray(source.file.read_bytes())
    raw[at] ^= 4
    source.file.write_bytes(raw)
    same(source.get(), grey)


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: raw[: len(raw) // 2],
        lambda raw: b"",
        lambda raw: b"junk",
        lambda raw: raw.replace(b"x.npy", b"z.npy"),
    ],
)
def test_a_damaged_cache_is_made_anew(source, grey, damage):
    source.get()
    source.file.write_bytes(damage(source.file.read_bytes()))
    same(source.get(), grey)
    assert source.reads == 2
    same(source.get(), grey)
    assert source.reads == 2


def test_every_byte_of_the_pixels_is_guarded(source, grey):
    source.get()
    whole = source.file.read_bytes()
    start = whole.index(grey.x.tobytes())
    for at in range(start, start + grey.x.size, 7):
        raw = bytearray(whole)
        raw[at] ^= 1
        source.file.write_bytes(raw)
        assert cache.open_cache(source.file, cache.key_of([source.path])) is None


def test_where_the_data_folder_cannot_be_written(source, grey, tmp_path, monkeypatch):
    (tmp_path / cache.FOLDER).write_text("a file is in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "mine"))
    for _ in range(2):
        same(source.get(), grey)
    assert source.reads == 1 and list((tmp_path / "mine").rglob("set-train.npz"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(source.path))  # nor there: then without
    for _ in range(2):
        same(source.get(), grey)
    assert source.reads == 3


def test_a_changed_file_of_a_set_is_seen(tmp_path):
    made.mnist(tmp_path / "mnist")
    first = load("mnist", "test", tmp_path, whole=False)
    same(load("mnist", "test", tmp_path, whole=False), first)
    made.mnist(tmp_path / "mnist", {"train": 7, "test": 5})
    assert len(load("mnist", "test", tmp_path, whole=False).y) == 5
