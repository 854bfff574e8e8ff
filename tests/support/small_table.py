"""A table of users who differ in level and slope, for the tests of the commands."""

import equinox as eqx
import jax
import numpy as np

from moml.data.table.write import write_table


def users(n: int, seed: int, first: int = 0) -> dict[str, np.ndarray]:
    """Rows of n users, shuffled: y = 20 + 5 (a + (1 + b) x + 0.5 [kind a] + noise)."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(6, 13, n)
    who = np.repeat(np.arange(n), sizes)
    a, b = rng.normal(size=n)[who], 0.5 * rng.normal(size=n)[who]
    x, kind = rng.normal(size=len(who)), rng.choice(["a", "b", "c"], len(who))
    y = 20 + 5 * (a + (1 + b) * x + 0.5 * (kind == "a") + 0.4 * rng.normal(size=len(who)))
    day = np.concatenate([np.arange(size) for size in sizes])
    order = rng.permutation(len(who))
    columns = {"user": np.char.add("u", (first + who).astype(str)), "day": day, "x": x}
    columns |= {"kind": kind, "y": y}
    return {name: values[order] for name, values in columns.items()}


def some(columns: dict[str, np.ndarray], which: np.ndarray) -> dict[str, np.ndarray]:
    """Those rows."""
    return {name: values[which] for name, values in columns.items()}


def written(folder, name: str, columns: dict[str, np.ndarray]):
    """A file of the columns."""
    write_table(columns, folder / name)
    return folder / name


def build(inputs: int, outputs: int, key):
    """A network of one's own."""
    return eqx.nn.MLP(inputs, outputs, 8, 1, activation=jax.nn.tanh, key=key)
