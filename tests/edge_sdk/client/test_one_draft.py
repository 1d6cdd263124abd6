"""One draft, many texts: dropped, nested, closed in the middle, and in two event loops."""

from __future__ import annotations

import asyncio
import gc

import pytest
from harness.serving import PROMPT, Serving, connected, greedy_ids, related_draft

from edge_sdk import EdgeClient, Stream
from edge_sdk.errors import InvalidRequest

METHODS = ["greedy", "hybrid", "autoregressive"]


async def ids_of(stream: Stream) -> list[int]:
    async for _ in stream:
        pass
    return [token.id for token in stream.tokens]


async def test_a_stream_that_was_dropped_frees_the_draft(server: Serving) -> None:
    async with connected(server, related_draft()) as client:
        for _ in range(3):
            stream = client.generate(PROMPT, max_tokens=3000)
            await anext(stream)
            await anext(stream)
            del stream
            async with asyncio.timeout(5):
                text = await ids_of(client.generate(PROMPT, method="greedy", max_tokens=4))
            assert text == greedy_ids(server.target, PROMPT, 4)
        assert not client.streams


async def test_a_text_inside_another_of_the_same_task_is_refused(server: Serving) -> None:
    async with connected(server, related_draft()) as client, asyncio.timeout(10):
        outer = client.generate(PROMPT, method="greedy", max_tokens=12)
        refused = 0
        async for _ in outer:
            with pytest.raises(InvalidRequest, match="busy with another text of this task"):
                await ids_of(client.generate(PROMPT, max_tokens=2))
            assert await ids_of(client.generate(PROMPT, method="autoregressive", max_tokens=2))
            refused += 1
        assert refused > 1
        assert [t.id for t in outer.tokens] == greedy_ids(server.target, PROMPT, 12)
        kept = client.generate(PROMPT, max_tokens=3000)
        await anext(kept)
        with pytest.raises(InvalidRequest, match="close it first"):
            await ids_of(client.generate(PROMPT, max_tokens=2))
        await kept.aclose()
        assert len(await ids_of(client.generate(PROMPT, max_tokens=2))) == 2


async def test_another_task_waits_for_the_draft(server: Serving) -> None:
    async with connected(server, related_draft()) as client, asyncio.timeout(10):
        outer = client.generate(PROMPT, method="greedy", max_tokens=20)
        await anext(outer)
        other = asyncio.create_task(ids_of(client.generate(PROMPT, method="greedy", max_tokens=5)))
        await asyncio.sleep(0.05)
        assert not other.done()
        assert await ids_of(outer) == greedy_ids(server.target, PROMPT, 20)
        assert await other == greedy_ids(server.target, PROMPT, 5)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("by_hand", [False, True])
async def test_closing_the_client_inside_its_loop_is_an_error(
    server: Serving, method: str, by_hand: bool
) -> None:
    async with connected(server, related_draft()) as client, asyncio.timeout(10):
        stream = client.generate(PROMPT, method=method, max_tokens=3000)

        async def read() -> None:
            if by_hand:
                await anext(stream)
                await client.aclose()
                await anext(stream)
            async for _ in stream:
                await client.aclose()

        with pytest.raises(InvalidRequest, match="client was closed"):
            await read()
    assert stream.finish is None
    assert stream.tokens


async def test_closing_a_stream_inside_its_loop_ends_it_quietly(server: Serving) -> None:
    async with connected(server, related_draft()) as client:
        stream = client.generate(PROMPT, max_tokens=3000)
        async for _ in stream:
            await stream.aclose()
        await client.aclose()
        assert [piece async for piece in stream] == []


async def test_a_client_stays_in_its_event_loop(server: Serving) -> None:
    async def use(client: EdgeClient) -> None:
        with pytest.raises(InvalidRequest, match="another event loop"):
            await client.connect()
        with pytest.raises(InvalidRequest, match="another event loop"):
            await ids_of(client.generate(PROMPT, method="greedy", max_tokens=4))
        with pytest.raises(InvalidRequest, match="another event loop"):
            await client.aclose()

    async with connected(server, related_draft()) as client:
        await asyncio.to_thread(asyncio.run, use(client))
        text = await ids_of(client.generate(PROMPT, method="greedy", max_tokens=4))
    assert text == greedy_ids(server.target, PROMPT, 4)


def in_two_loops(server: Serving) -> bool:
    client = EdgeClient(server.url, draft=related_draft(), cache=None)
    asyncio.run(client.connect())

    async def later(client: EdgeClient) -> None:
        with pytest.raises(InvalidRequest, match="another event loop"):
            await client.connect()
        await client.aclose()

    asyncio.run(later(client))
    return client.closed


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_client_whose_loop_has_ended(server: Serving) -> None:
    assert in_two_loops(server)
    # The ended loop left the connection open; it goes here, and not in another test.
    gc.collect()
