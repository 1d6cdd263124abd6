"""The target's byte table is fetched once."""

from __future__ import annotations

from pathlib import Path

import httpx
from harness.serving import PROMPT, VOCABULARY, Faults, FaultyTransport, Serving

from edge_sdk import EdgeClient


async def fetches(server: Serving, cache: Path) -> int:
    faults = Faults(VOCABULARY.fingerprint)
    async with (
        httpx.AsyncClient(transport=FaultyTransport(faults)) as http,
        EdgeClient(server.url, http_client=http, cache=cache) as client,
    ):
        stream = client.generate(PROMPT, method="autoregressive", max_tokens=2)
        assert len([piece async for piece in stream]) >= 2
    return faults.seen


async def test_a_table_is_kept_and_a_damaged_one_fetched_again(
    server: Serving, tmp_path: Path
) -> None:
    cache = tmp_path / "new" / "tables"
    assert await fetches(server, cache) == 1
    assert await fetches(server, cache) == 0
    (table,) = cache.iterdir()
    assert table.name == f"{VOCABULARY.fingerprint}.table"
    table.write_bytes(table.read_bytes()[:-3])
    assert await fetches(server, cache) == 1
    assert await fetches(server, cache) == 0


async def test_a_folder_that_cannot_be_written_is_no_obstacle(
    server: Serving, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    assert await fetches(server, tmp_path / "file" / "tables") == 1
