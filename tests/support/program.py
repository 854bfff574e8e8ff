"""The program `moml` in this process."""

import sys

import pytest

from moml.cli import main


def call(capsys, *words):
    """Exit code, output and errors of a command."""
    code = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["moml", *map(str, words)])
        try:
            main()
        except SystemExit as end:
            code = end.code
    return code, *capsys.readouterr()


def refused(capsys, *words):
    """The one line with which a command is refused."""
    code, _, error = call(capsys, *words)
    assert code == 2 and error.count("\n") == 1, error
    return error.strip()
