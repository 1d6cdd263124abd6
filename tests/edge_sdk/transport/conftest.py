"""One server for every test that leaves it as it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness.serving import Serving, serving


@pytest.fixture(scope="session")
def server() -> Iterator[Serving]:
    with serving() as running:
        yield running
