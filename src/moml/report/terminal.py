"""Tables on a terminal: result rows, groups of clients, the models of a user's own table."""

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from moml.errors import printable
from moml.report.clients import ABOUT, client_lines, clients_in, group_lines, metric_in
from moml.types import Record

SHOWN = 20  # clients; of more, only the worst half as many
OURS = ("personal", "pooled")  # rows of a table's scores that are no rivals
NARROW = {"box": SIMPLE_HEAD, "padding": (0, 1, 0, 0), "pad_edge": False}  # look of wide tables
FEWEST = 6  # tasks; of fewer, all may be on one side by chance in more than 5 % of cases
PAYS = 0.99  # personalisation pays below this share of the best score without adaptation


def print_table(
    title: str | None, columns: Sequence[str], lines: Iterable[Iterable[object]],
    no_wrap: Collection[str] = (), **look: Any,
) -> None:  # fmt: skip
    """Print a table, 110 columns wide in a file; its first column is aligned left, others right."""
    cell = lambda value: escape(printable(value))
    table = Table(title=title and cell(title), title_justify="left", **look)
    for i, name in enumerate(columns):
        table.add_column(cell(name), justify="right" if i else "left", no_wrap=name in no_wrap)
    for line in lines:
        table.add_row(*map(cell, line))
    Console(width=None if sys.stdout.isatty() else 110).print(table)


def number(value: float | int | None, form: str = ".3g") -> str:
    """A number, or a dash for None."""
    return "-" if value is None else f"{value:{form}}"


def mean_std(mean: float | int | None, std: float | int | None, form: str = ".3f") -> str:
    """`mean ± std`, or a dash for None."""
    return "-" if mean is None else f"{mean:{form}} ± {std:{form}}"


def print_rows(rows: Sequence[Record], title: str) -> None:
    """Print the setting, method, mean, standard deviation, lost seeds and cost of each row.

    Which of a client's models was scored is in the title.
    """
    axes = [name for name in rows[0]["setting"] if name != "model"]
    model = rows[0]["setting"].get("model")
    title = title if model is None else f"{title}, {model} models"
    score = rows[0]["metric"].replace("_", " ")
    columns = ("method", *axes, score, "seeds", "lost", "samples", "seconds")
    spread = lambda row: mean_std(row["mean"], row["std"])
    lines = [
        (row["method"], *(number(row["setting"][name]) for name in axes),
         spread(row) if row["seeds"] > 1 else number(row["mean"], ".3f"),
         str(row["seeds"]), str(row["lost"]), f"{row['samples']:,}", f"{row['seconds']:.1f}")
        for row in rows
    ]  # fmt: skip
    print_table(title, columns, lines, no_wrap=[score])


def print_beside_paper(rows: Sequence[Record], title: str) -> None:
    """Print our scores beside the printed ones."""
    columns = ("method", *rows[0]["setting"], "ours", "printed", "lost")
    lines = [
        (row["method"], *map(number, row["setting"].values()),
         mean_std(row["mean"], row["std"]), mean_std(row["paper_mean"], row["paper_std"]),
         f"{row['lost']} of {row['seeds']}")
        for row in rows
    ]  # fmt: skip
    print_table(title, columns, lines)


def print_accuracies(rows: Sequence[Record], title: str) -> None:
    """Print accuracies beside the printed ones, with the iterations and seconds of each row."""
    both = ("ours, %", "printed, %")
    columns = ("method", "eta", "beta", "iterations", *both, "lost", "seconds")
    lines = [
        (row["method"],
         *(number(row["setting"].get(n) if row["iterations"] else None) for n in ("eta", "beta")),
         f"{row['iterations']:,}", mean_std(row["mean"], row["std"], ".2f"),
         mean_std(row["paper_mean"], row["paper_std"], ".2f"),
         f"{row['lost']} of {row['seeds']}", f"{row['seconds']:.1f}")
        for row in rows
    ]  # fmt: skip
    print_table(title, columns, lines, no_wrap=columns)


def print_settings(rows: Sequence[Record], title: str) -> None:
    """Print one metric of a study: a line per method and S2, a column per eta."""
    lines: dict[tuple[str, str], str] = {}
    for row in rows:
        key = row["setting"]["s2"], row["method"]
        cell = f"{number(row['mean'], '9.1e')} (eta {row['setting']['eta']:.3g})"
        lines[key] = lines.get(key, "") + f"{cell:<26}"
    print(f"\n{title}; {rows[0]['seeds']} seeds")
    for (s2, method), cells in lines.items():
        print(f"  S2 {s2:<12}{method:<21}{cells}")


def print_clients(rows: Sequence[Record], title: str) -> None:
    """Print the scores of groups of clients by each model, then those of single clients."""
    metric = metric_in(rows)
    unit = ", %" if "accuracy" in metric else ""
    print_table(f"{title}{unit}", *group_lines(rows))
    ranked = clients_in(rows)
    few = ranked if len(ranked) <= SHOWN else ranked[: SHOWN // 2]
    which = "" if few is ranked else f"; the worst {len(few)} of {len(ranked)}, --json has all"
    print_table(f"single clients{which}", *client_lines(few, metric))
    for model in dict.fromkeys(row["setting"].get("model") for row in rows):
        if model in ABOUT:
            print(f"{model + ':':<12}{ABOUT[model]}")


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


def print_scores(rows: Sequence[Record], target: str) -> None:
    """Print a table per metric: a line per number of known rows, a column per model."""
    for metric in dict.fromkeys(row["metric"] for row in rows):
        first = next(row for row in rows if row["metric"] == metric)
        about = f"{plural(first['tasks'], 'held-out task')}, {plural(first['rows'], 'row')}"
        title = f"{metric.replace('_', ' ')} of {target} by known rows: {about}"
        print(printable(title), flush=True)
        shots, scores = score_grid(rows, metric)
        lines = [[k, *cells] for k, *cells in zip(map(str, shots), *scores.values(), strict=True)]
        print_table(None, ["rows", *scores], lines, box=SIMPLE_HEAD, padding=0, show_edge=False)
        for line in differences(rows, metric):
            print(line, flush=True)
    print("± is the standard deviation of the tasks' own scores", flush=True)


def score_grid(rows: Sequence[Record], metric: str) -> tuple[list[int], dict[str, list[str]]]:
    """Numbers of known rows, and for each model `mean ± std` at these numbers."""
    mine = [row for row in rows if row["metric"] == metric]
    scores: dict[str, list[str]] = {}
    for row in mine:
        cell = f"{figure(row['mean'])} ± {figure(row['std'], 2)}"
        scores.setdefault(row["model"], []).append(cell)
    return list(dict.fromkeys(row["shots"] for row in mine)), scores


def differences(rows: Sequence[Record], metric: str) -> list[str]:
    """A line on the intervals, over tasks, of other models' scores minus that of the personal one.

    >>> row = {"metric": "rmse", "shots": 3, "tasks": 9}
    >>> differences([row | {"model": "pooled", "above": [0.5, 1.25]}], "rmse")
    ['score minus personal after 3 rows, 95 % interval over 9 tasks: pooled 0.5 to 1.25']
    """
    most = max(row["shots"] for row in rows)
    some = [row for row in rows if (row["metric"], row["shots"]) == (metric, most)]
    some = [row for row in some if row["model"] != "personal" and "above" in row]
    some = [row for row in some if row["tasks"] >= FEWEST]
    ends = ("{model} {} to {}".format(*(figure(e, 3) for e in r["above"]), **r) for r in some)
    of = f"95 % interval over {plural(some[0]['tasks'], 'task')}" if some else ""
    said = f"score minus personal after {plural(most, 'row')}, {of}: {', '.join(ends)}"
    return [said] if some else []


def figure(value: float, digits: int = 4) -> str:
    """A number with so many digits that count, without an exponent up to a billion.

    >>> figure(0.25), figure(95129.6), figure(61234.0, 2), figure(1.5e-9)
    ('0.25', '95,130', '61,000', '1.5e-09')
    """
    text = f"{value:.{digits}g}"
    return f"{float(text):,.0f}" if "e+" in text and abs(value) < 1e9 else text


def verdict(rows: Sequence[Record]) -> str:
    """Compare the personal model, with most known rows, to the best score without adaptation.

    Where rows have intervals of differences, over tasks, these must support what is said, and be
    over `FEWEST` tasks or more.
    """
    metric = "rmse" if any(row["metric"] == "rmse" for row in rows) else "log_loss"
    mine = [row for row in rows if row["metric"] == metric]
    scores = {(row["model"], row["shots"]): row["mean"] for row in mine}
    most = max(row["shots"] for row in rows)
    above = {row["model"]: row.get("above") for row in mine if row["shots"] == most}
    after = scores["personal", most]
    before = min(scores["personal", 0], scores["pooled", 0])
    both = f"{figure(after)} after {plural(most, 'row')}, {figure(before)} without any"
    result = f"{metric.replace('_', ' ')} {both}"
    low, high = above["personal"] or (before - after,) * 2  # of the gain
    tasks = max(row["tasks"] for row in rows)
    few = tasks < FEWEST and above["personal"] is not None
    rivals = [model for model, shots in scores if shots == most and model not in OURS]
    name = min(rivals, key=lambda model: scores[model, most], default="personal")
    if scores[name, most] < after:
        result += f"; but {name} alone has {figure(scores[name, most])}"
        worse = above[name]
        result += ", which may be chance" if worse and (few or worse[1] >= 0) else ""
    if high < (1 - PAYS) * before and not few:
        return f"personalisation does not pay on this table: {result}"
    if after <= PAYS * before and low > 0 and not few:
        return f"personalisation pays: {result}"
    return f"{plural(tasks, 'task')} cannot tell whether personalisation pays: {result}"


def plural(count: int, noun: str) -> str:
    """A count with its noun.

    >>> plural(1, "row"), plural(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
