"""Features of an input column: numbers and dates are standardised, texts coded one-hot.

`learn` describes a column by its training rows, `encode` turns a column into its features. A
missing value becomes the training mean, with an indicator if any was missing in training.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Float32, Int

from moml.data.table.frame import Column

LEVELS = 32  # categories that get a feature each
FEW = 8  # distinct texts that are always categories
CLIP = 100.0  # standard deviations that a feature can be away from the mean
FAR = 20.0  # times the range of the middle 80 %: values beyond count as if they were there
HUGE = 1e140  # its square is finite, and the sum of many
SAMPLE = 100_000  # values that show that range
DAY = 86_400.0
CYCLES = {"year": 365.2425 * DAY, "week": 7 * DAY, "day": DAY}  # seconds

Features = Float32[np.ndarray, "rows features"]
Learned = tuple["Input | None", str]  # or None, and why the column is left out


class Scale(NamedTuple):
    """Mean and standard deviation; an std of 0 is a column of one value."""

    mean: float
    std: float

    def __call__(self, values: np.ndarray) -> Float[np.ndarray, " rows"]:
        with np.errstate(invalid="ignore", over="ignore"):
            return np.clip((np.asarray(values, float) - self.mean) / self.std, -CLIP, CLIP)


class Input(NamedTuple):
    """One input column; which fields count depends on its kind: number, time, text."""

    name: str
    kind: str
    scale: Scale = Scale(0.0, 0.0)
    indicator: bool = False  # some values were missing in training
    words: tuple[str, ...] = ()  # of text: the most frequent, in that order
    other: bool = False  # there were more, without statistics
    cycles: tuple[str, ...] = ()  # of time: those that the training rows cover
    span: tuple[float, ...] = ()  # of number and time: from, to; of all rows of the table
    levels: tuple[str, ...] = ()  # of text: others, with statistics of the target
    means: tuple[float, ...] = ()  # level by level: see `moml.data.table.levels`

    @property
    def features(self) -> list[str]:
        """Names of its features."""
        names = [self.name] if self.scale.std else []
        names += [f"{self.name}={word}" for word in self.words]
        names += [f"{self.name} other"] if self.other else []
        each = len(self.means) // max(1, len(self.levels))
        names += [f"{self.name} mean{f' {i}' if each > 1 else ''}" for i in range(each)]
        names += [f"{self.name} {cycle} {f}" for cycle in self.cycles for f in ("sin", "cos")]
        return names + ([f"{self.name} missing"] if self.indicator else [])


def scale_of(values: np.ndarray) -> Scale:
    """Mean and standard deviation of the finite values, after clipping those FAR from the rest.

    >>> scale_of(np.array([1.0, 3.0, np.nan, np.inf]))
    Scale(mean=2.0, std=1.0)
    """
    values = np.asarray(values, float)
    values = np.clip(values[np.isfinite(values)], -HUGE, HUGE)
    if not len(values):
        return Scale(0.0, 0.0)
    for tail in (0.1, 0.01):  # a column may have one value in most rows
        low, high = np.quantile(values[:: 1 + len(values) // SAMPLE], (tail, 1 - tail))
        if high > low:
            values = np.clip(values, low - FAR * (high - low), high + FAR * (high - low))
            break
    middle = values[0]  # for the precision of large numbers that differ little
    mean, std = float(middle + (values - middle).mean()), float((values - middle).std())
    return Scale(mean, std if std > 1e-15 * abs(mean) else 0.0)


def span_of(values: np.ndarray) -> tuple[float, ...]:
    """The range of the finite values, widened to full hundredths of it: no single value is told.

    >>> [round(end, 6) for end in span_of(np.array([0.5, 4.5, 7.7, np.nan]))]
    [0.432, 7.704]
    """
    values = np.asarray(values, float)
    values = values[np.isfinite(values)]
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 0.0)
    step = (high - low) / 100
    if not 0 < step < np.inf:
        return (low, high) if len(values) else ()
    down, up = float(np.floor(low / step) * step), float(np.ceil(high / step) * step)
    return min(low, down), max(high, up)  # rounding may be off by a bit


def learn(name: str, column: Column, rows: Int[np.ndarray, " n"]) -> Learned:
    """The description of a column by these rows of it; its range is that of all rows."""
    whole, column = column, column._replace(values=column.values[rows])
    if column.missing.all():
        return None, "no value in the training tasks"
    kinds = {"time": _learn_time, "text": _learn_text}
    found, why = kinds.get(column.kind, _learn_number)(name, column)
    found = found._replace(indicator=bool(column.missing.any()))
    if found.kind != "text":
        at = seconds(whole) if found.kind == "time" else whole.values
        found = found._replace(span=span_of(at))
    return (found, "") if found.features else (None, why)


def encode(given: Input, column: Column) -> list[np.ndarray]:
    """The features of a column, of text as `recoded`, one array a feature."""
    missing = column.missing
    if given.kind == "text":
        features = [column.values == i for i in range(len(given.words) + given.other)]
        if given.levels:
            means = np.reshape(given.means, (len(given.levels), -1))
            features += [
                np.r_[np.zeros(len(given.words) + 1), m, 0][column.values] for m in means.T
            ]
    else:
        at = seconds(column) if given.kind == "time" else column.values
        features = [np.where(missing, 0, given.scale(at))] if given.scale.std else []
        for name in given.cycles:
            angle = 2 * np.pi * (at % CYCLES[name]) / CYCLES[name]
            features += [np.where(missing, 0, wave(angle)) for wave in (np.sin, np.cos)]
    return [*features, missing] if given.indicator else features


def recoded(given: Input, column: Column) -> Column:
    """A column of text with the codes of the description: words, any other text, levels."""
    if given.kind != "text":
        return column
    place, other = {word: i for i, word in enumerate(given.words)}, len(given.words)
    place |= {word: other + 1 + i for i, word in enumerate(given.levels)}
    code = [place.get(word, other) for word in column.words.to_pylist()]
    return Column("text", np.array([*code, -1], np.int32)[column.values])  # -1 takes the last


def seconds(column: Column) -> np.ndarray:
    """Times as seconds since 1970, NaN where missing."""
    since = column.values.astype("i8") / 1e6
    return np.where(column.missing, np.nan, since)


def outside(given: Input, column: Column) -> int:
    """How many rows lie outside the range of the table that was learned from."""
    if not given.span:
        return 0
    at = seconds(column) if given.kind == "time" else column.values
    low, high = given.span
    return int(((at < low) | (at > high)).sum())


def range_of(given: Input) -> str:
    """The range of the table that was learned from, in words.

    >>> range_of(Input("day", "time", span=(0.0, 86400.0)))
    '1970-01-01 to 1970-01-02'
    """
    if given.kind != "time":
        return " to ".join(f"{value:g}" for value in given.span)
    unit = "D" if given.span[1] - given.span[0] >= DAY else "s"
    return " to ".join(str(np.datetime64(int(at), "s").astype(f"M8[{unit}]")) for at in given.span)


def _learn_number(name: str, column: Column) -> tuple[Input, str]:
    return Input(name, "number", scale_of(column.values)), "one value in all training tasks"


def _learn_time(name: str, column: Column) -> tuple[Input, str]:
    at = seconds(column)
    low, high = np.nanquantile(at, (0.1, 0.9))
    near = (at >= 2 * low - high) & (at <= 2 * high - low)  # no 9999-12-31 for a date to come
    known = np.unique(at[near])
    gap, span = np.median(np.diff(known)) if len(known) > 1 else np.inf, np.ptp(known)
    round_ = lambda cycle: span >= cycle and gap <= cycle / 2 and np.ptp(known % cycle) > 0
    cycles = tuple(name for name, cycle in CYCLES.items() if round_(cycle))
    return Input(name, "time", scale_of(at), cycles=cycles), "one date in all training tasks"


def _learn_text(name: str, column: Column) -> tuple[Input, str]:
    codes = column.values[column.values >= 0]
    counts = np.bincount(codes, minlength=len(column.words))
    found = np.flatnonzero(counts)
    if len(found) < 2:
        return Input(name, "text"), "one text in all training tasks"
    if len(found) > max(FEW, len(codes) // 2):  # nearly a name of each row
        return Input(name, "text"), f"{len(found):,} different texts in {len(codes):,} rows"
    found = found[np.argsort(-counts[found], kind="stable")]
    least = counts[found[:LEVELS][-1]]
    likely = found[counts[found] >= least]
    words = column.words.take(likely).to_pylist()
    order = sorted(range(len(likely)), key=lambda i: (-counts[likely[i]], words[i]))[:LEVELS]
    return Input(name, "text", words=tuple(words[i] for i in order), other=len(found) > LEVELS), ""
