"""The persistent cache of compiled programs, as commands use it: where, what is in it, what not."""

import json
import os
import stat
import struct
import subprocess
import sys

import numpy as np
import pytest
from jax._src.compilation_cache import decompress_executable

from moml.runtime import compile_cache
from moml.runtime.compile_cache import SEAL, Entries, shared

MOML = [sys.executable, "-c", "from moml.cli import main; main()"]
SINE = ["train", "sine", "--method", "fo-maml", "--problem.hidden", "4", "--iterations", "20"]
SINE += ["--log-every", "10"]
AMOUNT = 123456.789


def environment(**given):
    mine = {key: value for key, value in os.environ.items() if "CACHE" not in key}
    return mine | {"JAX_PLATFORMS": "cpu"} | given


def run(*words, **given):
    """A command in a process of its own: it succeeds; what it wrote to standard error."""
    done = subprocess.run(
        [*MOML, *map(str, words)], capture_output=True, text=True, env=environment(**given)
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def trained(folder, name, **given):
    """A short training: its result, apart from the time that it took, and its errors."""
    error = run(*SINE, "--out", folder / name, "--json", folder / f"{name}.json", **given)
    [row] = json.loads((folder / f"{name}.json").read_text())
    return row | {"seconds": 0}, error


def names(cache):
    return {path.name for path in cache.iterdir()}


def permissions(path):
    return stat.S_IMODE(path.stat().st_mode)


def table(folder, name, columns, scale, shift):
    """Users with distinct ids; every number of a column is scaled and shifted."""
    rng = np.random.default_rng(0)
    rows = [",".join(columns)]
    for user in range(24):
        level = rng.normal()
        for x in rng.normal(size=8):
            y = AMOUNT if len(rows) == 5 else level + x
            rows.append(
                f"zebra-{4711 + user},{float(scale * x + shift)},{float(scale * y + shift)}"
            )
    (folder / name).write_text("\n".join(rows) + "\n")
    return folder / name


@pytest.fixture(scope="module")
def of_table(tmp_path_factory):
    """The cache after a training on one table, and the names of its entries before a like one."""
    folder = tmp_path_factory.mktemp("tables")
    cache, before = folder / "new" / "cache", set()
    for name, columns, scale, shift in (
        ("one", ("zebraid", "zebrainput", "zebratarget"), 1.0, 0.0),
        ("two", ("giraffeid", "giraffeinput", "giraffetarget"), 3.3, 7.7),
    ):
        before = names(cache) if cache.exists() else set()
        data = table(folder, f"{name}.csv", columns, scale, shift)
        words = ["--data", data, "--task", columns[0], "--target", columns[2], "--shots", "4"]
        words += ["--members", "1", "--iterations", "20", "--out", folder / name]
        run("train", *words, MOML_CACHE=str(cache))
    return cache, before


def test_it_holds_programs_for_the_user_alone(of_table):
    cache, before = of_table
    assert len(before) > 5
    assert permissions(cache) == 0o700
    assert {permissions(path) for path in cache.iterdir()} == {0o600}


def test_a_like_table_compiles_nothing(of_table):
    """So no value of a table is a constant of a program."""
    cache, before = of_table
    assert names(cache) == before


def test_it_holds_no_value_id_or_column_of_a_table(of_table):
    cache, _ = of_table
    secrets = [b"zebra", b"giraffe", repr(AMOUNT).encode(), b"123456.79", b"123457."]
    binary = [struct.pack(f"{order}{kind}", AMOUNT) for order in "<>" for kind in "fd"]
    for path in cache.iterdir():
        content = path.read_bytes()
        program = decompress_executable(content[SEAL:])
        for secret in (*secrets, *binary):
            assert secret not in program, (path.name, secret)
        for secret in secrets:
            assert secret not in content and secret not in path.name.encode(), path.name


def test_damaged_entries_are_ignored_and_replaced(tmp_path):
    cache = tmp_path / "cache"
    first, _ = trained(tmp_path, "first", MOML_CACHE=str(cache))
    good = names(cache)
    for i, path in enumerate(sorted(cache.iterdir())):
        content = bytearray(path.read_bytes())
        if i % 3 == 0:
            content[len(content) // 2] ^= 0x10
        path.write_bytes([content, content[: len(content) // 2], b""][i % 3])
    again, error = trained(tmp_path, "again", MOML_CACHE=str(cache))
    assert again == first
    assert "cache" not in error and "Warning" not in error
    assert names(cache) == good
    written = {path: path.read_bytes() for path in cache.iterdir()}
    third, _ = trained(tmp_path, "third", MOML_CACHE=str(cache))
    assert third == first
    assert {path: path.read_bytes() for path in cache.iterdir()} == written


def test_where_it_is_and_how_it_is_switched_off(tmp_path):
    usual = {"HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": str(tmp_path / "xdg")}
    theirs = tmp_path / "theirs"
    first, _ = trained(tmp_path, "option", **usual | {"MOML_CACHE": ""})
    assert len(names(tmp_path / "xdg" / "moml")) > 3
    off = {
        "off": usual | {"MOML_CACHE": "off"},
        "theirs": usual | {"JAX_COMPILATION_CACHE_DIR": str(theirs)}
        | {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"},
        "nowhere": usual | {"MOML_CACHE": "/proc/nowhere/cache"},
    }  # fmt: skip
    for name, given in off.items():
        place = tmp_path / name
        place.mkdir(exist_ok=True)
        row, error = trained(place, "run", **given | {"XDG_CACHE_HOME": str(place / "xdg")})
        assert row == first and "cache" not in error
        assert not (place / "xdg").exists()
    assert names(theirs)
    run(*SINE, "--no-cache", "--out", tmp_path / "not", XDG_CACHE_HOME=str(tmp_path / "none"))
    assert not (tmp_path / "none").exists()


def test_a_folder_that_others_could_write_to_is_not_used(tmp_path, monkeypatch):
    mine = tmp_path / "mine"
    mine.mkdir(mode=0o700)
    assert shared(mine) == ""
    (tmp_path / "link").symlink_to(mine)
    assert shared(tmp_path / "link") == "a folder, not a link"
    for mode in (0o770, 0o702):
        mine.chmod(mode)
        assert shared(mine) == "writable for you alone"
    first, *_ = run("doctor", MOML_CACHE=str(mine)).splitlines()
    wrong = f"compiled programs are not kept: {mine} must be writable for you alone"
    assert first == f"moml: {wrong}, or set MOML_CACHE=off"
    assert not names(mine)
    mine.chmod(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: mine.stat().st_uid + 1)
    assert shared(mine) == "your own folder"


def test_the_least_recently_used_programs_go_first(tmp_path, monkeypatch):
    monkeypatch.setattr(compile_cache, "LIMIT", 5 * (100 + SEAL))
    cache = Entries(tmp_path)
    for i in range(5):
        cache.put(f"key{i}", bytes(100))
        path = next(path for path in tmp_path.iterdir() if path.name.startswith(f"key{i}-"))
        os.utime(path, (i, i))
    assert cache.get("key0") == bytes(100)  # used now
    cache.put("key5", bytes(100))
    left = {name.partition("-")[0] for name in names(tmp_path)}
    assert left == {"key0", "key4", "key5"}
    assert cache.get("key1") is None
    Entries(tmp_path / "gone").put("key", b"program")  # what cannot be written is left out
    assert Entries(tmp_path / "gone").get("key") is None


@pytest.mark.usefixtures("no_cache_in_use")
def test_the_doctor_says_where_it_is_and_how_large(tmp_path, monkeypatch):
    monkeypatch.setenv("MOML_CACHE", "off")
    assert compile_cache.describe() == "off (MOML_CACHE=off)"
    for name, text in {
        "none": "cannot write to {}",
        "link": "{} must be a folder, not a link",
    }.items():
        place = tmp_path / name
        monkeypatch.setenv("MOML_CACHE", str(place))
        if name == "link":
            place.symlink_to(tmp_path)
        assert compile_cache.describe() == f"not kept: {text.format(place)}"
    monkeypatch.setenv("MOML_CACHE", str(tmp_path))
    Entries(tmp_path).put("key", bytes(2_000_000 - SEAL))
    assert compile_cache.describe() == f"{tmp_path}: 1 programs, 2.0 of 256 MB"
