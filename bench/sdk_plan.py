"""How much `bench.sdk` measures, and over what links."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from bench.link_proxy import LinkProxy, Shape
from bench.sdk_draft import TimedDraft
from bench.server import ServerProcess
from edge_sdk.client import EdgeClient
from edge_sdk.sampling import Sampling

PAD_VARIABLE: Final = "BENCH_PAD_TARGET_MS"  # for `bench.sdk_padded`
SAMPLING: Final = Sampling(temperature=0.7)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is measured.

    Attributes:
        round_trips: ms.
        prompts: of each comparison of texts that differ.
        more_prompts: of each comparison of the same texts, each as long as one of the others.
        text_seconds: about how long the texts from `prompts` of one comparison may take.
        round_tokens: of a text whose rounds are taken apart.
        turns: of the decode loop.
        pad: ms that a pass of the target is made longer by.
        shared: device and server share all cores.
    """

    round_trips: Sequence[int]
    prompts: Sequence[str]
    more_prompts: Sequence[str]
    text_seconds: float
    round_tokens: int
    turns: int
    threads: int | None
    pad: float
    shared: bool


@contextlib.asynccontextmanager
async def over(server: ServerProcess, draft: TimedDraft, rtt: int) -> AsyncIterator[EdgeClient]:
    """A client whose link has a round-trip time of so many ms; at 0 there is nothing between."""
    async with contextlib.AsyncExitStack() as stack:
        url = server.url
        if rtt:
            proxy = LinkProxy(urlsplit(url).port or 0, shape=Shape(delay=rtt / 2000))
            url = (await stack.enter_async_context(proxy)).url
        client = EdgeClient(url, draft=draft, api_key=server.api_key)
        yield await stack.enter_async_context(client)
