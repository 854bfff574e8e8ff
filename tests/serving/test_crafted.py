"""Runs and exports that somebody made up: refused in a line, and nothing else happens."""

import json
import os
import pickle
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest

from moml.errors import MomlError
from moml.serving import moml_serve
from moml.serving.export import export
from moml.serving.moml_serve import ServeError
from moml.storage.arrays import read_arrays
from moml.storage.checkpoint import Checkpoints
from moml.storage.manifest import seal
from moml.tabular.run import load_table_run
from tests.support.small_run import quick, small_run, visits  # noqa: F401

PLAIN = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
FILES = {
    "a header of 2^60 bytes": struct.pack("<Q", 2**60) + b"{}",
    "a header that is no JSON": struct.pack("<Q", 4) + b"{{{{",
    "a header of brackets": struct.pack("<Q", 200_000) + b"[" * 200_000,
    "a pickle": pickle.dumps({"a": np.zeros(2)}),
    "nothing": b"",
}
HEADERS = {
    "a list": [1, 2],
    "numbers for arrays": {"a": 3},
    "overlapping": {"a": PLAIN, "b": PLAIN},
    "negative": {"a": PLAIN | {"data_offsets": [-8, 0]}},
    "beyond the end": {"a": PLAIN | {"shape": [4], "data_offsets": [0, 16]}},
    "a gap": {"a": PLAIN | {"shape": [1], "data_offsets": [4, 8]}},
    "bytes of nobody": {"a": PLAIN | {"shape": [1], "data_offsets": [0, 4]}},
    "sides below 0": {"a": PLAIN | {"shape": [-1, -2]}},
    "broken sides": {"a": PLAIN | {"shape": [0.5, 4]}},
    "objects": {"a": PLAIN | {"dtype": "O"}},
    "places that are words": {"a": PLAIN | {"data_offsets": ["0", "8"]}},
}


def with_header(header):
    words = json.dumps(header).encode()
    return struct.pack("<Q", len(words)) + words + bytes(8)


ARRAYS = FILES | {name: with_header(header) for name, header in HEADERS.items()}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_that_cannot_be_are_refused(tmp_path, name):
    (tmp_path / "file").write_bytes(ARRAYS[name])
    with pytest.raises(MomlError, match="is not a safetensors file") as refused:
        read_arrays(tmp_path / "file")
    assert "\n" not in str(refused.value)
    with pytest.raises((ValueError, TypeError, LookupError, AttributeError, RecursionError)):
        moml_serve._arrays(ARRAYS[name])  # which `load` turns into a line, below


@pytest.fixture(scope="module")
def whole(tmp_path_factory, quick):  # noqa: F811
    """A run, a folder of `moml adapt` and an export."""
    folder = tmp_path_factory.mktemp("crafted")
    small_run(folder / "run", visits(4, 0), ["head"])
    small_run(folder / "models", visits(4, 0), ["head"], each=True)
    export(folder / "run", folder / "export")
    return folder


def told(file, **changes):
    """A change of some fields of a JSON file."""

    def change(folder):
        content = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps(content | changes))

    return change


def written(file, content):
    return lambda folder: (folder / file).write_bytes(content)


def linked(file, place):
    """A link in the place of a file."""

    def change(folder):
        (folder / file).unlink()
        os.symlink(place, folder / file)

    return change


def first_input(**changes):
    def change(folder):
        file = folder / ("table.json" if (folder / "table.json").exists() else "card.json")
        content = json.loads(file.read_text())
        content["columns"]["inputs"][0] |= changes
        file.write_text(json.dumps(content))

    return change


def first_model(**changes):
    def change(folder):
        content = json.loads((folder / "card.json").read_text())
        content["models"]["personal"] |= changes
        (folder / "card.json").write_text(json.dumps(content))

    return change


def elsewhere(folder):
    """An index that points out of the folder, at a file that holds an id's arrays."""
    index = json.loads((folder / "index.json").read_text())
    shutil.copy(folder / "tasks" / "000001.safetensors", folder.parent / "000009.safetensors")
    for own in index.values():
        own["file"] = "../000009.safetensors"
    (folder / "index.json").write_text(json.dumps(index))


RUNS = {
    "a newer format": (told("table.json", format=6), "moml .* in format 6; .*reads format 5"),
    "an older format": (told("table.json", format=1), "moml .* in format 1; .*reads format 5"),
    "no format": (written("table.json", b"{}"), "not written by moml"),
    "little": (written("table.json", b'{"format": 5}'), "not written by moml"),
    "a list": (written("table.json", b"[]"), "not written by moml"),
    "brackets": (written("table.json", b"[" * 200_000), "cannot be read"),
    "a number for a name": (told("table.json", task=7), "other types"),
    "a shape of words": (told("table.json", personal="x"), "not written by moml"),
    "no model": (told("table.json", cold="../../secret"), "other types"),
    "a pickle": (written("model.safetensors", FILES["a pickle"]), "is not a safetensors file"),
    "huge": (written("personal.safetensors", FILES["a header of 2^60 bytes"]), "not a safetensors"),
    "other arrays": (written("model.safetensors", with_header({"a": PLAIN})), "is missing"),
    "other tasks": (written("tasks.json", b'{"ids": ["a"], "rows": [1]}'), "does not match"),
    "a scale of words": (first_input(scale={"mean": "x", "std": 1}), "of wrong types"),
    "a kind unheard of": (first_input(kind="pickle"), "of wrong types"),
    "more fields": (first_input(code="import os"), "not written by moml"),
    "a link": (linked("tasks.json", "/etc/hostname"), "is not a plain file"),
    "a device": (linked("tasks.json", "/dev/zero"), "is not a plain file"),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_crafted_run_is_refused_in_a_line(whole, tmp_path, name):
    change, said = RUNS[name]
    run = Path(shutil.copytree(whole / "run", tmp_path / "run"))
    change(run)
    if "link" not in name and "device" not in name:  # whose seal could not be made
        seal(run)
    with pytest.raises(MomlError, match=said) as refused:
        load_table_run(run)
    assert "\n" not in str(refused.value)


def test_an_index_leads_nowhere_else(whole, tmp_path):
    run = Path(shutil.copytree(whole / "models", tmp_path / "run"))
    elsewhere(run)
    seal(run)
    with pytest.raises(MomlError, match=r"000009\.safetensors cannot be read"):
        load_table_run(run).predict(visits(4, 0))


EXPORTS = {
    "a newer format": (told("card.json", format=5), "export of format 5; this .* format 4"),
    "an older format": (
        told("card.json", format=1),
        "export of format 1; this .* format 4",
    ),
    "a list": (written("card.json", b"[]"), "not an export"),
    "brackets": (written("card.json", b"[" * 200_000), "not an export"),
    "no models": (told("card.json", models={}), "not an export"),
    "no end of steps": (first_model(steps=10**12), "not those of the target"),
    "no end of classes": (first_model(classes=10**9), "not those of the target"),
    "no such model": (told("card.json", cold="../personal"), "not an export"),
    "a pickle": (written("params.safetensors", FILES["a pickle"]), "not an export"),
    "huge": (written("tasks.safetensors", FILES["a header of 2^60 bytes"]), "a header of"),
    "other arrays": (
        written("params.safetensors", with_header({"a": PLAIN})),
        "not an export",
    ),
    "overlapping": (written("tasks.safetensors", ARRAYS["overlapping"]), "cannot be at"),
    "other tasks": (written("tasks.json", b'{"ids": "ab", "rows": [1]}'), "not an export"),
    "a scale of words": (first_input(scale={"mean": "x", "std": 1}), "not an export"),
    "a link": (linked("params.safetensors", "/dev/zero"), "is a link"),
}


@pytest.mark.parametrize("name", EXPORTS)
def test_a_crafted_export_is_refused_in_a_line(whole, tmp_path, name):
    change, said = EXPORTS[name]
    folder = Path(shutil.copytree(whole / "export", tmp_path / "export"))
    change(folder)
    if name != "a link":
        seal(folder)
    with pytest.raises(ServeError, match=said) as refused:
        moml_serve.load(folder)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["card.json", "params.safetensors", "tasks.json", "manifest.json"])
def test_a_damaged_export_is_refused_by_name(whole, tmp_path, name):
    folder = Path(shutil.copytree(whole / "export", tmp_path / "export"))
    data = bytearray((folder / name).read_bytes())
    data[-20] ^= 1
    (folder / name).write_bytes(data)
    with pytest.raises(ServeError, match=f"{name} is damaged|not an export"):
        moml_serve.load(folder)
    (folder / name).unlink()
    with pytest.raises(ServeError, match=f"{name} is missing"):
        moml_serve.load(folder)


@pytest.mark.parametrize("content", [b"[]", b'{"format": "1"}', b'{"format": 3, "step": 1}', b"x"])
def test_a_crafted_checkpoint_is_refused_in_a_line(tmp_path, content):
    with Checkpoints(tmp_path) as kept:
        kept.save(1, {"w": np.zeros(3)}, {})
        kept.wait()
        (kept.path(1) / "info.json").write_bytes(content)
        seal(kept.path(1))
        with pytest.raises(MomlError, match=r"info\.json is not as moml writes it") as refused:
            kept.load({"w": np.zeros(3)})
    assert "\n" not in str(refused.value)
