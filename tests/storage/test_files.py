"""Atomic writes: complete files or none, no temporary files left, no links followed."""

import os
import stat

import pytest

from moml.atomic import atomic_write, open_plain
from moml.errors import ConfigError
from moml.storage.files import check_space, write_text
from moml.storage.manifest import seal, verify


def test_a_file_appears_when_it_is_complete(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with atomic_write(path, 0o600) as file:
        file.write(b"new")
        file.flush()
        assert path.read_text() == "old"
        [partial] = {*tmp_path.iterdir()} - {path}
        assert partial.name.startswith(".file.") and partial.read_text() == "new"
    assert path.read_text() == "new" and [*tmp_path.iterdir()] == [path]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, OSError])
def test_an_error_leaves_the_old_file_alone(tmp_path, error):
    (tmp_path / "file").write_text("old")
    with pytest.raises(error), atomic_write(tmp_path / "file") as file:
        file.write(b"new")
        raise error
    assert [*tmp_path.iterdir()] == [tmp_path / "file"]
    assert (tmp_path / "file").read_text() == "old"


def test_a_temporary_file_is_created_exclusively(tmp_path, monkeypatch):
    monkeypatch.setattr("secrets.token_hex", lambda count: "0" * 2 * count)
    (tmp_path / "secret").write_text("secret")
    taken = tmp_path / ".file.0000000000000000.partial"
    os.symlink(tmp_path / "secret", taken)
    with pytest.raises(ConfigError, match=r"cannot write .*file: File exists"):
        write_text("mine", tmp_path / "file")
    assert (tmp_path / "secret").read_text() == "secret" and taken.is_symlink()


def test_a_link_is_replaced_and_not_written_through(tmp_path):
    (tmp_path / "secret").write_text("secret")
    os.symlink(tmp_path / "secret", tmp_path / "file")
    write_text("mine", tmp_path / "file")
    assert (tmp_path / "secret").read_text() == "secret"
    assert not (tmp_path / "file").is_symlink() and (tmp_path / "file").read_text() == "mine"


def test_only_plain_files_are_read(tmp_path):
    (tmp_path / "file").write_text("mine")
    seal(tmp_path)
    assert verify(tmp_path) is None
    os.symlink(tmp_path / "file", tmp_path / "link")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        with pytest.raises(OSError):
            open_plain(tmp_path / name)
    with pytest.raises(OSError, match="not a plain file"):
        open_plain("/dev/null")
    os.replace(tmp_path / "link", tmp_path / "file")
    (tmp_path / "pipe").unlink()
    assert verify(tmp_path) == "file is not a plain file"


def test_missing_space_is_an_error(tmp_path):
    check_space(tmp_path, 1)
    with pytest.raises(OSError, match=r"no space left: .* MB needed, .* MB free"):
        check_space(tmp_path, 1 << 60)
