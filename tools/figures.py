"""Check that figures quoted in the documentation stand in the results files that are named there.

    python tools/figures.py            every page under docs

A paragraph, list item or table that names `results/NAME.txt` may have no number that is not in that
file, rounded as the text rounds it. A block that names no file, after one that does and ends with a
colon, belongs to that file too. Not looked at: code, formulas, and numbers that are part of a word
(CIFAR-10, 20-way). A comment after a number says where it comes from instead:

    1.5<!-- 73.8 - 72.3 -->            computed: + - * / mean max min sqrt of numbers in the file
    8<!-- setting -->                  no result: a setting, a count of these

The exit code is 1 if a number is not found, and each is printed with its page and line.
"""

import ast
import math
import re
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).resolve().parents[1] / "docs"
NUMBER = re.compile(
    r"(?<![\w.,-])[-+−]?(\d+(?:,\d{3})*(?:\.\d+)?|\.\d+)(e[-+]?\d+)?(?![\w]|-\w|\.\d)"
    r"(?:\s?%?)(?:<!--(?P<source>.*?)-->)?"
)
NAMED = re.compile(r"results/([\w.-]+\.txt)")
FREE = {0.0, 1.0, 2.0, 100.0}  # constants of a formula
FUNCTIONS = {
    "mean": statistics.fmean,
    "max": max,
    "min": min,
    "sqrt": lambda values: math.sqrt(*values),
}


class Block(NamedTuple):
    """A paragraph, list item or table, and the files that its numbers must be in."""

    line: int
    text: str
    files: tuple[str, ...]


def blocks(page: str) -> Iterator[Block]:
    """The blocks of a page that a results file is named for."""
    files: tuple[str, ...] = ()
    open_list = False  # whether the last block that names a file goes on
    for line, text in split(page):
        named = tuple(dict.fromkeys(NAMED.findall(text)))
        listed = text.lstrip().startswith(("- ", "* ", "|"))
        if named:
            files, open_list = named, text.rstrip().endswith(":")
        elif not (open_list and listed):
            files, open_list = (), False
        if files:
            yield Block(line, text, files)


def split(page: str) -> Iterator[tuple[int, str]]:
    """Paragraphs, list items and tables with their first lines; no fenced blocks."""
    text: list[str] = []
    first, fence = 1, ""
    for number, line in enumerate([*page.splitlines(), ""], 1):
        mark = re.match(r"\s*(`{3,}|~{3,}|\${2})", line)
        if fence:
            fence = "" if mark and mark[1].startswith(fence) else fence
            continue
        starts = bool(mark) or re.match(r"\s*([-*]|\d+\.) ", line) or line.startswith("#")
        if text and (not line.strip() or starts):
            yield first, "\n".join(text)
            text = []
        if mark:
            closed = len(re.findall(re.escape(mark[1]), line)) > 1
            fence = "" if closed else mark[1]
        elif line.strip() and not line.startswith("#"):
            first = first if text else number
            text.append(line)


def plain(text: str) -> str:
    """The text without code, formulas and the targets of links."""
    for pattern in (r"`[^`]*`", r"\$[^$]*\$", r"\]\([^)]*\)"):
        text = re.sub(pattern, lambda found: "\n" * found[0].count("\n") + " ` ", text)
    return text


class Quoted(NamedTuple):
    """A number as it is written: its value, and half a unit of its last digit."""

    value: float
    margin: float

    def among(self, known: set[float]) -> bool:
        """Whether one of these, rounded as this one is, is this one."""
        return any(abs(abs(each) - self.value) <= self.margin * (1 + 1e-9) for each in known)


def quoted(digits: str, exponent: str | None) -> Quoted:
    """A number from its text; small whole numbers are exact."""
    value = float(digits.replace(",", "") + (exponent or ""))
    decimals = len(digits.partition(".")[2])
    scale = 10.0 ** int(exponent[1:]) if exponent else 1.0
    exact = not decimals and not exponent and value < 10
    return Quoted(value, 1e-12 if exact else 0.5 * 10.0**-decimals * scale)


def numbers_in(text: str) -> set[float]:
    """All numbers of a results file."""
    found = re.findall(r"(?<![\w.])\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?", text)
    return {float(each.replace(",", "")) for each in found}


def computed(source: str, known: set[float]) -> float | None:
    """The value of a formula over numbers that are known; None if one of them is not."""

    def value(node: ast.AST) -> float:
        match node:
            case ast.Expression(body):
                return value(body)
            case ast.Constant(int() | float() as constant):
                digits, e, power = (ast.get_source_segment(source, node) or "").partition("e")
                if constant not in FREE and not quoted(digits, e + power).among(known):
                    raise KeyError(digits)
                return float(constant)
            case ast.UnaryOp(ast.USub(), operand):
                return -value(operand)
            case ast.BinOp(left, operation, right):
                a, b = value(left), value(right)
                operations = {ast.Add: a + b, ast.Sub: a - b, ast.Mult: a * b}
                return a / b if isinstance(operation, ast.Div) else operations[type(operation)]
            case ast.Call(ast.Name(name), arguments) if name in FUNCTIONS:
                return FUNCTIONS[name]([value(each) for each in arguments])
        raise SyntaxError(ast.dump(node))

    source = source.strip()
    try:
        return value(ast.parse(source, mode="eval"))
    except KeyError:
        return None


def wrong(page: str, results: Path) -> Iterator[tuple[int, str]]:
    """Lines and numbers of a page that no named file has."""
    for block in blocks(page):
        missing = [name for name in block.files if not (results / name).is_file()]
        if missing:
            yield block.line, f"no file results/{missing[0]}"
            continue
        known = set().union(*(numbers_in((results / f).read_text("utf-8")) for f in block.files))
        text = plain(block.text)
        for found in NUMBER.finditer(text):
            digits, exponent, source = found[1], found[2], found["source"]
            number = quoted(digits, exponent)
            line = block.line + text.count("\n", 0, found.start())
            where = f"{found[0].strip()} is not in {', '.join(block.files)}"
            if source is None:
                right = number.among(known)
            elif source.strip() == "setting":
                right = True
            else:
                try:
                    value = computed(source, known)
                except (SyntaxError, KeyError, ZeroDivisionError):
                    yield line, f"{found[0].strip()}: the comment is no formula"
                    continue
                right = value is not None and number.among({value})
            if not right:
                yield line, where


def main(docs: Path = DOCS) -> int:
    """Check every page; print what is wrong."""
    count = checked = 0
    for page in sorted(docs.rglob("*.md")):
        if "_build" in page.parts:
            continue
        text = page.read_text("utf-8")
        checked += sum(1 for _ in blocks(text))
        for line, why in wrong(text, docs / "results"):
            print(f"{page.relative_to(docs.parent)}:{line}: {why}")
            count += 1
    print(f"{checked} blocks that name a results file, {count} numbers that are not there")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
