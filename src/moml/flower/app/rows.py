"""Rounds as result rows."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from moml.config.config import Config, kind_of, method_options
from moml.methods import method
from moml.runtime.account import cost
from moml.training.rows import result_row

Row = dict[str, Any]


def result_rows(config: Config, rounds: Sequence[Row]) -> list[Row]:
    """Two rows for each round: the model it began with, before and after clients adapt it."""
    nothing = lambda w, batch: w
    chosen = method(config.method, nothing, n=config.problem.n, **method_options(config, nothing))
    of_a_client = int(cost(chosen, np.zeros(0, np.float32)).samples[0])
    steps = chosen.algorithm.needs.visits
    rows, clients, seconds = [], 0, 0.0
    for row in rounds:
        clients, seconds = clients + row["answered"], seconds + row["seconds"]
        setting = {"k": config.option("k"), "shots": config.shots, "steps": config.test_steps}
        setting |= {"round": row["round"], "clients": row["answered"], "seed": config.seed}
        if row["epsilon"] is not None:
            setting["epsilon"] = row["epsilon"]
        for name in ("before", "after"):
            rows.append(
                result_row(
                    table="flower",
                    dataset=kind_of(config.problem),
                    setting=setting,
                    method=config.method,
                    metric=row["metric"] if name == "after" else f"{row['metric']}_before",
                    values=[row[name]],
                    samples=clients * of_a_client,
                    iterations=row["round"] * steps,
                    seconds=seconds,
                )
            )
    return rows
