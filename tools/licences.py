"""For the release notes: the licences of what `pip install moml[EXTRA]` brings in, and `pip check`.

python tools/licences.py [EXTRA ...]

A line for each package, from the metadata of those that are installed here. The exit code is 1 if a
licence is not stated, a package is missing, or `pip check` finds versions that do not fit.
"""

import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

UNKNOWN = "not stated"
OSI = "License :: OSI Approved :: "


def brought(name: str, extras: Iterable[str] = ()) -> dict[str, Distribution | None]:
    """The packages that an install brings in, by name; None where one is not installed."""
    found: dict[str, Distribution | None] = {}
    todo, seen = [(canonicalize_name(name), frozenset(extras))], set()
    while todo:
        if (at := todo.pop()) in seen:
            continue
        seen.add(at)
        package, wanted = at
        try:
            found[package] = distribution(package)
        except PackageNotFoundError:
            found[package] = None
            continue
        for text in found[package].requires or []:
            needed = Requirement(text)
            ways = [{"extra": extra} for extra in ("", *wanted)]
            if needed.marker is None or any(map(needed.marker.evaluate, ways)):
                todo.append((canonicalize_name(needed.name), frozenset(needed.extras)))
    return dict(sorted(found.items()))


def licence(package: Distribution) -> str:
    """The licence that a package states: its expression, its classifiers, or a short text."""
    about = package.metadata
    if expression := about.get("License-Expression"):
        return expression
    kinds = [text for text in about.get_all("Classifier") or [] if text.startswith("License ::")]
    named = ", ".join(text.removeprefix(OSI).rpartition(" :: ")[2] for text in kinds)
    first = (about.get("License") or "").strip().partition("\n")[0][:60]
    return named or first or UNKNOWN


def main() -> int:
    """Print the table, and what pip says."""
    problems = 0
    print("| package | version | licence |\n|---|---|---|")
    for name, package in brought("moml", sys.argv[1:]).items():
        version, text = (package.version, licence(package)) if package else ("-", "not installed")
        problems += package is None or text == UNKNOWN
        print(f"| {name} | {version} | {text} |")
    check = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True)
    print(f"\npip check: {' '.join((check.stdout + check.stderr).split())}")
    return int(bool(problems or check.returncode))


if __name__ == "__main__":
    sys.exit(main())
