"""The sets by name, in Python and on the command line, with tiny copies of them."""

import hashlib
import sys

import numpy as np
import pytest

from moml.cli import main
from moml.data import SETS, check, counts, data_folder, load, stacked
from moml.data.images import mnist, sets
from moml.data.images.arrays import by_class
from moml.data.images.catalog import Archive
from moml.errors import ConfigError, DataError
from tests.data import made
from tests.data.test_fetch import server as server


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A data folder with a tiny MNIST that counts as whole, and a background of Omniglot."""
    content = made.mnist(tmp_path / "mnist")
    each = {split: tuple(np.bincount(y, minlength=10)) for split, (_, y) in content.items()}
    monkeypatch.setitem(SETS, "mnist", SETS["mnist"]._replace(counts=each))
    for split, (_, y) in content.items():
        monkeypatch.setitem(mnist.ROWS, split, len(y))
    monkeypatch.delenv("MOML_DATA", raising=False)
    return tmp_path


def command(capsys, monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["moml", "data", *map(str, words)])
    code = 0
    try:
        main()
    except SystemExit as stopped:
        code = stopped.code
    told = capsys.readouterr()
    return code, told.out, told.err


def test_where_the_data_is(tiny, monkeypatch, tmp_path):
    with pytest.raises(DataError) as raised:
        load("mnist", "train")
    for word in ("folder=", "--data-dir", "MOML_DATA", "moml data fetch NAME"):
        assert word in str(raised.value)
    monkeypatch.setenv("MOML_DATA", "")
    with pytest.raises(DataError, match="where is the data"):
        data_folder()
    monkeypatch.setenv("MOML_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match=r"MOML_DATA must be a folder; got .*nowhere"):
        load("mnist", "train")
    assert len(load("mnist", "train", tiny).y) == 6  # an argument goes before
    monkeypatch.setenv("MOML_DATA", str(tiny))
    assert len(load("mnist", "test").y) == 4


def test_a_set_that_is_not_there_says_how_to_get_it(tiny):
    with pytest.raises(DataError, match=f"no cifar10 in {tiny}; moml data fetch cifar10"):
        load("cifar10", "train", tiny)


def test_unknown_names(tiny):
    allowed = "mnist, fmnist, cifar10, cifar100, omniglot"
    with pytest.raises(ConfigError, match=f"'mnst'; allowed: {allowed}"):
        load("mnst", "train", tiny)
    with pytest.raises(ConfigError, match="no split 'background'; allowed: train, test"):
        load("mnist", "background", tiny)


def test_wrong_numbers_of_a_class_are_told(tiny, monkeypatch):
    load("mnist", "train", tiny, whole=False)
    each = SETS["mnist"].counts["train"]
    moved = (each[0] + 1, *each[1:])
    monkeypatch.setitem(
        SETS, "mnist", SETS["mnist"]._replace(counts=SETS["mnist"].counts | {"train": moved})
    )
    words = f"mnist, train must have {each[0] + 1} images of class 0; got {each[0]}"
    with pytest.raises(DataError, match=words):
        load("mnist", "train", tiny)  # from the cache too
    assert check("mnist", tiny).wrong and "test" in check("mnist", tiny).splits
    assert len(load("mnist", "train", tiny, whole=False).y) == 6


def test_stacked_wants_classes_of_one_size():
    x = np.zeros((3, 2, 2, 1), np.uint8)
    images = by_class(x, [0, 1, 1], ["a", "b"], "train")
    assert counts(images).tolist() == [1, 2]
    with pytest.raises(DataError, match="classes have 1 to 2 images"):
        stacked(images)


def test_the_first_complete_place_is_taken(tiny):
    (tiny / "MNIST").mkdir()
    for path in (tiny / "mnist").iterdir():
        (tiny / "MNIST" / path.name).write_bytes(path.read_bytes())
    (tiny / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    assert check("mnist", tiny).splits["test"][0] == tiny / "MNIST"
    (tiny / "MNIST" / "t10k-labels-idx1-ubyte.gz").unlink()
    [wrong] = check("mnist", tiny).wrong
    assert wrong == f"{tiny}/mnist/t10k-labels-idx1-ubyte.gz is missing"


def test_check_on_the_command_line(tiny, capsys, monkeypatch):
    code, out, _ = command(capsys, monkeypatch, "check", "--data-dir", tiny)
    assert code == 0
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert list(lines) == list(SETS)
    assert "ok: train 6 images of 10 classes, test 4" in lines["mnist"]
    assert lines["cifar10"].split() == ["cifar10", "missing"]
    code, out, error = command(
        capsys, monkeypatch, "check", "mnist", "omniglot", "--data-dir", tiny
    )
    assert code == 2 and "omniglot" in error and "mnist" not in error.split(": ")[-1]
    file = tiny / "mnist" / "t10k-images-idx3-ubyte.gz"
    file.write_bytes(file.read_bytes()[:-9])
    monkeypatch.setenv("MOML_DATA", str(tiny))
    code, out, error = command(capsys, monkeypatch, "check")
    assert code == 2 and error.count("\n") == 1 and error.endswith(": mnist\n")
    assert f"wrong: {file} is truncated" in out and "train 6 images" in out
    code, out, error = command(capsys, monkeypatch, "check", "nosuch")
    assert code == 2 and "allowed: mnist" in error and not out


def test_check_without_a_folder(tiny, capsys, monkeypatch):
    code, out, error = command(capsys, monkeypatch, "check")
    assert code == 2 and "MOML_DATA" in error and not out


def test_list(capsys, monkeypatch):
    code, out, _ = command(capsys, monkeypatch, "list")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == list(SETS)
    assert "background 19,280, evaluation 13,180 images; 16 MB" in out


@pytest.fixture
def served(tiny, server, monkeypatch, tmp_path_factory):
    """A server that has the tiny training images; the other files are there. An empty folder."""
    folder = tmp_path_factory.mktemp("fetched")
    file = "mnist/train-images-idx3-ubyte.gz"
    server.body = (tiny / file).read_bytes()
    for path in (tiny / "mnist").iterdir():
        if path.name not in file:
            (folder / "mnist").mkdir(exist_ok=True)
            (folder / "mnist" / path.name).write_bytes(path.read_bytes())
    sha = hashlib.sha256(server.body).hexdigest()
    archive = Archive(file, len(server.body), sha, (server.url + "/file",))
    monkeypatch.setitem(SETS, "mnist", SETS["mnist"]._replace(archives=(archive,)))
    return folder, server, file


def test_fetch_on_the_command_line(served, capsys, monkeypatch):
    folder, server, file = served
    monkeypatch.setenv("MOML_DATA", str(folder))
    code, out, error = command(capsys, monkeypatch, "fetch", "mnist")
    assert code == 0, error
    assert (folder / file).read_bytes() == server.body
    assert str(folder / file) in out and "ok: train 6 images" in out
    assert error.startswith(f"{file}: 0.0 of 0.0 MB")
    code, out, _ = command(capsys, monkeypatch, "fetch", "mnist")
    assert code == 0 and "it was there already" in out and len(server.asked) == 1


def test_fetch_says_what_went_wrong(served, capsys, monkeypatch):
    folder, server, file = served
    server.way = "404"
    code, _, error = command(capsys, monkeypatch, "fetch", "mnist", "--data-dir", folder)
    assert code == 2 and "404 Client Error" in error and error.count("\n") == 1
    (folder / file).write_bytes(b"mine")
    with pytest.raises(DataError, match=r"train-images.* is not the publisher's"):
        sets.fetch("mnist", folder)
    assert (folder / file).read_bytes() == b"mine"
    code, _, error = command(capsys, monkeypatch, "fetch", "nosuch", "--data-dir", folder)
    assert code == 2 and "allowed: mnist" in error


def test_fetch_leaves_a_good_file_and_a_repacked_copy_alone(served, tiny):
    folder, server, file = served
    (folder / file).write_bytes(server.body)
    assert sets.fetch("mnist", folder) == []
    assert sets.fetch("mnist", tiny) == []
    assert not server.asked


def test_the_catalogue_is_sound():
    for name, one in SETS.items():
        assert len({archive.sha256 for archive in one.archives}) == len(one.archives)
        for archive in one.archives:
            assert len(archive.sha256) == 64 and int(archive.sha256, 16)
            assert archive.size > 1000 and archive.addresses
            assert all(url.startswith("https://") for url in archive.addresses), name
            assert all(url.endswith(archive.file.split("/")[-1]) for url in archive.addresses)
    total = {name: [sum(each) for each in one.counts.values()] for name, one in SETS.items()}
    assert total == {
        "mnist": [60_000, 10_000],
        "fmnist": [60_000, 10_000],
        "cifar10": [50_000, 10_000],
        "cifar100": [50_000, 10_000],
        "omniglot": [964 * 20, 659 * 20],
    }
