"""One server for all tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness.serving import Serving, serving


@pytest.fixture(scope="module")
def server() -> Iterator[Serving]:
    with serving() as running:
        yield running
