"""Clients on a terminal: what groups of them score, who scores worst, what their rounds cost."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from moml.report.terminal.rows import console

NAMES = {"took-part": "took part", "unseen": "never took part"}
FIGURES = {  # of a group, as its table calls them
    "before": "accuracy_before",
    "after": "test_accuracy",
    "worst tenth": "worst_decile",
    "spread": "spread",
}
SHOWN = 20  # clients; of more, the worst half as many
Row = dict[str, Any]


def print_clients(rows: Sequence[Row], title: str) -> None:
    """What groups of clients score; then single clients, for the first number of shots."""
    groups = _gathered((row for row in rows if "client" not in row["setting"]), "shots", "group")
    _print(
        f"{title}, %",
        ("clients", "shots", "count", *FIGURES),
        [
            [NAMES[name], str(shots), str(line["clients"]), *_told(line, *FIGURES.values())]
            for (shots, name), line in groups.items()
        ],
    )
    first = rows[0]["setting"]["shots"]
    single = (
        row for row in rows if "client" in row["setting"] and row["setting"]["shots"] == first
    )
    each = _gathered(single, "group", "client")
    ranked = sorted(each.items(), key=lambda item: item[1]["test_accuracy"])
    few = ranked if len(ranked) <= SHOWN else ranked[: SHOWN // 2]
    which = "" if few is ranked else f"; the worst {len(few)} of {len(ranked)}, --json has all"
    _print(
        f"single clients, {first} shots{which}",
        ("clients", "number", "test images", "before", "after"),
        [
            [NAMES[name], str(number), str(line["images"]),
             *_told(line, "accuracy_before", "test_accuracy")]
            for (name, number), line in few
        ],
    )  # fmt: skip


def _gathered(rows: Iterable[Row], *axes: str) -> dict[tuple[Any, ...], Row]:
    """The settings and all metrics of the rows that agree in these axes."""
    lines: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        line = lines.setdefault(tuple(row["setting"][axis] for axis in axes), dict(row["setting"]))
        line[row["metric"]] = row["mean"]
    return lines


def _told(line: Row, *metrics: str) -> list[str]:
    return [f"{line[metric]:.1f}" for metric in metrics]


def _print(title: str, columns: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for name in columns:
        table.add_column(name, justify="left" if name == "clients" else "right")
    for line in lines:
        table.add_row(*line)
    console().print(table)


def cost_line(cost: Mapping[str, int]) -> str:
    """What rounds have cost, in a line.

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
    """Bytes in words.

    >>> size(1_500_000), size(0)
    ('1.5 MB', '0 bytes')
    """
    for power, unit in ((12, "TB"), (9, "GB"), (6, "MB"), (3, "kB")):
        if count >= 10**power:
            return f"{count / 10**power:.3g} {unit}"
    return f"{count:.0f} bytes"
