"""Clients on a terminal: what groups of them score, who scores worst, what their rounds cost."""

from collections.abc import Mapping, Sequence
from typing import Any

from moml.report.tables import console

SHOWN = 20  # clients; of more, the worst half as many


def print_clients(rows: Sequence[dict[str, Any]], title: str) -> None:
    """A table of groups of clients, and one of single clients for the first number of shots."""
    from rich.table import Table

    groups: dict[tuple[int, str], dict[str, float]] = {}
    each: dict[tuple[str, int], dict[str, float]] = {}
    first = rows[0]["setting"]["shots"]
    for row in rows:
        at = row["setting"]
        if "client" not in at:
            line = groups.setdefault((at["shots"], at["group"]), {"clients": at["clients"]})
            line[row["metric"]] = row["mean"]
        elif at["shots"] == first:
            line = each.setdefault((at["group"], at["client"]), {"images": at["images"]})
            line[row["metric"]] = row["mean"]
    table = Table(title=f"{title}, %", title_justify="left")
    names = ("shots", "clients", "", "before", "after", "worst tenth", "spread")
    for name in names:
        table.add_column(name, justify="left" if name == "clients" else "right")
    for (shots, name), line in groups.items():
        told = [line[key] for key in KEYS]
        table.add_row(
            str(shots), NAMES[name], str(line["clients"]), *(f"{value:.1f}" for value in told)
        )
    console().print(table)
    ranked = sorted(each.items(), key=lambda item: item[1]["test_accuracy"])
    few = ranked if len(ranked) <= SHOWN else ranked[: SHOWN // 2]
    which = "" if few is ranked else f"; the worst {len(few)} of {len(ranked)}, --json has all"
    worst = Table(title=f"each client, {first} shots{which}", title_justify="left")
    for name in ("clients", "number", "test images", "before", "after"):
        worst.add_column(name, justify="left" if name == "clients" else "right")
    for (name, number), line in few:
        before, after = line["accuracy_before"], line["test_accuracy"]
        worst.add_row(
            NAMES[name], str(number), str(line["images"]), f"{before:.1f}", f"{after:.1f}"
        )
    console().print(worst)


NAMES = {"took-part": "took part", "unseen": "never took part"}
KEYS = ("accuracy_before", "test_accuracy", "worst_decile", "spread")


def cost_line(cost: Mapping[str, int]) -> str:
    """What rounds have cost, in a line.

    >>> cost_line({"down": 12_300_000_000, "up": 5_000, "gradients": 4_100_000, "products": 0,
    ...            "samples": 900})
    '12.3 GB down, 5 kB up; at the clients 4,100,000 gradients, 900 samples'
    """
    products = f"{cost['products']:,} Hessian-vector products, " if cost["products"] else ""
    return (
        f"{_bytes(cost['down'])} down, {_bytes(cost['up'])} up; at the clients "
        f"{cost['gradients']:,} gradients, {products}{cost['samples']:,} samples"
    )


def _bytes(count: int) -> str:
    for power, unit in ((12, "TB"), (9, "GB"), (6, "MB"), (3, "kB")):
        if count >= 10**power:
            return f"{count / 10**power:.3g} {unit}"
    return f"{count} bytes"
