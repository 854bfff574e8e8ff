"""How numbers and missing values are written in texts: 1,013,441 or $4.50 or 45 % or 4,5.

`Cells.numbers` reads texts by a given form, `guessed` finds the form that reads most of them, which
errors and hints name. A form is never applied without being asked for: 1,234 may be either.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from moml.data.table.arrow import Arrow, arrow
from moml.errors import ConfigError

SPACES = "[ \u00a0\u2009\u202f]"  # that may stand between groups of three digits
UNIT = r"^[+\-\u2212]?\s*([^\w\s.,+\-\u2212'()\[\]/:#*&]{1,2})\s*[+\-\u2212]?[\d.,]"
UNIT_AFTER = r"\d\s*([^\w\s.,+\-\u2212'()\[\]/:#*&]{1,2}|\s[A-Za-z]{1,3})$"
FORMS = ((".", None), (".", ","), (",", None), (",", "."), (".", " "), (",", " "), (".", "'"))
SAMPLE = 1000  # texts that show which form numbers may have

Numbers = Float[np.ndarray, " words"]
Known = Bool[np.ndarray, " words"]


class Cells(NamedTuple):
    """The decimal mark, the mark between thousands, signs around numbers, what is missing."""

    decimal: str | None = None  # None: a point, and texts that are not in a CSV stay texts
    thousands: str | None = None
    units: tuple[str, ...] = ()
    na: tuple[str, ...] = ()

    @property
    def plain(self) -> bool:
        """Whether numbers have no form of their own."""
        return self.decimal is None and self.thousands is None and not self.units

    @property
    def pointed(self) -> bool:
        """Whether 1.5 is read as one and a half."""
        return self.decimal in (None, ".") and self.thousands is None

    @property
    def options(self) -> str:
        """The options that ask for it.

        >>> Cells(thousands=",", units=("$",)).options
        "--thousands ',' --units '$'"
        """
        said = [f"--decimal {self.decimal!r}"] if self.decimal else []
        said += [f"--thousands {self.thousands!r}"] if self.thousands else []
        said += [f"--units {' '.join(map(repr, self.units))}"] if self.units else []
        return " ".join(said)

    def numbers(self, words: Arrow) -> tuple[Numbers, Known]:
        """The texts as numbers, and which of them are; spaces around them do not count.

        >>> words = arrow().array(["$1,013.50", "-$4", "1,01"])
        >>> values, known = Cells(thousands=",", units=("$",)).numbers(words)
        >>> values.tolist(), known.tolist()
        ([1013.5, -4.0, nan], [True, True, False])
        """
        pa = arrow()
        compute = pa.compute
        texts = compute.replace_substring(compute.utf8_trim_whitespace(words), "\u2212", "-")
        for unit in self.units:
            sign = re.escape(unit)
            around = rf"^([+-]?)\s*(?:{sign})?\s*([+-]?.*?)\s*(?:{sign})?$"
            texts = compute.replace_substring_regex(texts, around, r"\1\2")
        mark, groups = re.escape(self.decimal or "."), self._between
        if groups is not None:
            grouped = rf"^[+-]?[1-9]\d{{0,2}}(?:{groups}\d{{3}})+(?:{mark}\d*)?$"
            whole = compute.match_substring_regex(texts, grouped)
            texts = compute.if_else(
                whole, compute.replace_substring_regex(texts, groups, ""), texts
            )
        number = (
            rf"^[+-]?(\d+(?:{mark})?\d*|{mark}\d+)([eE][+-]?\d+)?$|^[+-]?(?i:inf|infinity|nan)$"
        )
        fits = compute.match_substring_regex(texts, number).fill_null(False)
        texts = compute.replace_substring(texts, self.decimal or ".", ".")
        values = compute.if_else(fits, texts, None).cast(pa.float64()).fill_null(np.nan)
        return values.to_numpy(zero_copy_only=False), fits.to_numpy(zero_copy_only=False)

    @property
    def _between(self) -> str | None:
        if self.thousands is None:
            return None
        return SPACES if self.thousands == " " else re.escape(self.thousands)


def cells(
    decimal: str | None = None,
    thousands: str | None = None,
    units: Sequence[str] = (),
    na: Sequence[str] = (),
) -> Cells:
    """A checked form: see `Cells`."""
    if decimal not in (None, ".", ","):
        raise ConfigError(f"decimal must be '.' or ','; got {decimal!r}")
    sign = isinstance(thousands, str) and len(thousands) == 1 and not thousands.isalnum()
    if thousands is not None and (not sign or thousands in "+-"):
        raise ConfigError(f"thousands must be one sign, such as ','; got {thousands!r}")
    if thousands == (decimal or "."):
        raise ConfigError(f"decimal and thousands must differ; got {thousands!r} for both")
    for name, words in {"units": units, "na": na}.items():
        if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
            raise ConfigError(f"{name} must be a list of texts; got {words!r}")
    for unit in units:
        if not unit.strip() or re.search(r"[\d.,+-]", unit):
            raise ConfigError(f"units must be signs without digits, points or + -; got {unit!r}")
    return Cells(decimal, thousands, tuple(unit.strip() for unit in units), tuple(na))


def guessed(words: Arrow, counts: Int[np.ndarray, " words"]) -> tuple[Cells, Known] | None:
    """The form that reads more than half of the cells, of which `counts` have each text.

    None if there is none, or if they are numbers without any.

    >>> found = guessed(arrow().array(["4,50", "1,234", "none"]), np.array([1, 1, 1]))
    >>> found[0].options, found[1].tolist()
    ("--decimal ','", [True, True, False])
    """
    some, each = words[:SAMPLE], counts[:SAMPLE]
    texts = [word.strip() for word in some.to_pylist() if word]
    signs = [found[1].strip() for word in texts if (found := _unit(word))]
    units = tuple(sign for sign in dict.fromkeys(signs) if 2 * signs.count(sign) > len(signs))
    forms = [Cells(), *(Cells(None if d == "." else d, t, units) for d, t in FORMS)]
    like = [int(each[form.numbers(some)[1]].sum()) for form in forms]
    best = int(np.argmax(like))  # the first of the best
    if not best or 2 * like[best] <= each.sum():
        return None
    known = forms[best].numbers(words)[1]
    return (forms[best], known) if 2 * counts[known].sum() > counts.sum() else None


def _unit(word: str) -> re.Match[str] | None:
    """The sign before or after a number."""
    return re.search(UNIT, word) or re.search(UNIT_AFTER, word)
