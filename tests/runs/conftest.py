"""Fixtures that several modules share."""

from tests.support.clients import data, ditto, done, root  # noqa: F401
