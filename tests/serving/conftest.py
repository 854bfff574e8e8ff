"""Fixtures that several modules share."""

from tests.support.clients import data, done, root  # noqa: F401
