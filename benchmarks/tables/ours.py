"""moml by its default commands: files in, a run, files out."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from moml.tabular.fitting.fit import fit_groups
from tables import DEVELOPMENT, TABLES, Split


def _moml(*words: object) -> None:
    code = "from moml.cli import main; main()"
    subprocess.run(
        [sys.executable, "-c", code, *map(str, words)], check=True, stdout=subprocess.DEVNULL
    )


def personal(s: Split) -> tuple[np.ndarray, dict[str, float]]:
    """`moml train --data`, then `moml predict --adapt-on`: nothing is set but what is asked.

    With the ratios of the run's own scores, and for numbers the coverage of the intervals; of
    infinite ones there is none.
    """
    table = (TABLES | DEVELOPMENT)[s.name]
    apart = np.concatenate([*s.test.support, *s.test.query])
    parts = {
        "train": np.setdiff1d(np.arange(len(s.frame)), apart),
        "known": np.concatenate(s.test.support),
        "asked": np.concatenate(s.test.query),
    }
    with tempfile.TemporaryDirectory() as folder:
        file = {name: Path(folder) / f"{name}.csv" for name in (*parts, "answers")}
        for name, rows in parts.items():
            some = s.frame.iloc[rows]
            (some.drop(columns=table.target) if name == "asked" else some).to_csv(
                file[name], index=False
            )
        asked = ["--task", table.group, "--target", table.target, "--shots", table.shots]
        asked += ["--order", table.order] if table.order else []
        asked += ["--classification"] if table.classes else []
        run = Path(folder) / "run"
        _moml("train", "--data", file["train"], *asked, "--out", run)
        files = ["--data", file["asked"], "--adapt-on", file["known"], "--out", file["answers"]]
        _moml("predict", run, *files, *([] if table.classes else ["--interval", 0.9]))
        answers = pd.read_csv(file["answers"])
        _moml("evaluate", run, "--json", Path(folder) / "scores.json")
        more = own_ratios(json.loads((Path(folder) / "scores.json").read_text()))
    if table.classes:
        return answers.filter(like="probability_").iloc[:, 1].to_numpy(), more
    y = s.frame[table.target].to_numpy()[parts["asked"]]
    low, high = answers["lower"].to_numpy(), answers["upper"].to_numpy()
    inside = np.split((low <= y) & (y <= high), np.cumsum([len(q) for q in s.test.query])[:-1])
    share = np.mean([some.mean() for some in inside]) if np.isfinite(high).all() else np.nan
    return (answers["prediction"].to_numpy() - s.scale[0]) / s.scale[1], more | {
        "coverage": float(share)
    }


def own_ratios(rows: list[dict[str, Any]]) -> dict[str, float]:
    """The personal model's score over the best other one in the table that a run prints.

    By the largest number of known rows, and the worst of all such numbers but 0.
    """
    ratios = []
    for k in sorted({row["shots"] for row in rows if row["shots"]}):
        means = {
            row["model"]: row["mean"]
            for row in rows
            if row["shots"] == k and row["metric"] in ("rmse", "log_loss")
        }
        ratios.append(means.pop("personal") / min(means.values()))
    return {"own": ratios[-1], "own, worst": max(ratios)}


def recipe(s: Split, **settings: Any) -> np.ndarray:
    """The recipe on the benchmark's own arrays, stopped by the groups that rivals are tuned on.

    Numbers, or the second class's chance.
    """
    valid = [np.concatenate(pair) for pair in zip(s.valid.support, s.valid.query, strict=True)]
    groups = [*s.train, *valid]
    model = fit_groups(
        s.x, s.y, groups, shots=s.shots, ordered=s.ordered, classes=s.classes,
        held_out=range(len(s.train), len(groups)), **settings,
    )  # fmt: skip
    own = model.personal(s.x, s.y, s.test.support)
    which = np.repeat(np.arange(len(s.test.query)), [len(rows) for rows in s.test.query])
    found = model.answers(own, which, s.x[np.concatenate(s.test.query)])
    return found if s.classes is None else found[:, 1]


def pooled(s: Split) -> np.ndarray:
    """Our own net, the same for everybody."""
    return recipe(s, kinds=["pooled"])


OURS = {"moml": personal, "moml, on arrays": recipe, "moml, one for all": pooled}
