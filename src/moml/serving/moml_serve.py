"""Adapt and predict with an export of moml: numpy and the standard library, no jax, no moml.

    python moml_serve.py predict --data rows.csv --adapt-on known.csv --interval 0.9 --out out.csv

    import moml_serve
    model = moml_serve.load("folder")         # by default the folder of this file
    mine = model.adapt(known)                 # columns by name: arrays or lists
    mine.predict(rows, interval=0.9)          # {"prediction": ..., "lower": ..., "upper": ...}

card.json describes the model, params.safetensors has its arrays, tasks.json and tasks.safetensors
have the personal parameters of known tasks. Each file is compared with manifest.json before it is
read; none of them can run code.
"""

import argparse
import csv
import gzip
import hashlib
import io
import json
import math
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

FORMAT = 4
TYPES = {"F32": "<f4", "F64": "<f8", "I32": "<i4", "I64": "<i8", "BOOL": "|b1"}
LONGEST = 100_000_000  # bytes of a safetensors header
CHUNK = 4096  # rows that are predicted at a time
MOST = 10_000  # steps of an adaptation
NODES = 81  # of the grid for a random intercept

BLANK = {"", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "-NaN", "-nan", "NULL", "null", "None"}
BLANK |= {"<NA>", "<na>"}
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(?i:inf|infinity|nan)")
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # the start of cells that spreadsheets compute
CLOCK = re.compile(r"([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?")
DATE = re.compile(r"\d{4}-\d\d-\d\d([T ].*)?")
DAY = 86_400.0
CYCLES = {"year": 365.2425 * DAY, "week": 7 * DAY, "day": DAY}  # seconds
CLIP = 100.0  # standard deviations of an input
VARIANCE = 1.0  # of a logarithm, that predictions are corrected for
BEYOND = 0.5  # of an input's range, that lines of mixed models go on outside of it
NEAR, FAR = 3.0, 10.0  # bounds of inputs and targets, in standard deviations

Values = Sequence[Any] | np.ndarray
Rows = Mapping[str, Values]  # columns by name
Record = Mapping[str, Any]  # a JSON object
Arrays = dict[str, np.ndarray]


class ServeError(Exception):
    """An invalid export or table; the message is one line."""


# The folder


def load(folder: str | os.PathLike[str] | None = None) -> "Table | Network":
    """Load an export, by default from the folder of this file; every byte is checked."""
    place = Path(__file__).parent if folder is None else Path(folder)
    try:
        listed = _listed(place)
        card = json.loads(_content(place, "card.json", listed))
        if card["format"] != FORMAT:
            found = f"{place} is an export of format {card['format']!r}"
            raise ServeError(f"{found}; this file reads format {FORMAT}")
        arrays = _arrays(_content(place, "params.safetensors", listed))
        if card["kind"] == "network":
            return _network(card, arrays)
        tasks = []
        if "tasks.json" in listed:
            ids = json.loads(_content(place, "tasks.json", listed))
            tasks = [ids, _arrays(_content(place, "tasks.safetensors", listed))]
        return _table(card, arrays, *tasks)
    except OSError as error:
        raise ServeError(f"{place} cannot be read: {error.strerror or error}") from error
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ServeError(f"{place} is not an export of moml: {reason}") from error


def _listed(folder: Path) -> Record:
    """The files that the manifest lists; its digest is checked."""
    manifest = json.loads(_plain(folder, "manifest.json"))
    digest = hashlib.sha256(json.dumps(manifest["files"], sort_keys=True).encode()).hexdigest()
    if digest != manifest["sha256_of_files"]:
        raise ServeError(f"{folder}: manifest.json is damaged")
    return manifest["files"]


def _content(folder: Path, name: str, listed: Record) -> bytes:
    """The content of a file, which must be as the manifest says."""
    content = _plain(folder, name)
    if hashlib.sha256(content).hexdigest() != listed[name]["sha256"]:
        raise ServeError(f"{folder}: {name} is damaged: its SHA-256 is not that of the manifest")
    return content


def _plain(folder: Path, name: str) -> bytes:
    path = folder / name
    if path.is_symlink() or not path.is_file():
        raise ServeError(f"{folder}: {name} is {'a link' if path.is_symlink() else 'missing'}")
    return path.read_bytes()


def _arrays(content: bytes) -> Arrays:
    """The arrays of a safetensors file: the length of a JSON header, the header, the numbers."""
    length = int.from_bytes(content[:8], "little")
    if not 0 < length <= min(LONGEST, len(content) - 8):
        raise ValueError(f"a header of {length} bytes")
    header, data = json.loads(content[8 : 8 + length]), memoryview(content)[8 + length :]
    header.pop("__metadata__", None)
    found: Arrays = {}
    end = 0  # the arrays must fill the file one after the other
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        kind, shape = np.dtype(TYPES[entry["dtype"]]), entry["shape"]
        begin, stop = entry["data_offsets"]
        whole = all(type(number) is int and number >= 0 for number in (*shape, begin, stop))
        if (
            not whole or begin != end or stop > len(data)
            or stop - begin != math.prod(shape) * kind.itemsize
        ):  # fmt: skip
            raise ValueError(f"the array {name} of shape {shape} cannot be at {begin} to {stop}")
        values = np.frombuffer(data[begin:stop], kind).reshape(shape)
        found[name], end = values.astype(float if kind.kind == "f" else int), stop
    if end != len(data):
        raise ValueError(f"{len(data) - end} bytes belong to no array")
    return found


# Columns: from the cells of a table to the inputs of the network


def _missing(value: object) -> bool:
    return value is None or bool(value != value)


def _numbers(name: str, values: Values) -> np.ndarray:
    """Numbers; booleans as 0 and 1, times of day in seconds, NaN where missing."""
    if isinstance(values, np.ndarray) and values.dtype.kind == "m":
        return np.where(np.isnat(values), np.nan, values / np.timedelta64(1, "s"))
    if isinstance(values, np.ndarray) and values.dtype.kind in "iufb":
        return values.astype(float)
    return np.array([_number(name, row, value) for row, value in enumerate(values)], float)


def _number(name: str, row: int, value: Any) -> float:
    if _missing(value):
        return math.nan
    if not isinstance(value, str):
        return float(value)
    word = value.strip()
    if not word or NUMBER.fullmatch(word):
        return float(word or "nan")
    if word.lower() in ("true", "false"):
        return float(word.lower() == "true")
    if at := CLOCK.fullmatch(word):
        return 3600.0 * int(at[1]) + 60 * int(at[2]) + int(at[3] or 0)
    raise ServeError(f"column {name}, row {row + 1:,}: {value!r} is not a number")


def _seconds(name: str, values: Values) -> np.ndarray:
    """Dates as seconds since 1970 in UTC, to the microsecond; NaN where missing."""
    if not isinstance(values, np.ndarray) or values.dtype.kind != "M":
        each = [_date(name, row, value) for row, value in enumerate(values)]
        values = np.array(each, "M8[us]")
    since = values.astype("M8[us]")
    return np.where(np.isnat(since), np.nan, since.astype("i8") / 1e6)


def _date(name: str, row: int, value: Any) -> np.datetime64:
    if _missing(value) or (isinstance(value, str) and not value.strip()):
        return np.datetime64("NaT")
    if isinstance(value, np.datetime64):
        return value.astype("M8[us]")
    word = str(value).strip()
    try:
        if not DATE.fullmatch(word):
            raise ValueError
        at = datetime.fromisoformat(word)
    except ValueError as error:
        reason = f"{value!r} is not a date of the form 2024-12-31"
        raise ServeError(f"column {name}, row {row + 1:,}: {reason}") from error
    return np.datetime64(at if at.tzinfo is None else at.astimezone(UTC).replace(tzinfo=None))


def _texts(values: Values) -> list[str | None]:
    """Texts, None where missing; 7.0 is '7'."""
    blank = lambda value: _missing(value) or not str(value).strip()
    return [None if blank(value) else _text(value) for value in values]


def _text(value: Any) -> str:
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, float | np.floating) and abs(float(value)) < 1e16 and value % 1 == 0:
        return f"{value:.0f}"
    if isinstance(value, np.datetime64):
        return str(value.astype("M8[us]")).replace("T", " ")
    return str(value)


def _scaled(scale: Mapping[str, float], values: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore", over="ignore"):
        return np.clip((values - scale["mean"]) / scale["std"], -CLIP, CLIP)


def _encode(given: Record, values: Values) -> list[np.ndarray]:
    """The features of an input column."""
    name, scale = given["name"], given["scale"]
    if given["kind"] == "text":
        words = np.array(_texts(values), object)
        missing = np.array([word is None for word in words], bool)
        features = [words == word for word in given["words"]]
        if given["other"]:
            features.append(~missing & ~np.any(features, axis=0))
        if levels := given.get("levels"):  # statistics of the target, 0 of other categories
            means = np.reshape(given["means"], (len(levels), -1))
            place = {word: i for i, word in enumerate(levels)}
            known = [place.get(word, len(levels)) for word in words]
            features += [np.append(some, 0.0)[known] for some in means.T]
        return [*features, missing] if given["indicator"] else features
    at = (_numbers if given["kind"] == "number" else _seconds)(name, values)
    missing = np.isnan(at)
    features = [np.where(missing, 0, _scaled(scale, at))] if scale["std"] else []
    for cycle in given["cycles"]:
        angle = 2 * np.pi * (at % CYCLES[cycle]) / CYCLES[cycle]
        features += [np.where(missing, 0, np.sin(angle)), np.where(missing, 0, np.cos(angle))]
    return [*features, missing] if given["indicator"] else features


# The networks: every array begins with [members]


class Head(NamedTuple):
    """The linear layer that a task adapts."""

    weight: np.ndarray  # [..., members, out, features]
    bias: np.ndarray  # [..., members, out]


class Net(NamedTuple):
    """Members of one kind, with a row x and the summary c of its task as inputs.

    h = tanh(W [squash(x), pieces(x), c] + b),    y = V [h, squash(x)] + a + C c
    """

    kind: str  # summary, head, steps, pooled
    body: list[tuple[np.ndarray, np.ndarray]]
    head: Head  # V, a
    beside: np.ndarray  # C
    learned: Arrays  # parameters of its adaptation


class Mixed(NamedTuple):
    """A linear mixed model: h(y) = F b + Z u + e of the design [1, x, pieces(x)]; u ~ N(0, D)."""

    fixed: np.ndarray  # the columns F
    beta: np.ndarray  # b
    random: np.ndarray  # the columns Z
    covariance: np.ndarray  # D
    noise: np.ndarray  # variance of e
    bounds: np.ndarray  # of predictions
    link: np.ndarray  # h: empty for the identity; of a logarithm shift, least, mean, deviation


class Trees(NamedTuple):
    """Trees whose values add up; of node n, rows with x[feature[n]] > cut[n] go to the right."""

    feature: np.ndarray  # [trees, nodes]
    cut: np.ndarray
    value: np.ndarray  # [trees, leaves]


class Logistic(NamedTuple):
    """Models of P(y = c | u) = s(F b + u), u ~ N(0, v^2), of the second of two classes, or each."""

    fixed: np.ndarray  # the columns F of the design [1, x, pieces(x)]
    beta: np.ndarray  # b [out, columns]
    spread: np.ndarray  # v [out]


SIMPLE: dict[str, Any] = {"MixedModel": Mixed, "Trees": Trees, "LogisticModel": Logistic}


class Model(NamedTuple):
    """Nets that are averaged; or, with `stack`, kinds that are weighed by number of known rows."""

    nets: list[Net]
    simple: dict[str, Mixed | Trees | Logistic]
    stack: Arrays | None  # known [levels], weights [levels, kinds]: nets, then simple
    knots: Arrays
    classes: int | None
    ordered: bool
    steps: int

    @property
    def out(self) -> int:
        """Number of outputs."""
        return self.classes or 1


class Person(NamedTuple):
    """The number of known rows of a task, and its personal parameters.

    Effects are, of a mixed model, `mean` and `covariance` of u, a Gaussian; of a logistic model
    `logs`, the log-probabilities of u on a grid of standard deviations v [out, nodes].
    """

    rows: int
    summary: np.ndarray
    heads: dict[str, Head]
    effects: dict[str, Arrays]  # of mixed and logistic models


def _squash(x: np.ndarray, bound: float = NEAR) -> np.ndarray:
    return bound * np.tanh(x / bound)


def _turned(weight: np.ndarray) -> np.ndarray:
    return np.swapaxes(weight, -1, -2)


def _pieces(knots: Arrays, x: np.ndarray) -> np.ndarray:
    return np.clip((x[:, knots["column"]] - knots["low"]) / knots["width"], 0, 1) - 0.5


def _features(net: Net, knots: Arrays, x: np.ndarray, c: np.ndarray) -> np.ndarray:
    """The inputs of the head [members, rows, features] for rows x with summaries c."""
    bounded = _squash(x)
    h = np.concatenate([bounded, _pieces(knots, x), c], axis=1)[None]
    for weight, bias in net.body:
        h = np.tanh(h @ _turned(weight) + bias[:, None])
    wide = np.broadcast_to(bounded, (len(h), *bounded.shape))
    return np.concatenate([h, wide], axis=2)


def _softmax(z: np.ndarray) -> np.ndarray:
    z = np.exp(z - z.max(axis=-1, keepdims=True))
    return z / z.sum(axis=-1, keepdims=True)


def _answers(
    model: Model, people: Sequence[Person], which: np.ndarray, x: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The mean prediction of all members for rows x, row i being of people[which[i]].

    And the spread of the kinds' predictions by the weights of a stack; 0 without one.
    """
    found = []
    c = np.stack([person.summary for person in people])[which]
    for net in model.nets:
        f = _features(net, model.knots, x, c[:, : net.beside.shape[2]])
        beside = c[:, : net.beside.shape[2]] @ _turned(net.beside)
        if net.kind in people[0].heads:
            weight, bias = (
                np.stack(part) for part in zip(*(p.heads[net.kind] for p in people), strict=True)
            )
            z = np.einsum("mrf,rmof->mro", f, weight[which]) + np.swapaxes(bias[which], 0, 1)
        else:
            z = f @ _turned(net.head.weight) + net.head.bias[:, None]
        z = z + beside
        found.append(z[..., 0] if model.classes is None else _softmax(z))
    if model.stack is None:
        return np.concatenate(found).mean(axis=0), np.zeros(len(x))
    rows = np.array([person.rows for person in people])[which]
    level = np.searchsorted(model.stack["known"], rows, side="right") - 1
    weights = model.stack["weights"][np.maximum(level, 0)].T
    nets = [one.mean(axis=0) for one in found]
    each = np.stack([*nets, *(_simple(model, kind, people, which, x, c) for kind in model.simple)])
    weights = weights.reshape(*weights.shape, *[1] * (each.ndim - 2))
    mean = np.sum(weights * each, axis=0)
    square = weights * (each - mean) ** 2
    return mean, np.sqrt(square.sum(axis=(0, *range(2, each.ndim))))


def _all_answers(
    model: Model, people: Sequence[Person], which: np.ndarray, x: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The same for any number of rows, some thousands at a time, task after task."""
    given = np.empty((len(x), *([] if model.classes is None else [model.classes])))
    spread, order = np.zeros(len(x)), np.argsort(which, kind="stable")
    for first in range(0, len(x), CHUNK):
        some = order[first : first + CHUNK]
        mine, place = np.unique(which[some], return_inverse=True)
        given[some], spread[some] = _answers(model, [people[i] for i in mine], place, x[some])
    return given, spread


# Members that are no networks


def _simple(
    model: Model, kind: str, people: Sequence[Person], which: np.ndarray, x: np.ndarray,
    c: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """Predictions of a mixed model, of trees, or the probabilities of a logistic model."""
    one = model.simple[kind]
    own = lambda part: np.stack([person.effects[kind][part] for person in people])[which]
    if isinstance(one, Logistic):
        logs = own("logs")
        odds = _design(model.knots, x)[:, one.fixed] @ one.beta.T
        moves = one.spread[:, None] * np.linspace(-5, 5, logs.shape[2])
        given = np.sum(np.exp(logs) * _chance(odds, moves), axis=2)
        two = np.hstack([1 - given, given]) if given.shape[1] == 1 else given
        return two / two.sum(axis=1, keepdims=True)
    if isinstance(one, Mixed):
        design = _design(model.knots, x)
        z, given = design[:, one.random], design[:, one.fixed] @ one.beta
        given = given + np.sum(z * own("mean"), axis=1)
        if one.link.size:  # the mean of exp(log): E y = exp(m + v / 2) - shift
            shift, _, middle, scale = one.link
            variance = one.noise + np.einsum("rp,rpq,rq->r", z, own("covariance"), z)
            logs = middle + scale * given + np.minimum(scale**2 * variance, VARIANCE) / 2
            given = np.exp(np.minimum(logs, np.log(max(one.bounds[1] + shift, 1e-12)))) - shift
        return np.clip(given, *one.bounds)
    rows = np.array([person.rows for person in people])[which]
    mean = np.clip(c[:, 0] * (rows + 1) / np.maximum(rows, 1) / FAR, -0.99, 0.99)
    inputs = np.concatenate([x, c], axis=1).astype("f4")
    return FAR * np.arctanh(mean) + _sum_of_trees(one, inputs)


def _sum_of_trees(trees: Trees, x: np.ndarray) -> np.ndarray:
    out, nodes = np.zeros(len(x)), trees.feature.shape[1]
    for feature, cut, value in zip(*trees, strict=True):
        node = np.zeros(len(x), int)
        for _ in range((nodes + 1).bit_length() - 1):
            node = 2 * node + 1 + (x[np.arange(len(x)), feature[node]] > cut[node])
        out += value[node - nodes]
    return out


def _design(knots: Arrays, x: np.ndarray) -> np.ndarray:
    """[1, x, pieces(x)]; inputs are held at some distance from the ends of their pieces."""
    x = x.copy()
    for j in np.unique(knots["column"]):
        mine = knots["column"] == j
        low, width = knots["low"][mine], knots["width"][mine]
        first, last = low.min(), (low + width).max()
        reach = BEYOND * (last - first)
        x[:, j] = np.clip(x[:, j], first - reach, last + reach)
    return np.concatenate([np.ones((len(x), 1)), x, _pieces(knots, x)], axis=1)


def _updated(one: Mixed, old: Arrays, design: np.ndarray, y: np.ndarray) -> Arrays:
    """C' = (I + C Z'Z / s)^-1 C,    m' = m + C' Z' (h(y) - F b - Z m) / s"""
    if one.link.size:
        shift, least, middle, scale = one.link
        y = (np.log(np.maximum(y + shift, least)) - middle) / scale
    z, mean, covariance = design[:, one.random], old["mean"], old["covariance"]
    off = y - design[:, one.fixed] @ one.beta - z @ mean
    gain = np.eye(len(mean)) + covariance @ (z.T @ z) / one.noise
    after = np.linalg.solve(gain, covariance)
    after = (after + after.T) / 2
    return {"mean": mean + after @ (z.T @ off) / one.noise, "covariance": after}


def _chance(odds: np.ndarray, moves: np.ndarray) -> np.ndarray:
    """s(odds + moves) with a last axis of nodes."""
    return 1 / (1 + np.exp(-np.clip(odds, -30, 30))[..., None] * np.exp(-moves))


def _informed(one: Logistic, logs: np.ndarray, design: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The intercepts after rows of classes y: logs + sum over rows of log P(y | u), normalised."""
    out, nodes = logs.shape
    sign = np.where(y[:, None] == (np.arange(out) if out > 1 else 1), 1.0, -1.0)  # [rows, out]
    moves = one.spread[:, None] * np.linspace(-5, 5, nodes)
    chance = _chance(sign * (design[:, one.fixed] @ one.beta.T), sign[..., None] * moves)
    logs = logs + np.log(chance).sum(axis=0)
    logs = logs - logs.max(axis=1, keepdims=True)
    return logs - np.log(np.exp(logs).sum(axis=1, keepdims=True))


# Personal parameters: a summary of a task's rows, and adapted heads


def _nobody(model: Model) -> Person:
    """A task without known rows."""
    summary = max((net.beside.shape[2] for net in model.nets), default=0)
    start = np.zeros(summary)
    if summary:  # the summary of no rows: all zeros but for the spread
        start[model.out : 2 * model.out] = 1e-3
    effects: dict[str, Arrays] = {}
    grid = -(np.linspace(-5, 5, NODES) ** 2) / 2
    for kind, one in model.simple.items():
        if isinstance(one, Mixed):
            effects[kind] = {"mean": np.zeros(len(one.random)), "covariance": one.covariance}
        if isinstance(one, Logistic):
            logs = grid - np.log(np.exp(grid).sum())
            effects[kind] = {"logs": np.tile(logs, (len(one.spread), 1))}
    heads = {net.kind: net.head for net in model.nets if net.kind in ADAPT}
    return Person(0, start, heads, effects)


def _summaries(x: np.ndarray, y: np.ndarray, ordered: bool, without: bool) -> np.ndarray:
    """Means, spread, number and newest of all rows, in one line; or `without` each row in turn.

    Sums are divided by k + 1, so a summary of few rows is close to zero.
    """
    n, out = y.shape
    off = y - y.sum(axis=0) / max(n, 1)
    rows = np.concatenate([off, off**2, y, x, np.ones((n, 1))], axis=1)
    sums = rows.sum(axis=0, keepdims=True) - (rows if without else 0)
    first, second, rest, k = np.split(sums, [out, 2 * out, sums.shape[1] - 1], axis=1)
    squares = np.maximum(second - first**2 / np.maximum(k, 1), 0)
    rest = rest / (k + 1)
    parts = [rest[:, :out], np.sqrt((squares + 1e-6) / (k + 1)), k / (k + 3), rest[:, out:]]
    if ordered:
        last = np.full(len(k), n - 1)
        last[-1] -= without
        parts += [(k > 0) * y[last], (k > 0) * x[last]]
    return np.concatenate(parts, axis=1)


def _merged(old: np.ndarray, k: int, new: np.ndarray, n: int, out: int, inputs: int) -> np.ndarray:
    """The summary of k rows and n later ones, from those of both; for each line of new."""
    ends = [out, 2 * out, 2 * out + 1, 2 * out + 1 + inputs]
    ay, aspread, _, ax, anewest = np.split(np.broadcast_to(old, new.shape), ends, axis=1)
    by, bspread, _, bx, bnewest = np.split(new, ends, axis=1)
    mean = lambda a, b: (a * (k + 1) + b * (n + 1)) / (k + n + 1)
    plain = lambda sums, rows: sums * (rows + 1) / max(rows, 1)
    between = k * n / max(k + n, 1) * (plain(ay, k) - plain(by, n)) ** 2
    squares = aspread**2 * (k + 1) + bspread**2 * (n + 1) - 1e-6 + between
    spread = np.sqrt(np.maximum(squares, 1e-6) / (k + n + 1))
    number = np.full((len(new), 1), (k + n) / (k + n + 3))
    newest = bnewest if n > 0 else anewest
    return np.concatenate([mean(ay, by), spread, number, mean(ax, bx), newest], axis=1)


class NewRows(NamedTuple):
    """New rows of a task as one net's adaptation sees them, and what is kept of earlier ones."""

    f: np.ndarray  # features of the new rows [members, rows, features]
    beside: np.ndarray  # C c of each row [members, rows, out]
    y: np.ndarray  # targets [rows, out]; one-hot
    known: int  # number of earlier rows
    centre: np.ndarray  # features of their mean [members, 1, features]


def _extended(model: Model, person: Person, x: np.ndarray, y: np.ndarray) -> Person:
    """A task after further rows: summaries are merged, heads are updated."""
    n, k, inputs = len(x), person.rows, x.shape[1]
    if model.classes is None:
        target = np.clip(y, -FAR, FAR)[:, None]
        summed = _squash(target, FAR)
    else:
        target = summed = np.eye(model.classes)[y]
    bounded = _squash(x)
    summary = lambda without: _summaries(bounded, summed, model.ordered, without)
    both = lambda new, rows: _merged(person.summary, k, new, rows, model.out, inputs)
    others = both(summary(True), n - 1)  # a row sees the summary of the others
    field = person.summary[2 * model.out + 1 : 2 * model.out + 1 + inputs]
    mean = np.clip(field * (k + 1) / max(k, 1) / NEAR, -0.99, 0.99)
    centre = NEAR * np.arctanh(mean)[None]
    heads = {}
    for net in model.nets:
        if net.kind in ADAPT:
            f = _features(net, model.knots, x, others)
            middle = _features(net, model.knots, centre, person.summary[None])
            seen = NewRows(f, others @ _turned(net.beside), target, k, middle)
            heads[net.kind] = ADAPT[net.kind](model, net, person.heads[net.kind], seen)
    effects: dict[str, Arrays] = {}
    for kind, old in person.effects.items():
        one, design = model.simple[kind], _design(model.knots, x)
        if isinstance(one, Logistic):
            effects[kind] = {"logs": _informed(one, old["logs"], design, y)}
        if isinstance(one, Mixed):
            effects[kind] = _updated(one, old, design, target[:, 0])
    return Person(k + n, both(summary(False), n)[0], heads, effects)


def _slopes(z: np.ndarray, y: np.ndarray, classes: int | None) -> np.ndarray:
    """The gradient of the mean loss with respect to the outputs z [..., rows, out]."""
    return (2 * (z - y) if classes is None else _softmax(z) - y) / len(y)


def _by_steps(model: Model, net: Net, head: Head, seen: NewRows) -> Head:
    """Gradient steps of learned sizes, shrunk by n / (n + tau + earlier rows)."""
    n = len(seen.y)
    shrink = (n / (n + np.exp(net.learned["log_tau"]) + seen.known))[:, None]
    by_weight = shrink[..., None] * np.exp(net.learned["log_alpha/head/weight"])
    by_bias = shrink * np.exp(net.learned["log_alpha/head/bias"])
    weight, bias = head
    for _ in range(model.steps):
        z = seen.f @ _turned(weight) + bias[:, None] + seen.beside
        g = _slopes(z, seen.y, model.classes)
        weight, bias = weight - by_weight * (_turned(g) @ seen.f), bias - by_bias * g.sum(axis=1)
    return Head(weight, bias)


def _in_closed_form(model: Model, net: Net, head: Head, seen: NewRows) -> Head:
    """The posterior mean w + S F' (F S F' + s I)^-1 (y - F w), by the smaller of two systems.

    Earlier rows become pseudo-rows with residual 0: they are assumed to have scattered about their
    mean as the new rows do about theirs.
    """
    ones = lambda f: np.concatenate([f, np.ones((*f.shape[:2], 1))], axis=2)
    f, n = ones(seen.f), len(seen.y)
    z = seen.f @ _turned(head.weight) + head.bias[:, None] + seen.beside
    earlier = f - f.mean(axis=1, keepdims=True) + ones(seen.centre)
    rows = np.concatenate([f, earlier * math.sqrt(seen.known / n)], axis=1)
    off = np.concatenate([seen.y - z, np.zeros_like(z)], axis=1)
    width = np.broadcast_to(np.exp(net.learned["log_prior/weight"]), (len(f), f.shape[2] - 1))
    root = np.sqrt(np.concatenate([width, np.exp(net.learned["log_prior/bias"])[:, None]], axis=1))
    scaled, noise = rows * root[:, None], np.exp(net.learned["log_noise"])[:, None, None]
    solve = lambda gram, y: np.linalg.solve(gram + noise * np.eye(gram.shape[1]), y)
    if scaled.shape[1] <= scaled.shape[2]:
        move = _turned(scaled) @ solve(scaled @ _turned(scaled), off)
    else:
        move = solve(_turned(scaled) @ scaled, _turned(scaled) @ off)
    move = root[..., None] * move
    return Head(head.weight + _turned(move[:, :-1]), head.bias + move[:, -1])


Adaptation = Callable[[Model, Net, Head, NewRows], Head]
ADAPT: dict[str, Adaptation] = {"steps": _by_steps, "head": _in_closed_form}


# A table's model


class Table:
    """A model of a table; `known` are the tasks that it has adapted to, by their ids."""

    def __init__(self, card: Record, models: dict[str, Model], residuals: dict[int, np.ndarray]):
        self.card, self.models, self.residuals = card, models, residuals
        self.known: dict[str, Person] = {}

    def adapt(self, rows: Rows) -> "Table":
        """Return the model adapted to rows with targets of any tasks; this one does not change."""
        model, x, y = self.models["personal"], self.encode(rows), self._targets(rows)
        made = Table(self.card, self.models, self.residuals)
        made.known = dict(self.known)
        nobody = _nobody(model)
        for id_, at in self._tasks(rows, ordered=True).items():
            made.known[id_] = _extended(model, self.known.get(id_, nobody), x[at], y[at])
        return made

    def predict(
        self, rows: Rows, adapt_on: Rows | None = None, interval: float | None = None
    ) -> Arrays:
        """Predict rows; `interval` adds bounds that enclose this share of the targets.

        Numbers in the unit of the target, or classes with the probability of each.
        """
        if adapt_on is not None:
            return self.adapt(adapt_on).predict(rows, interval=interval)
        x, model = self.encode(rows), self.models["personal"]
        tasks, nobody, which = self._tasks(rows), _nobody(model), np.empty(len(x), int)
        for i, at in enumerate(tasks.values()):
            which[at] = i
        people = [self.known.get(id_, nobody) for id_ in tasks]
        known = np.array([person.rows for person in people])[which]
        given, spread = _all_answers(model, people, which, x)
        cold, lacking = self.models[self.card["cold"]], np.flatnonzero(known == 0)
        if cold is not model:
            which = np.zeros(len(lacking), int)
            answers = _all_answers(cold, [_nobody(cold)], which, x[lacking])
            given[lacking], spread[lacking] = answers
        target = self.card["columns"]["target"]
        new = _labelled(target, given)
        if interval is not None:
            low, high = _bounds(target, known, spread, self.residuals, interval)
            new |= {"lower": new["prediction"] - low, "upper": new["prediction"] + high}
        return new

    def inputs(self, task: Any) -> Arrays:
        """The personal parameters of a task, as inputs of model.onnx; of a new one none."""
        person = self.known.get(_text(task))
        if person is None:
            return {}
        given = {"summary": person.summary} if person.summary.size else {}
        for kind, head in person.heads.items():
            given |= {f"{kind}/weight": head.weight, f"{kind}/bias": head.bias}
        return {name: array.astype("f4") for name, array in given.items()}

    def encode(self, rows: Rows) -> np.ndarray:
        """The network's inputs."""
        sizes = sorted({len(values) for values in rows.values()})
        if len(sizes) != 1 or sizes == [0]:
            raise ServeError(f"columns must be equally long and not empty; got lengths {sizes}")
        inputs = self.card["columns"]["inputs"]
        features = [
            each for given in inputs for each in _encode(given, _column(rows, given["name"]))
        ]
        x = np.stack(features, axis=1) if features else np.zeros((sizes[0], 0))
        return x.astype("f4").astype(float)  # training had float32

    def _tasks(self, rows: Rows, ordered: bool = False) -> dict[str, np.ndarray]:
        """The rows of each task by its id, in the order of the model's order column."""
        name, order = self.card["task"], self.card["order"]
        ids = _complete(name, _texts(_column(rows, name)))
        place = np.arange(len(ids))
        if ordered and order is not None:
            by = _column(rows, order)
            try:
                rank = _numbers(order, by)
            except (ServeError, TypeError):
                rank = _seconds(order, by)
            place = np.argsort(_complete(order, rank), kind="stable")
        tasks: dict[str, list[int]] = {id_: [] for id_ in ids}
        for row in place.tolist():
            tasks[ids[row]].append(row)
        return {id_: np.array(at) for id_, at in tasks.items()}

    def _targets(self, rows: Rows) -> np.ndarray:
        """Standardised numbers, or the numbers of classes."""
        target = self.card["columns"]["target"]
        name, values = target["name"], _column(rows, target["name"])
        if not target["classes"]:
            y = _complete(name, _numbers(name, values))
            if np.isinf(y).any():
                raise ServeError(f"column {name}, row {np.argmax(np.isinf(y)) + 1:,} is not finite")
            return _scaled(target["scale"], y).astype("f4").astype(float)
        if target["kind"] != "text":  # 1.0 and "1" are one class
            numbers = _numbers(name, values)
            flags = target["kind"] == "flag"
            values = [None if n != n else bool(n) if flags else n for n in numbers.tolist()]
        labels = _complete(name, _texts(values))
        place = {label: i for i, label in enumerate(target["classes"])}
        for row, label in enumerate(labels):
            if label not in place:
                known = ", ".join([*place][:5]) + (", ..." if len(place) > 5 else "")
                reason = f"{label!r} is not among the classes {known}"
                raise ServeError(f"column {name}, row {row + 1:,}: {reason}")
        return np.array([place[label] for label in labels], int)


def _column(rows: Rows, name: str) -> Values:
    if name not in rows:
        raise ServeError(f"there is no column {name}; there are {', '.join(map(str, rows))}")
    return rows[name]


def _complete(name: str, values: Any) -> Any:
    """The same values, none of which may be missing."""
    for row, value in enumerate(values):
        if _missing(value):
            raise ServeError(f"column {name}, row {row + 1:,} has no value")
    return values


def _labelled(target: Record, given: np.ndarray) -> Arrays:
    if not target["classes"]:
        return {"prediction": given * target["scale"]["std"] + target["scale"]["mean"]}
    labels = np.array(target["classes"])
    if target["kind"] == "flag":
        labels = labels == "true"
    elif target["kind"] == "number":
        try:
            labels = np.array([int(word) for word in target["classes"]])
        except ValueError:
            labels = labels.astype(float)
    named = {f"probability_{name}": given[:, i] for i, name in enumerate(target["classes"])}
    return {"prediction": labels[given.argmax(axis=1)], **named}


def _quantile(values: np.ndarray, share: np.ndarray, level: float) -> float:
    """The least value with `level` of the shares at or below it; infinite if there is none."""
    order = np.argsort(values)
    reached = np.cumsum(share[order]) >= level - 1e-9
    return float(values[order][reached.argmax()]) if reached.any() else math.inf


def _bounds(
    target: Record, known: np.ndarray, spread: np.ndarray, residuals: Mapping[int, np.ndarray],
    level: float,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """How far lower and upper bounds are from predictions: conformal over tasks.

    By the number of known rows, and by row, with z = residual / sqrt(variance + spread^2). They are
    infinite where there were too few tasks to score on.
    """
    if target["classes"]:
        raise ServeError(f"an interval needs a target of numbers, but {target['name']} is a class")
    if not 0 < level < 1:
        raise ServeError(f"the interval must be between 0 and 1, such as 0.9; got {level!r}")
    numbers = np.array(sorted(residuals))
    found = []
    for number in numbers.tolist():
        residual, task, apart = residuals[number].T
        _, task, sizes = np.unique(task, return_inverse=True, return_counts=True)
        tasks = len(sizes)
        each = 1 / (tasks * sizes[task])  # of a mean in which tasks count alike
        variance = max(float(each @ residual**2), 1e-30)
        z = residual / np.sqrt(variance + apart**2)
        sides = []
        for side in (z, -z):
            square = (each @ z**2 + tasks * (each @ np.maximum(side, 0) ** 2)) / (tasks + 1)
            sides.append(max(math.sqrt(square), 1e-15))
        up, down = sides
        share = each * tasks / (tasks + 1)
        q = _quantile(np.maximum(z / up, -z / down), share, level)
        found.append((q * down, q * up, variance))
    nearest = np.maximum(np.searchsorted(numbers, known, side="right") - 1, 0)
    low, high, variance = np.array(found)[nearest].T
    scale = np.sqrt(variance + (target["scale"]["std"] * spread) ** 2)
    return low * scale, high * scale


def _table(
    card: Record, arrays: Arrays, tasks: Record | None = None, personal: Arrays | None = None
) -> Table:
    models = {name: _model(name, entry, arrays) for name, entry in card["models"].items()}
    start = "residuals/"
    residuals = {int(n.removeprefix(start)): r for n, r in arrays.items() if n.startswith(start)}
    if any(r.ndim != 2 or r.shape[1] != 3 or not len(r) for r in residuals.values()):
        raise ValueError("the residuals have another shape")
    if any((r[:, 2] < 0).any() for r in residuals.values()):
        raise ValueError("spreads of residuals must not be negative")
    made, model = Table(card, models, residuals), models["personal"]
    classes = len(card["columns"]["target"]["classes"]) or None
    if any(one.classes != classes or not 0 <= one.steps <= MOST for one in models.values()):
        raise ValueError("the models are not those of the target")
    if tasks is not None and personal is not None:
        nobody, n = _nobody(model), len(tasks["ids"])
        parts = {kind: head._asdict() for kind, head in nobody.heads.items()} | nobody.effects
        like = {f"{kind}/{part}": a for kind, some in parts.items() for part, a in some.items()}
        like["summary"] = nobody.summary
        if any(personal[name].shape != (n, *one.shape) for name, one in like.items()):
            raise ValueError("tasks.safetensors has arrays of other shapes")
        for i, (id_, rows) in enumerate(zip(tasks["ids"], tasks["rows"], strict=True)):
            own = {
                kind: {part: personal[f"{kind}/{part}"][i] for part in some}
                for kind, some in parts.items()
            }
            heads = {kind: Head(**own[kind]) for kind in nobody.heads}
            effects = {kind: own[kind] for kind in nobody.effects}
            made.known[str(id_)] = Person(int(rows), personal["summary"][i], heads, effects)
    row = _some_row(card)
    made.adapt(row).predict(row)  # arrays of inconsistent shapes fail here
    return made


def _some_row(card: Record) -> dict[str, list[Any]]:
    """A row of a new task, with as few values as possible."""
    inputs, target = card["columns"]["inputs"], card["columns"]["target"]
    row: dict[str, list[Any]] = {given["name"]: [None] for given in inputs}
    dates = [given["name"] for given in inputs if given["kind"] == "time"]
    row |= {card["task"]: ["somebody"], target["name"]: [*target["classes"], 0][:1]}
    order = card["order"]
    return row if order is None else row | {order: ["2024-01-01" if order in dates else 0]}


def _model(name: str, entry: Record, arrays: Arrays) -> Model:
    nets = []
    for kind in entry["kinds"]:
        start = f"{name}/{kind}/"
        part = {n.removeprefix(start): a for n, a in arrays.items() if n.startswith(start)}
        layers = range(len(entry["hidden"]))
        body = [(part[f"body/{i}/weight"], part[f"body/{i}/bias"]) for i in layers]
        head = Head(part["head/weight"], part["head/bias"])
        nets.append(Net(kind, body, head, part["beside"], part))
    knots = {part: arrays[f"{name}/knots/{part}"] for part in ("column", "low", "width")}
    simple = {}
    for kind, made in entry["simple"].items():
        parts = SIMPLE[made]._fields
        simple[kind] = SIMPLE[made](*(arrays[f"{name}/simple/{kind}/{part}"] for part in parts))
    stack = None
    if f"{name}/stack/known" in arrays:
        stack = {part: arrays[f"{name}/stack/{part}"] for part in ("known", "weights")}
    if simple and (stack is None or stack["weights"].shape[1] != len(nets) + len(simple)):
        raise ValueError("the weights are not those of the members")
    return Model(
        nets, simple, stack, knots, entry["classes"], bool(entry["ordered"]), int(entry["steps"])
    )


# A network that adapts by gradient steps: runs by `moml train CONFIG`


class Network:
    """A fully connected network, relu between its layers."""

    def __init__(self, card: Record, layers: list[Head], rates: Arrays):
        self.card, self.layers, self.rates = card, layers, rates

    def adapt(self, x: Values, y: Values, steps: int | None = None) -> "Network":
        """The network after gradient steps on samples x [rows, ...] and their y."""
        rows, classes = self._rows(x), self.card["loss"] == "cross_entropy"
        out = len(self.layers[-1].bias)
        y = np.asarray(y, int) if classes else np.asarray(y, float).reshape(-1, out)
        if len(y) != len(rows) or not len(y):
            raise ServeError(f"x and y must have the same length; got {len(rows)} and {len(y)}")
        if classes and not (y.min() >= 0 and y.max() < out):
            found = f"{y.min()} to {y.max()}"
            raise ServeError(f"y must be class numbers from 0 to {out - 1}; got {found}")
        y = np.eye(out)[y] if classes else y
        layers = list(self.layers)
        for step in range(self.card["steps"] if steps is None else steps):
            slopes = _backwards(layers, rows, y, out if classes else None)
            for i in self._adapted():
                move = (
                    p - self._rate(i, name, step) * g
                    for name, p, g in zip(Head._fields, layers[i], slopes[i], strict=True)
                )
                layers[i] = Head(*move)
        return Network(self.card, layers, self.rates)

    def inputs(self) -> Arrays:
        """The parameters of the layers that adapt, as inputs of model.onnx."""
        layers = [(i, self.layers[i]._asdict()) for i in self._adapted()]
        return {f"{i}/{name}": p.astype("f4") for i, layer in layers for name, p in layer.items()}

    def _adapted(self) -> Sequence[int]:
        """The layers that adapt: all, or the last."""
        n = len(self.layers)
        return range(n) if self.card["leaves"] == "all" else [n - 1]

    def predict(self, x: Values) -> np.ndarray:
        """The outputs [rows, out], or the probabilities of the classes."""
        z = _forwards(self.layers, self._rows(x))[-1]
        return _softmax(z) if self.card["loss"] == "cross_entropy" else z

    def _rows(self, x: Values) -> np.ndarray:
        rows = np.asarray(x, float).reshape(len(x), -1)
        if rows.shape[1] != self.layers[0].weight.shape[1]:
            wanted = self.layers[0].weight.shape[1]
            raise ServeError(f"a sample must have {wanted} numbers; got {rows.shape[1]}")
        return (rows - self.card["shift"]["mean"]) / self.card["shift"]["std"]

    def _rate(self, layer: int, name: str, step: int) -> np.ndarray | float:
        """The step size: alpha, or learned by parameter, or learned by array and step."""
        if self.card["step_sizes"] == "given":
            return self.card["alpha"]
        log = self.rates[f"{layer}/{name}"]
        by_parameter = self.card["step_sizes"] == "parameter"
        return np.exp(log if by_parameter else log[min(step, len(log) - 1)])


def _forwards(layers: Sequence[Head], x: np.ndarray) -> list[np.ndarray]:
    """The inputs of each layer, and the output."""
    seen = [x]
    for i, (weight, bias) in enumerate(layers):
        z = seen[-1] @ weight.T + bias
        seen.append(z if i + 1 == len(layers) else np.maximum(z, 0))
    return seen


def _backwards(
    layers: Sequence[Head], x: np.ndarray, y: np.ndarray, classes: int | None
) -> list[Head]:
    """The gradient of the mean loss, layer by layer."""
    *seen, z = _forwards(layers, x)
    g, found = _slopes(z, y, classes), []
    for (weight, _), given in zip(reversed(layers), reversed(seen), strict=True):
        found.append(Head(g.T @ given, g.sum(axis=0)))
        g = (g @ weight) * (given > 0)
    return found[::-1]


def _network(card: Record, arrays: Arrays) -> Network:
    count = int(card["layers"])
    layers = [Head(arrays[f"{i}/weight"], arrays[f"{i}/bias"]) for i in range(count)]
    start = "log_alpha/"
    rates = {n.removeprefix(start): a for n, a in arrays.items() if n.startswith(start)}
    if card["tied"]:
        equal_rows = lambda part: np.broadcast_to(part.mean(axis=0, keepdims=True), part.shape)
        layers[-1] = Head(*map(equal_rows, layers[-1]))
    if not 0 <= card["steps"] <= MOST:
        raise ValueError(f"steps must be from 0 to {MOST:,}; got {card['steps']}")
    made = Network(card, layers, rates)
    x = np.zeros((1, layers[0].weight.shape[1]))
    made.adapt(x, np.zeros(1 if card["loss"] == "cross_entropy" else (1, len(layers[-1].bias))), 1)
    made.predict(x)
    return made


# CSV, and the command


def read_csv(path: str | os.PathLike[str]) -> dict[str, list[str | None]]:
    """The columns of a CSV file with a header, as texts; None where a cell is blank."""
    header, rows, _ = _cells(path)
    return {
        name: [None if row[i] in BLANK else row[i] for row in rows] for i, name in enumerate(header)
    }


def _cells(path: str | os.PathLike[str]) -> tuple[list[str], list[list[str]], str]:
    try:
        raw = (gzip.open if str(path).endswith(".gz") else open)(path, "rb")
        with raw as file:
            text = file.read().decode("utf-8-sig")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise ServeError(f"{path} cannot be read: {error}") from error
    first = re.sub('"[^"]*"', "", next((line for line in text.splitlines() if line.strip()), ""))
    separator = max(",;\t|", key=first.count)
    try:
        rows = [
            row for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator) if row
        ]
    except csv.Error as error:
        raise ServeError(f"{path} is not a CSV file: {error}") from error
    if len(rows) < 2:
        raise ServeError(f"{path} has no rows")
    for number, row in enumerate(rows[1:], 1):
        if len(row) != len(rows[0]):
            reason = f"{len(row)} instead of {len(rows[0])} cells"
            raise ServeError(f"{path}, row {number:,}: {reason}")
    return rows[0], rows[1:], separator


def write_csv(
    data: str | os.PathLike[str], new: Arrays, out: str | os.PathLike[str], *, safe: bool = False
) -> str | None:
    """Write the cells of a CSV file with new columns beside them.

    With `safe` a ' is put before cells that a spreadsheet would take as formulas; without it they
    stay, and the first one is returned.
    """
    header, rows, separator = _cells(data)
    found: list[str] = []

    def cell(text: str) -> str:
        if not text.startswith(FORMULA) or NUMBER.fullmatch(text):
            return text
        found.append(text)
        return f"'{text}" if safe else text

    for name in new:
        if name in header:
            raise ServeError(f"{data} has a column {name} already; rename it first")
    plain = lambda value: _text(value) if isinstance(value, bool) else str(value)
    more = zip(*(map(plain, values.tolist()) for values in new.values()), strict=True)
    partial, packed = f"{out}.{os.urandom(8).hex()}.partial", str(out).endswith(".gz")
    try:
        os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with (gzip.open if packed else open)(partial, "wt", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, delimiter=separator, lineterminator="\n")
            writer.writerow(map(cell, [*header, *new]))
            both = zip(rows, more, strict=True)
            writer.writerows([*map(cell, (*row, *cells))] for row, cells in both)
        os.replace(partial, out)
    finally:
        Path(partial).unlink(missing_ok=True)
    return found[0] if found and not safe else None


def _say(text: object) -> None:
    """A line on standard error; control characters in names do not reach the terminal."""
    shown = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))
    print(f"moml_serve: {''.join(shown)}", file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="moml_serve.py", description=(__doc__ or "").split("\n")[0]
    )
    predict = parser.add_subparsers(dest="command", required=True).add_parser("predict")
    predict.add_argument("--data", required=True, help="CSV file with the rows")
    predict.add_argument("--out", required=True, help="CSV file for the rows with predictions")
    predict.add_argument("--adapt-on", help="CSV file with rows to adapt to first")
    predict.add_argument(
        "--interval", type=float, help="share of targets between the bounds, such as 0.9"
    )
    predict.add_argument(
        "--safe", action="store_true", help="put ' before cells that spreadsheets take as formulas"
    )
    predict.add_argument("--folder", help="the exported folder; by default that of this file")
    given = parser.parse_args(arguments)
    try:
        model = load(given.folder)
        if not isinstance(model, Table):
            raise ServeError(
                "predict needs the export of a table; this one is a network: use it from Python"
            )
        if os.path.exists(given.out) and os.path.samefile(given.out, given.data):
            raise ServeError(f"{given.out} is the table itself; give another file")
        later = None if given.adapt_on is None else read_csv(given.adapt_on)
        made = model.predict(read_csv(given.data), later, given.interval)
        if given.interval is not None and np.isinf(made["upper"]).any():
            _say(f"warning: too few tasks for an interval of {given.interval:g}: it is infinite")
        if formula := write_csv(given.data, made, given.out, safe=given.safe):
            said = f"a spreadsheet takes cells of {given.out} as formulas, see --safe"
            _say(f"warning: {said}: {formula}")
    except (ServeError, OSError) as error:
        _say(error)
        sys.exit(2)


if __name__ == "__main__":
    main()
