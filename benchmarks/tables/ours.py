"""The table recipe by its defaults, on a split of the benchmark."""

from typing import Any

import numpy as np

from moml.run.table_fit import fit_groups
from tables import Split


def predictions(s: Split, **settings: Any) -> np.ndarray:
    """Predictions for the query rows of the test groups: numbers, or the second class's chance."""
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


def personal(s: Split) -> np.ndarray:
    """The default."""
    return predictions(s)


def pooled(s: Split) -> np.ndarray:
    """Our own net, the same for everybody."""
    return predictions(s, kinds=["pooled"])


OURS = {"moml": personal, "moml, one for all": pooled}
