"""What goes wrong around the server costs nobody a token."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import time
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from harness.raw import ALIGNMENT, block, error, in_process, ranks, verdict
from harness.serving import (
    PROMPT,
    TABLE,
    VOCABULARY,
    Serving,
    connected,
    greedy_ids,
    ids_of,
    related_draft,
    serving,
    toy_target,
    until,
)

from edge_sdk import Retry, Stream
from edge_sdk.errors import CosdError, ServerUnavailable
from edge_sdk.wire import Generate, Verdict, Verify, encode
from server_app.target.model import Chunk
from server_app.target.toy import ToyTarget

PATIENT = Retry(attempts=12, first=0.02, longest=0.3)
ONCE = Retry(attempts=1, first=0.01, longest=0.01)
CLIENTS = 60
OVERLOAD_SECONDS = float(os.environ.get("COSD_TEST_OVERLOAD_SECONDS", "4"))


async def raw_request(server: Serving, method: str, path: str, body: bytes) -> asyncio.StreamWriter:
    """Send a request and do not read the reply."""
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    head = f"{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
    return writer


async def test_a_client_that_vanishes_costs_nothing_from_the_next_step_on() -> None:
    with serving(lambda: toy_target(seconds_per_pass=0.15)) as server:
        engine = server.app.state.host.engine
        async with connected(server, related_draft()) as client, connected(server) as other:
            stream = client.generate(PROMPT, method="greedy", max_tokens=60, gamma=2)
            async for _ in stream:
                path = f"/v1/sessions/{stream._session.session_id}/verify"
                base = len(stream.tokens)
                # Somebody else's pass is under way, so that the verify has to wait.
                under_way = asyncio.ensure_future(
                    ids_of(other.generate("to", method="autoregressive", max_tokens=2))
                )
                await until(lambda: engine.waiting > 0)
                held = next(iter(server.app.state.host._sessions._held.values()))
                message = Verify(held.ledger.next_sequence, base)
                writer = await raw_request(server, "POST", path, encode(message))
                await until(lambda: engine.waiting > 1)
                writer.close()
                await under_way
                assert held.ledger.next_sequence == message.sequence
                assert len(held.session.generated) == base
                break


async def test_twenty_streaming_clients_survive_a_restart() -> None:
    async def texts(server: Serving, *, restart: bool) -> list[list[int]]:
        async with connected(server, retry=PATIENT) as alone:
            streams: list[Stream] = []

            async def drafted(seed: int) -> list[int]:
                async with connected(server, related_draft(), retry=PATIENT) as client:
                    streams.append(
                        client.generate(PROMPT, method="coupled", seed=seed, max_tokens=40, gamma=3)
                    )
                    return await ids_of(streams[-1])

            async def streamed(seed: int) -> list[int]:
                streams.append(
                    alone.generate(PROMPT, method="autoregressive", seed=seed, max_tokens=40)
                )
                return await ids_of(streams[-1])

            tasks = [
                asyncio.create_task((drafted if seed % 2 else streamed)(seed)) for seed in range(20)
            ]
            if restart:
                await until(lambda: sum(len(s.tokens) for s in streams) > 100, 20)
                assert any(s.finish is None for s in streams)
                await asyncio.to_thread(server.restart)
            return list(await asyncio.gather(*tasks))

    with serving(lambda: toy_target(seconds_per_pass=0.01)) as server:
        undisturbed = await texts(server, restart=False)
        assert await texts(server, restart=True) == undisturbed


@pytest.mark.parametrize("seed", range(6))
async def test_duplicated_reordered_and_late_requests(seed: int) -> None:
    """Pipelined blocks, each sent several times and in any order within the window."""
    draw = random.Random(seed)
    async with in_process() as raw:
        path = await raw.open(method="greedy")
        own = greedy_ids(raw.target, PROMPT, 48)
        blocks: list[Verify] = []
        base = 0
        for number in range(8):
            gamma = draw.randrange(1, 4)
            drafted = ranks(own[base : base + gamma])
            wrong = draw.random() < 0.2
            if wrong:
                drafted[-1] = (drafted[-1] + 1) % 200
            parent = number - 1 if number else None
            blocks.append(
                block(*drafted, sequence=number, base=base, q=None, parent=parent, more=number < 7)
            )
            base += gamma
        sent = [one for one in blocks for _ in range(draw.randrange(1, 4))]
        draw.shuffle(sent)

        async def late(one: Verify) -> Verdict:
            await asyncio.sleep(draw.random() * 0.1)
            return verdict(await raw.send("POST", f"{path}/verify", one))

        replies = await asyncio.gather(*(late(one) for one in sent))
        by_number: dict[int, Verdict] = {}
        for one, reply in zip(sent, replies, strict=True):
            assert by_number.setdefault(one.sequence, reply) == reply
        # Verdict by verdict the text is the target's own; after a rejection all are stale.
        text: list[int] = []
        stale = False
        for number, one in enumerate(blocks):
            reply = by_number[number]
            assert reply.stale == stale
            if stale:
                continue
            count = len(one.draft)  # a byte a rank in this small vocabulary, two in a larger one
            size = count // (2 if len(ALIGNMENT) > 256 else 1)
            text += own[len(text) : len(text) + reply.accepted]
            if reply.settled is not None:
                text.append(reply.settled)
            stale = reply.accepted < size
        assert text == own[: len(text)]
        session = next(iter(raw.host._sessions._held.values())).session
        assert session.generated == text


async def test_a_slow_reader_holds_nobody_up() -> None:
    with serving() as server:
        async with connected(server, related_draft()) as client:
            reading = client.generate(PROMPT, method="autoregressive", max_tokens=3900)
            async for _ in reading:
                path = f"/v1/sessions/{reading._session.session_id}/generate"
                # Another reader takes the stream over and then reads nothing.
                writer = await raw_request(server, "POST", path, encode(Generate(0)))
                text = await ids_of(client.generate(PROMPT, method="greedy", max_tokens=30))
                assert text == greedy_ids(server.target, PROMPT, 30)
                writer.close()
                break


async def test_overload_is_refused_and_nobody_gets_a_wrong_text() -> None:
    """Ten times what the server can do, for a while: memory stays, texts are right."""
    with serving(
        lambda: toy_target(seconds_per_pass=0.02), max_batch_tokens=16, queue_limit=8
    ) as server:
        own = greedy_ids(server.target, PROMPT, 3)
        texts: list[list[int]] = []
        refused: list[ServerUnavailable] = []
        connected_all = asyncio.Barrier(CLIENTS + 1)

        async def client_of_many() -> None:
            async with connected(server, related_draft(), retry=ONCE) as client:
                await connected_all.wait()
                end = time.monotonic() + OVERLOAD_SECONDS
                while time.monotonic() < end:
                    try:
                        stream = client.generate(PROMPT, method="greedy", max_tokens=3, gamma=2)
                        texts.append(await ids_of(stream))
                    except ServerUnavailable as unavailable:
                        refused.append(unavailable)
                        await asyncio.sleep(0.05)

        tasks = [asyncio.create_task(client_of_many()) for _ in range(CLIENTS)]
        await connected_all.wait()
        await asyncio.sleep(OVERLOAD_SECONDS / 2)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        await asyncio.gather(*tasks)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert texts
        assert all(text == own for text in texts)
        assert len(refused) > 10
        assert all(error.retry_after for error in refused)
        assert after - before < 64 * 1024  # KiB
        async with connected(server, related_draft()) as client:
            assert await ids_of(client.generate(PROMPT, method="greedy", max_tokens=3)) == own
        await until(lambda: server.sessions == 0)


class Poisoned(ToyTarget):
    """The forward pass raises where the id of a byte is fed that is hardly ever drafted."""

    def forward(self, chunks: Sequence[Chunk]) -> list[torch.Tensor]:
        if any(0x7F in chunk.token_ids for chunk in chunks):
            raise RuntimeError("a kernel failed")
        return super().forward(chunks)


async def test_a_poison_request_fails_its_session_only(caplog: pytest.LogCaptureFixture) -> None:
    def poisoned() -> ToyTarget:
        return Poisoned.from_table(VOCABULARY, TABLE, seconds_per_pass=0.01)

    with serving(poisoned) as server:

        async def text(prompt: str) -> Any:
            async with connected(server, related_draft()) as client:
                return await ids_of(client.generate(prompt, method="greedy", max_tokens=20))

        prompts = [PROMPT, "the \x7f sea", PROMPT, PROMPT, "\x7f", PROMPT]
        results = await asyncio.gather(*map(text, prompts), return_exceptions=True)
        own = greedy_ids(server.target, PROMPT, 20)
        for prompt, result in zip(prompts, results, strict=True):
            if "\x7f" in prompt:
                assert isinstance(result, CosdError)
                assert result.code == "server_fault"
            else:
                assert result == own
        assert await text(PROMPT) == own
    assert "a kernel failed" in caplog.text


async def test_keys_are_held_to_their_limits() -> None:
    async with in_process(settings={"max_sessions_per_key": 2}) as raw:
        for _ in range(2):
            await raw.open()
        reply = await raw.send("PUT", f"/v1/sessions/{'5' * 32}", b"")
        assert reply.status_code == 422
        with pytest.raises(AssertionError, match="rate_limited"):
            await raw.open()
    async with in_process(settings={"requests_per_second_per_key": 2.0}) as raw:
        path = await raw.open(method="greedy")
        replies = [
            await raw.send("POST", f"{path}/verify", block(sequence=n, base=n, q=None))
            for n in range(10)
        ]
        assert error(replies[-1]) == (429, "rate_limited")
        assert int(replies[-1].headers["retry-after"]) >= 1
        assert replies[0].status_code == 200
