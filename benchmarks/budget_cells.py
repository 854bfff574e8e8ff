"""The cells of `moml reproduce budget` on a CPU, each in a process of its own.

    python benchmarks/budget_cells.py OUT.json [--processes 3] [--minutes 8]

The file has the rows of each cell as soon as it is done; the same words go on from there.
`moml reproduce budget --full --families ... --rows OUT.json` prints its table.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from moml.paper.budget import study
from moml.paper.budget.families import FAMILIES
from moml.types import Record
from pool import positive, run_all, whole


class Cell(NamedTuple):
    """A family, the iterations at K = 1, and K."""

    family: str
    budget: int
    k: int
    seeds: int


def rows_of(cell: Cell) -> list[Record]:
    """Train and test the grid of one cell."""
    family = FAMILIES[cell.family](None)._replace(budget=cell.budget)
    plan = replace(study.FULL, seeds=cell.seeds)
    return study.measured(family, plan, cell.k)


def main() -> None:
    """Parse the words."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--processes", type=whole, default=2)
    parser.add_argument("--minutes", type=positive, default=1e6)
    parser.add_argument("--seeds", type=whole, default=3)
    parser.add_argument(
        "--cells", nargs="+", metavar="FAMILY:BUDGET",
        default=["sine-25:40000", "sine-25:160000", "logistic:40000", "sine-400:40000"],
    )  # fmt: skip
    parser.add_argument("--k", type=whole, nargs="+", default=study.FULL.ks)
    options = parser.parse_args()
    rows: list[Record] = json.loads(options.out.read_text()) if options.out.exists() else []
    known = {(row["dataset"], row["iterations"], row["setting"]["k"]) for row in rows}
    every = [
        Cell(name, int(budget), k, options.seeds)
        for name, budget in (pair.split(":") for pair in options.cells) for k in options.k
    ]  # fmt: skip
    todo = [cell for cell in every if (cell.family, cell.budget // cell.k, cell.k) not in known]

    def keep(cell: Cell, found: list[Record]) -> None:
        rows.extend(found)
        part = options.out.with_suffix(".part")
        part.write_text(json.dumps(rows))
        part.replace(options.out)

    run_all(rows_of, todo, keep, processes=options.processes, minutes=options.minutes)


if __name__ == "__main__":
    main()
