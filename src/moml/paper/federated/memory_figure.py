"""Clients' accuracy over beta x shots, with the matching rule drawn across it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from moml.paper.federated.memory import verdicts
from moml.report.figures import pyplot, save
from moml.report.terminal.rows import console

Rows = Sequence[dict[str, Any]]


def print_memory(rows: Rows) -> None:
    """One line a K, memory, number of steps and of shots: the best beta, the rule's, and none."""
    from rich.table import Table

    first = rows[0]
    title = f"Memory among clients, {first['dataset']}, {first['setting']['rounds']:,} rounds, "
    table = Table(title=f"{title}{first['seeds']} seeds; accuracy in percent", title_justify="left")
    table.add_column("method", no_wrap=True)
    names = ("K", "steps", "shots", "best beta", "accuracy", "rule", "taken", "accuracy", "beta 1")
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    number = lambda row: "-" if row["mean"] is None else f"{row['mean']:.1f} ± {row['std']:.1f}"
    for found in verdicts(rows):
        best, rule = found.best["setting"], found.rule["setting"]
        table.add_row(
            found.method, str(found.k), str(found.steps), str(found.shots), f"{best['beta']:g}",
            number(found.best), f"{rule['rule']:.2g}", f"{rule['beta']:g}", number(found.rule),
            number(found.none),
        )  # fmt: skip
    console().print(table)


def memory_figure(rows: Rows, path: Path) -> Path:
    """A row of panels a memory and steps, a column a K: points below the best beta's accuracy."""
    kind = lambda row: (row["method"], row["setting"]["steps"])
    kinds = list(dict.fromkeys(map(kind, rows)))
    ks = sorted({row["setting"]["k"] for row in rows})
    size = (4.6 * len(ks) + 0.8, 2.9 * len(kinds))
    figure, grid = pyplot().subplots(
        len(kinds), len(ks), figsize=size, layout="constrained", squeeze=False
    )
    for line, (name, steps) in zip(grid, kinds, strict=True):
        for axes, k in zip(line, ks, strict=True):
            mine = [r for r in rows if kind(r) == (name, steps) and r["setting"]["k"] == k]
            betas, shots = (
                list(dict.fromkeys(row["setting"][axis] for row in mine))
                for axis in ("beta", "shots")
            )
            at = {(row["setting"]["beta"], row["setting"]["shots"]): row for row in mine}
            value = lambda beta, s, at=at: at[beta, s]["mean"]
            means = np.array([[value(b, s) or np.nan for s in shots] for b in betas], float)
            below = np.nanmax(means, axis=0) - means
            image = axes.imshow(below, cmap="viridis_r", vmin=0, vmax=10, aspect="auto")
            for (b, s), gap in np.ndenumerate(below):
                text = "lost" if np.isnan(gap) else f"{means[b, s]:.1f}"
                colour = "w" if gap > 5 else "k"
                axes.text(s, b, text, ha="center", va="center", fontsize=7, color=colour)
            rule = [at[betas[0], s]["setting"]["rule"] for s in shots]
            places = np.interp(np.log(rule), np.log(betas[::-1]), np.arange(len(betas))[::-1])
            axes.plot(
                range(len(shots)), places, "o-", color="#d55e00", markersize=13,
                markerfacecolor="none", label="rule",
            )  # fmt: skip
            axes.set_xticks(range(len(shots)), [str(s) for s in shots])
            axes.set_yticks(range(len(betas)), [f"{b:g}" for b in betas], fontsize=7)
            word = "step" if steps == 1 else "steps"
            axes.set_title(f"{name}, K = {k}, {steps} {word}", fontsize=9)
            axes.set(xlabel="shots at test", ylabel="β (1: no memory)")
    grid[0, 0].legend(loc="lower left", fontsize=7)
    figure.colorbar(image, ax=grid, label="points below the best β", shrink=0.7)
    return save(figure, path)
