"""The commands of the guide "Your own table" run as printed, on small tables with its columns."""

import re
import shlex
import subprocess
from pathlib import Path

import numpy as np
import pytest

from moml.data import read_table
from moml.data.table.write import write_table
from moml.tabular import train
from tests.tabular.test_commands import moml, quick  # noqa: F401

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "tables.md"
NOT_HERE = ("pip install", "python -c")  # what they make is made by the test


def commands():
    """The lines of all shell blocks, continued ones joined."""
    blocks = re.findall(r"```sh\n(.*?)```", GUIDE.read_text("utf-8"), re.S)
    return [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]


def visits(users, days, seed):
    """user_id, day, price, spent."""
    rng = np.random.default_rng(seed)
    who, price = np.repeat(np.arange(users), days), rng.normal(size=users * days)
    spent = 20 + np.sin(who) * 5 - 2 * price + rng.normal(size=len(who))
    return {"user_id": who, "day": np.tile(np.arange(days), users), "price": price, "spent": spent}


def countries():
    """Rows with the columns of gapminder; three of the countries are those of the guide."""
    names = ["Norway", "Nepal", "Peru", *(f"Land {i}" for i in range(12))]
    years = np.arange(1952, 2012, 5)
    country, year = np.repeat(names, len(years)), np.tile(years, len(names))
    level = np.repeat(np.random.default_rng(0).normal(60, 8, len(names)), len(years))
    rows = np.arange(1, len(year) + 1)
    continent = np.where(rows % 2 == 0, "Asia", "Africa")
    return {
        "rownames": rows, "country": country, "continent": continent, "year": year,
        "lifeExp": level + (year - 1980) / 5, "pop": rows % 97 + 1000, "gdpPercap": level * 100.5,
    }  # fmt: skip


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with the tables; training takes a few steps."""
    few = {"iterations": 2, "members": 1}
    for name in ("fit_models", "fit_crossed"):
        fit = getattr(train, name)
        short = lambda *given, fit=fit, **options: fit(*given, **(options | few))
        monkeypatch.setattr(train, name, short)
    monkeypatch.chdir(tmp_path)
    write_table(visits(20, 6, 0), "visits.parquet")
    asked = visits(25, 2, 1)
    del asked["spent"]
    write_table(asked, "tomorrow.csv")
    write_table(countries(), "all.csv")
    return tmp_path


def test_the_guides_commands_run_as_printed(here, capsys):
    ran = []
    for line in commands():
        if line.startswith("moml "):
            moml(*shlex.split(line)[1:])
            ran.append(line.split()[1])
        elif not line.startswith(NOT_HERE):
            subprocess.run(line, shell=True, check=True, capture_output=True)
    assert ran == ["train", "predict", "train", "predict"]
    assert read_table("predictions.parquet").rows == 50
    predicted = read_table("predicted.csv")
    assert predicted.rows == 3 * 4 and {"lower", "upper"} < set(predicted.columns)
