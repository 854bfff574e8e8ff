"""What the documentation quotes: numbers of results files, names of our modules."""

import importlib
import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [page for page in sorted((ROOT / "docs").rglob("*.md")) if "_build" not in page.parts]


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("figures", ROOT / "tools" / "figures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_quoted_figure_stands_in_its_file(tool, capsys):
    assert tool.main() == 0, capsys.readouterr().out


@pytest.fixture
def results(tmp_path):
    (tmp_path / "a.txt").write_text("method  66.25 ± 1.55\nother 2.2e-02, 1,500 rounds, K = 5\n")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("66.25 and 66.2 and 66.3, 66 % (`results/a.txt`)", []),
        ("66.4 (`results/a.txt`)", ["66.4"]),
        ("66.4 and nothing named", []),
        ("2.2e-2 and 0.022, 1,500 and 1500 (`results/a.txt`)", []),
        ("2.3e-2 or 0.023 (`results/a.txt`)", ["2.3e-2", "0.023"]),
        ("CIFAR-10, 20-way, H200, `7`, $7$ and [7](x.md#7) (`results/a.txt`)", ["7"]),
        ("K = 5, not 4 (`results/a.txt`)", ["4"]),
        ("64.7<!-- 66.25 - 1.55 --> (`results/a.txt`)", []),
        ("64.8<!-- 66.25 - 1.55 --> (`results/a.txt`)", ["64.8"]),
        ("64.7<!-- 66.4 - 1.7 --> (`results/a.txt`)", ["64.7"]),
        ("33.9<!-- mean(66.25, 1.55) --> and 64<!-- setting --> (`results/a.txt`)", []),
        ("0.014<!-- 2.2e-02 / 1.55 --> (`results/a.txt`)", []),
        ("0.015<!-- 2.3e-02 / 1.55 --> (`results/a.txt`)", ["0.015"]),
        ("9<!-- whatever --> (`results/a.txt`)", ["9"]),
        ("-66.25 is -66.2 (`results/a.txt`)", []),
        ("results (`results/b.txt`)", ["no file"]),
        ("From `results/a.txt`:\n\n- 66.2\n- 66.9\n\nThen 7.", ["66.9"]),
        ("From `results/a.txt`:\n\n| 1.6 | 8.1 |\n|---|---|\n| 1.55 | 8.2 |", ["8.1", "8.2"]),
        ("From `results/a.txt`.\n\n- 7", []),
        ("```\n7 results/a.txt\n```\n\n7", []),
    ],
)
def test_numbers_that_are_not_there_are_named(tool, results, text, missing):
    told = [why for _, why in tool.wrong(text, results)]
    assert len(told) == len(missing) and all(map(str.startswith, told, missing)), told


def test_the_line_of_a_number_and_the_exit_code(tool, results, tmp_path, capsys):
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "a.txt").write_text("1.5")
    (tmp_path / "page.md").write_text("# Title 9\n\nHere 1.5\nand 1.7 of `results/a.txt`.\n")
    assert tool.main(tmp_path) == 1
    assert "page.md:4: 1.7 is not in a.txt" in capsys.readouterr().out
    (tmp_path / "page.md").write_text("1.5 of `results/a.txt`")
    assert tool.main(tmp_path) == 0


def resolved(name):
    """Whether a dotted name is a module, or something in one."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        for part in parts[length:]:
            found = getattr(found, part, None)
        return found is not None
    return False


def test_names_on_the_pages_exist():
    assert resolved("moml.methods.moml_v1") and not resolved("moml.methods.no_such")
    code = re.compile(r"`(moml(?:\.\w+)+)(?:\([^`]*\))?`")
    texts = {page.name: re.sub(r"```.*?```", "", page.read_text(), flags=re.S) for page in PAGES}
    stale = {name: page for page, text in texts.items() for name in code.findall(text)
             if not resolved(name)}  # fmt: skip
    assert not stale
