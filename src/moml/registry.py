"""Tables of names: our own rows, a user's, and those that installed packages declare."""

import re
import warnings
from collections.abc import Callable, Mapping
from functools import cached_property
from importlib.metadata import entry_points
from typing import Any, Protocol, TypeVar, runtime_checkable

from moml.errors import ConfigError, MomlWarning

T = TypeVar("T")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@runtime_checkable
class Point(Protocol):
    """An entry point: the standard library's, or that of importlib_metadata once it is imported."""

    @property
    def name(self) -> str: ...

    @property
    def module(self) -> str: ...

    @property
    def dist(self) -> Any: ...

    def load(self) -> Any: ...


class Registry(dict[str, T]):
    """A dictionary of rows by name.

    Installed packages declare rows as entry points. One of them is loaded when its name is asked
    for and no other row has it, or when all are listed.

    >>> colours = Registry("colour", "moml.colours", {"red": 1})
    >>> colours.add("blue", 2)
    >>> colours.find("blue"), colours.names()
    (2, ['red', 'blue'])
    >>> colours.find("green")
    Traceback (most recent call last):
        ...
    moml.errors.ConfigError: colour must be one of red, blue; got 'green'
    """

    def __init__(
        self,
        what: str,
        group: str,
        rows: Mapping[str, T],
        check: Callable[[str, T], None] = lambda name, row: None,
    ):
        """`what` names a row in messages; `group` is that of the entry points."""
        super().__init__(rows)
        self.what, self.group, self.check = what, group, check

    def add(self, name: str, row: T) -> None:
        """Add a row; a name that is taken by another one is refused."""
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise ConfigError(
                f"a name in {self.group} must be letters, digits, . _ -; got {name!r}"
            )
        if name in self and self[name] is not row:
            raise ConfigError(f"{self.group} has {name!r} already: give another name")
        self.check(name, row)
        self[name] = row

    def find(self, name: object) -> T:
        """The row of this name."""
        if isinstance(name, str) and name not in self and name in self._declared:
            self._load(self._declared[name])
        if not isinstance(name, str) or name not in self:
            allowed = ", ".join(self.names())
            raise ConfigError(f"{self.what} must be one of {allowed}; got {name!r}")
        return self[name]

    def names(self) -> list[str]:
        """All names, also those of packages that are not imported."""
        return list(dict.fromkeys([*self, *self._declared]))

    def listed(self) -> dict[str, T]:
        """All rows; packages that declare some are imported."""
        for name in self.names():
            if name not in self:
                self._load(self._declared[name])
        return dict(self)

    @cached_property
    def _declared(self) -> dict[str, Point]:
        return {point.name: point for point in entry_points(group=self.group)}

    def _load(self, point: Point) -> None:
        """Add the row of an entry point; warn where it cannot be loaded, and never try it again."""
        try:
            self.add(point.name, point.load())
        except Exception as error:  # whatever a package raises when it is imported
            package = point.dist.name if point.dist is not None else point.module
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            del self._declared[point.name]
            warnings.warn(
                MomlWarning(
                    f"{self.what} {point.name} of the package {package} is left out: {reason}"
                ),
                stacklevel=3,
            )
