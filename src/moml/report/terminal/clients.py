"""Clients on a terminal: scores of groups, the worst clients, the cost of rounds."""

from collections.abc import Iterable, Mapping, Sequence

from moml.report.terminal.rows import print_table
from moml.types import Record

NAMES = {"took-part": "took part", "unseen": "never took part"}
FIGURES = {  # column -> metric
    "before": "accuracy_before",
    "after": "test_accuracy",
    "worst tenth": "worst_decile",
    "spread": "spread",
}
SHOWN = 20  # clients; of more, only the worst half as many


def print_clients(rows: Sequence[Record], title: str) -> None:
    """Print the scores of groups of clients, then of single clients for the first `shots`."""
    groups = _merged([row for row in rows if "client" not in row["setting"]], "group", "shots")
    lines = [
        [NAMES[line["group"]], str(line["shots"]), str(line["clients"]),
         *(f"{line[metric]:.1f}" for metric in FIGURES.values())]
        for line in groups
    ]  # fmt: skip
    print_table(f"{title}, %", ("clients", "shots", "count", *FIGURES), lines)
    first = rows[0]["setting"]["shots"]
    single = [row for row in rows if "client" in row["setting"]]
    single = [row for row in single if row["setting"]["shots"] == first]
    ranked = sorted(_merged(single, "group", "client"), key=lambda line: line["test_accuracy"])
    few = ranked if len(ranked) <= SHOWN else ranked[: SHOWN // 2]
    which = "" if few is ranked else f"; the worst {len(few)} of {len(ranked)}, --json has all"
    lines = [
        [NAMES[line["group"]], str(line["client"]), str(line["images"]),
         f"{line['accuracy_before']:.1f}", f"{line['test_accuracy']:.1f}"]
        for line in few
    ]  # fmt: skip
    columns = ("clients", "number", "test images", "before", "after")
    print_table(f"single clients, {first} shots{which}", columns, lines)


def _merged(rows: Iterable[Record], *axes: str) -> list[Record]:
    """Merge rows that agree in these axes into one record with all their metrics."""
    lines: dict[tuple[object, ...], Record] = {}
    for row in rows:
        line = lines.setdefault(tuple(row["setting"][axis] for axis in axes), dict(row["setting"]))
        line[row["metric"]] = row["mean"]
    return list(lines.values())


def cost_line(cost: Mapping[str, int]) -> str:
    """Cost of rounds in one line.

    >>> cost_line({"down": 12_300_000_000, "up": 5_000, "gradients": 4_100_000, "products": 0,
    ...            "samples": 900})
    '12.3 GB down, 5 kB up; at the clients 4,100,000 gradients, 900 samples'
    """
    products = f"{cost['products']:,} Hessian-vector products, " if cost["products"] else ""
    return (
        f"{size(cost['down'])} down, {size(cost['up'])} up; at the clients "
        f"{cost['gradients']:,} gradients, {products}{cost['samples']:,} samples"
    )


def size(count: float | int) -> str:
    """Number of bytes with a unit.

    >>> size(1_500_000), size(0)
    ('1.5 MB', '0 bytes')
    """
    for power, unit in ((12, "TB"), (9, "GB"), (6, "MB"), (3, "kB")):
        if count >= 10**power:
            return f"{count / 10**power:.3g} {unit}"
    return f"{count:.0f} bytes"
