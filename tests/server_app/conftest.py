"""A server in process for every test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from harness.raw import Raw, in_process


@pytest.fixture
async def raw() -> AsyncIterator[Raw]:
    async with in_process() as server:
        yield server
