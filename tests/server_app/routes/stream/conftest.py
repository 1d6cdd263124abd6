"""Servers of a toy target, with and without keys."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness.raw import KEY, OTHER_KEY
from harness.serving import Serving, serving


@pytest.fixture(scope="module")
def server() -> Iterator[Serving]:
    with serving() as running:
        yield running


@pytest.fixture(scope="module")
def locked() -> Iterator[Serving]:
    with serving(keys=[KEY, OTHER_KEY]) as running:
        yield running
