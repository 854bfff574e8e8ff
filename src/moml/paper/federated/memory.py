"""Where memory pays among clients: accuracy over K, beta and shots, restarted and carried."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from moml.algorithms.single.matching import match_beta, match_restart
from moml.paper.cells import train
from moml.paper.federated.cells import CARRIED, CLIENTS, TEST_STEPS, Cell, compose, decays_twice
from moml.paper.federated.data import Problem, drawn, half, scorer
from moml.paper.search import best_first
from moml.report.figures import heat_map, legend_below, panels, save
from moml.report.terminal import mean_std, print_table
from moml.training.rows import result_row
from moml.types import Record

BETAS = (1.0, 0.7, 0.5, 0.33, 0.2, 0.1, 0.05)
ETAS, ALPHA = (0.005, 0.01, 0.02), 0.03
SHOTS, STEPS = (1, 2, 5, 10, 20), (1, TEST_STEPS)
MEMORIES = {"restarted": "localmoml", "carried": CARRIED}


class Study(NamedTuple):
    """One training of all beta and eta."""

    dataset: str
    k: int
    memory: str  # restarted, carried
    h: int
    clients: int
    rounds: int

    def rule(self, shots: int, steps: int) -> float:
        """The matching rule's beta."""
        if self.memory == "restarted":
            return match_restart(self.k, shots, local_steps=self.h, restart_samples=self.k)
        visits = self.rounds * self.h * self.clients / CLIENTS
        return match_beta(self.k, shots, steps=steps, visits=visits)


def measured(study: Study, problem: Problem, seeds: int, progress: bool) -> list[Record]:
    """Rows of a study: each beta at its best eta by one half of the test, scored on the other."""
    count, name = study.rounds * study.h, MEMORIES[study.memory]
    cell = Cell("strict", study.dataset, name, study.h, study.clients, study.k)
    run = train(
        compose(cell, problem.loss), problem.loss, problem.net.init, problem.train,
        seeds=seeds, grid={"beta": BETAS, "eta": ETAS, "alpha": [ALPHA]}, iterations=count,
        schedule=decays_twice(count), progress=progress,
    ).run  # fmt: skip
    shape = (len(BETAS), len(ETAS), seeds)
    lost = run.lost.reshape(shape)

    def accuracy(which: int, shots: int) -> Float[np.ndarray, "betas etas seeds steps"]:
        rows = drawn(half(problem.test.rows, which), seeds, few=False, salt=which + 1, shots=shots)
        score = scorer(problem, problem.test, rows, cell.switches, steps=TEST_STEPS)
        return score(run.meta, run.hyper.alpha).mean(axis=1).reshape(*shape, -1)

    found = []
    for shots in SHOTS:
        tuning, seen = accuracy(0, shots), accuracy(1, shots)
        for steps, (i, beta) in itertools.product(STEPS, enumerate(BETAS)):
            at = best_first(tuning[i, :, :, steps], lost[i])[0]
            setting = {
                "k": study.k, "shots": shots, "beta": beta, "steps": steps, "h": study.h,
                "clients": study.clients, "rounds": study.rounds, "eta": ETAS[at], "alpha": ALPHA,
                "rule": round(study.rule(shots, steps), 3),
            }  # fmt: skip
            found.append(result_row(
                table="federated-memory", dataset=study.dataset, setting=setting,
                method=cell.method, metric="accuracy", values=seen[i, at, :, steps],
                lost=lost[i, at], samples=run.samples, iterations=count,
            ))  # fmt: skip
    return found


class Verdict(NamedTuple):
    """The rows of the best beta, of the beta nearest to the rule's, and of no memory."""

    best: Record
    rule: Record
    none: Record


def verdicts(rows: Sequence[Record]) -> Iterator[Verdict]:
    """What the rows of some studies show, for each method, K, number of steps and of shots."""
    key = lambda row: (row["method"], *(row["setting"][name] for name in ("k", "steps", "shots")))
    for _, group in itertools.groupby(sorted(rows, key=key), key):
        mine = [row for row in group if row["mean"] is not None]
        if not mine:
            continue
        log = lambda row: abs(np.log(row["setting"]["beta"] / row["setting"]["rule"]))
        best = max(mine, key=lambda row: row["mean"])
        none = next((row for row in mine if row["setting"]["beta"] == 1), best | {"mean": None})
        yield Verdict(best, min(mine, key=log), none)


def print_memory(rows: Sequence[Record]) -> None:
    """One line a K, memory, number of steps and of shots: the best beta, the rule's, and none."""
    first = rows[0]
    title = f"Memory among clients, {first['dataset']}, {first['setting']['rounds']:,} rounds, "
    title += f"{first['seeds']} seeds; accuracy in percent"
    columns = ["method", "K", "steps", "shots", "best beta", "accuracy"]
    columns += ["rule", "taken", "accuracy", "beta 1"]
    beta = lambda row: f"{row['setting']['beta']:g}"
    number = lambda row: mean_std(row["mean"], row["std"], ".1f")
    lines = [
        (best["method"], *(best["setting"][name] for name in ("k", "steps", "shots")), beta(best),
         number(best), f"{rule['setting']['rule']:.2g}", beta(rule), number(rule), number(none))
        for best, rule, none in verdicts(rows)
    ]  # fmt: skip
    print_table(title, columns, lines, no_wrap=columns)


def memory_figure(rows: Sequence[Record], path: Path) -> Path:
    """A row of panels a memory and steps, a column a K: points below the best beta's accuracy."""
    kind = lambda row: (row["method"], row["setting"]["steps"])
    kinds = list(dict.fromkeys(map(kind, rows)))
    ks = sorted({row["setting"]["k"] for row in rows})
    figure, grid = panels(len(kinds), len(ks), (4.6 * len(ks) + 0.8, 2.9 * len(kinds)))
    for line, (name, steps) in zip(grid, kinds, strict=True):
        for axes, k in zip(line, ks, strict=True):
            mine = [r for r in rows if kind(r) == (name, steps) and r["setting"]["k"] == k]
            at = {(row["setting"]["beta"], row["setting"]["shots"]): row for row in mine}
            betas, shots = (list(dict.fromkeys(axis)) for axis in zip(*at, strict=True))
            means = np.array([[at[b, s]["mean"] for s in shots] for b in betas], float)
            below = np.nanmax(means, axis=0) - means
            texts = np.where(np.isnan(means), "lost", np.char.mod("%.1f", means))
            rule = [at[betas[0], s]["setting"]["rule"] for s in shots]
            image = heat_map(axes, below, betas, shots, rule, most=10, texts=texts)
            word = "step" if steps == 1 else "steps"
            axes.set_title(f"{name}, K = {k}, {steps} {word}")
            axes.set(xlabel="shots at test", ylabel="β (1: no memory)")
    legend_below(figure, grid.flat)
    figure.colorbar(image, ax=grid, label="points below the best β", shrink=0.7)
    return save(figure, path)
