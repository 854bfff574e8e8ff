"""The docs: names that they mention exist, and the notebooks' outputs are stored and small."""

import base64
import json
import re
from importlib import import_module
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))
PICTURE = 60_000  # bytes


def resolve(name):
    """The object with a dotted name: a module, or an attribute of one."""
    parts = name.split(".")
    found = import_module(parts[0])
    for i, part in enumerate(parts[1:], start=2):
        try:
            found = getattr(found, part)
        except AttributeError:
            found = import_module(".".join(parts[:i]))
    return found


def test_what_others_call_by_another_name_exists():
    text = (DOCS / "guide" / "from-other-libraries.md").read_text("utf-8")
    names = set(re.findall(r"\bmoml(?:\.[A-Za-z_]\w*)+", text))
    assert len(names) > 40 and all(resolve(name) is not None for name in names)
    with pytest.raises(ImportError):
        resolve("moml.no_such_name")


def test_what_others_call_by_another_name_is_a_command_or_a_method():
    from moml.cli import COMMANDS
    from moml.methods import METHODS

    text = (DOCS / "guide" / "from-other-libraries.md").read_text("utf-8")
    assert {name for name in re.findall(r"`moml ([a-z]+)", text)} <= set(COMMANDS)
    named = re.findall(r"methods? `\"([a-z-]+)\"", text) + re.findall(r"--method ([a-z-]+)", text)
    assert named and set(named) <= {*METHODS}


def outputs_of(path):
    cells = [c for c in json.loads(path.read_text("utf-8"))["cells"] if c["cell_type"] == "code"]
    return cells, [output for cell in cells for output in cell["outputs"]]


def test_there_are_six_notebooks():
    assert len(NOTEBOOKS) == 6
    gallery = (DOCS / "index.md").read_text("utf-8")
    assert all(f"notebooks/{path.stem}" in gallery for path in NOTEBOOKS)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_of_a_notebook_are_stored_and_small(path):
    cells, outputs = outputs_of(path)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert outputs and "error" not in {output["output_type"] for output in outputs}
    assert not [o for o in outputs if o.get("name") == "stderr"], "a warning is shown"
    assert path.stat().st_size < 300_000
    for output in outputs:
        data = output.get("data", {})
        assert len(base64.b64decode(data.get("image/png", ""))) < PICTURE
        said = json.dumps([output.get("text"), data.get("text/plain"), data.get("text/html")])
        assert not re.search(r"(?<![\w.])/(home|root|tmp|usr|opt|work|Users)/", said), said
