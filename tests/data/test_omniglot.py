import builtins
import subprocess
import sys
import zipfile

import numpy as np
import pytest

from moml.data import stacked
from moml.data.images import omniglot
from moml.errors import DataError
from tests.data import made

GREEK = {"Latin": 1, "Greek": 2}  # not in the order of the alphabet


def test_classes_are_characters_and_drawers_keep_their_order(tmp_path):
    content = made.drawings(GREEK)
    made.omniglot(tmp_path / "omniglot", "background", content)
    [place] = omniglot.places(tmp_path)
    images = omniglot.read(place, "background")
    assert images.names == ("Greek/character01", "Greek/character02", "Latin/character01")
    assert images.groups == ("Greek", "Greek", "Latin") and images.split == "background"
    assert images.x.shape == (60, 105, 105, 1) and images.x.dtype == np.uint8
    pixels = stacked(images)
    assert pixels.shape == (3, 20, 105, 105, 1) and np.shares_memory(pixels, images.x)
    for k, name in enumerate(images.names):
        for path, bits in content.items():
            if path.startswith(name):
                drawer = int(path[-6:-4]) - 1
                np.testing.assert_array_equal(pixels[k, drawer, ..., 0], bits * 255)


def test_unpacked_folders_and_greyscale_copies_are_the_same(tmp_path):
    content = made.drawings(GREEK)
    archive = made.omniglot(tmp_path / "zipped", "evaluation", content)
    for path, bits in content.items():
        file = tmp_path / "omniglot-py" / "images_evaluation" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(made.png(bits, "L"))
    [place] = omniglot.places(tmp_path)
    assert len(omniglot.files(place, "evaluation")) == 60
    one, two = omniglot.read(place, "evaluation"), omniglot.read(archive.parent, "evaluation")
    np.testing.assert_array_equal(one.x, two.x)
    assert one.names == two.names and one.groups == two.groups


def test_what_packers_leave_is_passed_over(tmp_path):
    path = made.omniglot(tmp_path, "background", made.drawings({"Greek": 1}))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("__MACOSX/images_background/Greek/._character01", b"x")
        archive.writestr("images_background/Greek/character01/.DS_Store", b"x")
        archive.writestr("images_background/Greek/character01/", b"")
    assert len(omniglot.read(tmp_path, "background").y) == 20


def test_parts_are_apart(tmp_path):
    made.omniglot(tmp_path, "background", made.drawings({"Greek": 1}))
    with pytest.raises(DataError, match=r"images_evaluation.zip is missing"):
        omniglot.files(tmp_path, "evaluation")


GOOD = "images_background/Greek/character01/0001_07.png"


def put(name, body):
    def change(path):
        with zipfile.ZipFile(path) as archive:
            content = {entry: archive.read(entry) for entry in archive.namelist()}
        content[name] = body
        with zipfile.ZipFile(path, "w") as archive:
            for entry, raw in content.items():
                if raw is not None:
                    archive.writestr(entry, raw)

    return change


def flip(path):
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"IDAT") + 60] ^= 1
    path.write_bytes(raw)


@pytest.mark.parametrize(
    "change, words",
    [
        (put(GOOD, None), "Greek/character01 must have 20 drawings; got 19"),
        (put(GOOD.replace("07", "21"), made.png(np.ones((105, 105)))), "20 drawings; got 21"),
        (put(GOOD, b"no picture"), "0001_07.png is no PNG"),
        (put(GOOD, made.png(np.ones((105, 105)))[:60]), "0001_07.png is no PNG, or damaged"),
        (put(GOOD, made.png(np.ones((28, 28)))), "0001_07.png must be .*; got 28 x 28"),
        (put(GOOD, made.png(np.ones((105, 105)), "RGB")), "mode RGB"),
        (put(GOOD, made.png(np.full((105, 105), 0.5), "L")), "grey pixels"),
        (put(GOOD, b"x" * 200_000), "too large"),
        (flip, "truncated or damaged.*CRC"),
        (lambda path: path.write_bytes(path.read_bytes()[:-500]), "truncated or damaged"),
        (lambda path: path.write_bytes(b"<html>"), "truncated or damaged"),
        (lambda path: zipfile.ZipFile(path, "w").close(), "no drawings"),
    ],
)
def test_a_wrong_file_is_named(tmp_path, change, words):
    path = made.omniglot(tmp_path, "background", made.drawings({"Greek": 1}))
    change(path)
    with pytest.raises(DataError, match=words) as raised:
        omniglot.read(tmp_path, "background")
    assert str(path) in str(raised.value)


def test_without_pillow_the_extra_is_named(tmp_path, monkeypatch):
    made.omniglot(tmp_path, "background", made.drawings({"Greek": 1}))
    real = builtins.__import__

    def without(name, *rest):
        if name.split(".")[0] == "PIL":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.delitem(sys.modules, "PIL", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(DataError, match=r"pip install 'moml\[data\]'"):
        omniglot.read(tmp_path, "background")


def test_the_library_is_imported_without_pillow():
    script = "import sys, moml, moml.data; print('PIL' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr
