"""Where memory pays among clients: accuracy over K, beta and shots, restarted and carried."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from moml.algorithms.single.matching import match_beta, match_restart
from moml.paper.federated.cells import Cell, compose, decays_twice
from moml.paper.federated.data import Problem, drawn, half
from moml.paper.federated.protocols import CARRIED, CLIENTS, TEST_STEPS
from moml.paper.federated.score import scorer
from moml.training.sweep import mean_of_seeds, means_to_choose_by, sweep

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

    @property
    def cell(self) -> Cell:
        """The same as a cell of the table."""
        name = MEMORIES[self.memory]
        return Cell("strict", self.dataset, name, self.h, self.clients, self.k)

    def rule(self, shots: int, steps: int) -> float:
        """The matching rule's beta."""
        if self.memory == "restarted":
            return match_restart(self.k, shots, local_steps=self.h, restart_samples=self.k)
        visits = self.rounds * self.h * self.clients / CLIENTS
        return match_beta(self.k, shots, steps=steps, visits=visits)


def measured(study: Study, problem: Problem, seeds: int, progress: bool) -> list[dict[str, Any]]:
    """Rows of a study: each beta at its best eta by one half of the test, scored on the other."""
    cell, count = study.cell, study.rounds * study.h
    run = sweep(
        compose(cell, problem.loss), problem.loss, problem.net.init, problem.train,
        seeds=seeds, grid={"beta": BETAS, "eta": ETAS, "alpha": [ALPHA]}, iterations=count,
        schedule=decays_twice(count), progress=progress,
    )  # fmt: skip
    shape = (len(BETAS), len(ETAS), seeds)
    lost = run.lost.reshape(shape)

    def accuracy(which: int, shots: int) -> np.ndarray:  # [betas, etas, seeds, steps]
        rows = drawn(half(problem.test.rows, which), seeds, few=False, salt=which + 1, shots=shots)
        score = scorer(
            problem.net, problem.loss, problem.test, rows, cell.switches, steps=TEST_STEPS
        )
        return score(run.meta, run.hyper.alpha).mean(axis=1).reshape(*shape, -1)

    found = []
    for shots in SHOTS:
        tuning, seen = accuracy(0, shots), accuracy(1, shots)
        for steps, (i, beta) in itertools.product(STEPS, enumerate(BETAS)):
            at = int(np.argmax(means_to_choose_by(tuning[i, :, :, steps], lost[i])))
            mean, std = mean_of_seeds(seen[i, at, :, steps], lost[i, at])
            setting = {
                "k": study.k, "shots": shots, "beta": beta, "steps": steps, "h": study.h,
                "clients": study.clients, "rounds": study.rounds, "eta": ETAS[at], "alpha": ALPHA,
                "rule": round(study.rule(shots, steps), 3),
            }  # fmt: skip
            found.append(
                {
                    "table": "federated-memory", "dataset": study.dataset, "setting": setting,
                    "method": cell.method, "protocol": "strict", "metric": "accuracy",
                    "mean": mean, "std": std, "seeds": seeds, "lost": int(lost[i, at].sum()),
                    "paper_mean": None, "paper_std": None, "samples": run.samples,
                    "iterations": count, "seconds": None,
                }
            )  # fmt: skip
    return found


class Verdict(NamedTuple):
    """One K, memory, number of shots and of steps: the best beta, the rule's, and none."""

    method: str
    k: int
    steps: int
    shots: int
    best: dict[str, Any]  # rows
    rule: dict[str, Any]  # of the beta nearest to the rule's
    none: dict[str, Any]


def verdicts(rows: Sequence[dict[str, Any]]) -> Iterator[Verdict]:
    """What the rows of some studies say, one line a K, memory, shots and steps."""
    key = lambda row: (row["method"], *(row["setting"][name] for name in ("k", "steps", "shots")))
    for names, group in itertools.groupby(sorted(rows, key=key), key):
        mine = [row for row in group if row["mean"] is not None]
        if not mine:
            continue
        log = lambda row: abs(np.log(row["setting"]["beta"] / row["setting"]["rule"]))
        most = max(mine, key=lambda row: row["mean"])
        none = next((row for row in mine if row["setting"]["beta"] == 1), most | {"mean": None})
        method, k, steps, shots = names
        yield Verdict(method, k, steps, shots, most, min(mine, key=log), none)
