"""A server of a toy target over real HTTP, drafts that fit it, and a network that fails."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import httpx
import uvicorn
from fastapi import FastAPI
from pydantic import SecretStr

from edge_sdk import EdgeClient, Retry, Sampling, Stream, Timeouts
from edge_sdk.draft.toy import ToyDraft
from edge_sdk.draft.toy_table import ToyTable
from edge_sdk.draft.toy_text import toy_byte_vocabulary
from edge_sdk.offline import OfflinePolicy
from edge_sdk.vocab import Vocabulary
from server_app.app import create_app
from server_app.settings import Settings
from server_app.target.toy import ToyTarget
from server_app.websocket_options import UVICORN_OPTIONS

WORDS = (b" the", b" a", b" of", b" and", b" to", b" in", b"ing", b"er", b". ", b", ")
OTHER_WORDS = (b" th", b" an", b" of", b"and", b"ing", b"\xc3", b"\xff\xfe")
VOCABULARY = toy_byte_vocabulary(WORDS, unused=3)
OTHER_VOCABULARY = toy_byte_vocabulary(OTHER_WORDS, unused=1)
PROMPT = "a toy of the sea"
QUICK = Retry(attempts=3, first=0.01, longest=0.05)


def target_table(*, end: float = -30.0) -> ToyTable:
    """Printable bytes and words mostly; the end token has logit bias `end`."""
    bias = {i: -6.0 for i in range(256) if not 32 <= i < 127}
    for token in VOCABULARY.end_ids:
        bias[token] = end
    return ToyTable.random(5, len(VOCABULARY), order=2).biased(bias)


TABLE = target_table()


def toy_target(table: ToyTable = TABLE, **options: Any) -> ToyTarget:
    return ToyTarget.from_table(VOCABULARY, table, **options)


def related_draft(**options: Any) -> ToyDraft:
    """A draft of the same vocabulary that often agrees with the target."""
    other = ToyTable.random(6, len(VOCABULARY), order=2)
    return ToyDraft.from_table(VOCABULARY, TABLE.blended(other, 0.7), **options)


def other_draft(**options: Any) -> ToyDraft:
    """A draft of another vocabulary, with the target's law as far as it has its tokens."""
    ids = VOCABULARY.ids_by_bytes
    ends = iter(sorted(VOCABULARY.end_ids))
    source = [
        ids.get(piece, -1) if piece else (next(ends) if token in OTHER_VOCABULARY.end_ids else -1)
        for token, piece in enumerate(OTHER_VOCABULARY.pieces)
    ]
    return ToyDraft.from_table(OTHER_VOCABULARY, TABLE.projected(source), **options)


class Serving:
    """A uvicorn server in a thread, on a port that stays the same over restarts.

    Args:
        target: makes the target; asked again at every start.
        keys: accepted API keys; none: open.
        settings: further settings of the server.
    """

    def __init__(
        self,
        target: Callable[[], ToyTarget] = toy_target,
        *,
        keys: Sequence[str] = (),
        **settings: Any,
    ) -> None:
        self._make_target = target
        self._settings = Settings(
            api_keys=tuple(SecretStr(key) for key in keys), target="toy:1", **settings
        )
        self.port = 0
        self.target: ToyTarget
        self.app: FastAPI
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self.loop: asyncio.AbstractEventLoop | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def sessions(self) -> int:
        """Sessions that the server holds."""
        return len(self.app.state.host._sessions)

    @property
    def sequences(self) -> int:
        """Sequences of the toy target that were not released."""
        return len(self.target._sequences)

    def start(self) -> None:
        self.target = self._make_target()
        self.app = create_app(self.target, self._settings)
        # The protocol by name, so that asyncio sends small replies at once.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        self.port = listener.getsockname()[1]
        config = uvicorn.Config(
            self.app,
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=1,
            **UVICORN_OPTIONS,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, args=(listener,), daemon=True)
        self._thread.start()
        _until(lambda: self._server is not None and self._server.started)

    def _run(self, listener: socket.socket) -> None:
        assert self._server is not None
        with listener:
            asyncio.run(self._serve(self._server, listener))

    async def _serve(self, server: uvicorn.Server, listener: socket.socket) -> None:
        self.loop = asyncio.get_running_loop()
        await server.serve(sockets=[listener])
        for connection in list(server.server_state.connections):
            connection.transport.abort()  # type: ignore[union-attr]
        await asyncio.sleep(0.01)

    def stop(self, *, hard: bool = False) -> None:
        """Stop serving; `hard` drops open connections, as a crash would."""
        if self._server is None or self._thread is None:
            return
        self.app.state.host.closing = not hard
        self._server.force_exit = hard
        self._server.should_exit = True
        self._thread.join(timeout=15)
        assert not self._thread.is_alive(), "the server does not stop"
        self._server = self._thread = None

    def restart(self) -> None:
        self.stop(hard=True)
        self.start()


def _until(holds: Callable[[], bool], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)


async def until(holds: Callable[[], bool], seconds: float = 5.0) -> None:
    """Wait for something that another thread or task does."""
    end = asyncio.get_running_loop().time() + seconds
    while not holds():
        assert asyncio.get_running_loop().time() < end, "it did not happen in time"
        await asyncio.sleep(0.005)


@contextlib.contextmanager
def serving(target: Callable[[], ToyTarget] = toy_target, **options: Any) -> Iterator[Serving]:
    with Serving(target, **options) as server:
        yield server


@dataclass
class Faults:
    """What happens to the requests whose path ends in `path`, one entry a request: "ok",
    "lose" (handled by the server, the reply dropped), "refuse" (never sent), "cut" (half of
    the reply), "slow" (50 ms late). Requests past the list are fine."""

    path: str
    plan: list[str] = field(default_factory=list)
    seen: int = 0

    def next(self, request: httpx.Request) -> str:
        if not request.url.path.endswith(self.path):
            return "ok"
        self.seen += 1
        return self.plan[self.seen - 1] if self.seen <= len(self.plan) else "ok"


class _CutStream(httpx.AsyncByteStream):
    """A body that breaks off."""

    def __init__(self, response: httpx.Response, keep: int) -> None:
        self._response = response
        self._keep = keep

    async def __aiter__(self) -> AsyncIterator[bytes]:
        sent = 0
        async for part in self._response.aiter_raw():
            rest = self._keep - sent
            if len(part) > rest:
                yield part[:rest]
                break
            sent += len(part)
            yield part
        raise httpx.RemoteProtocolError("peer closed connection without sending complete body")

    async def aclose(self) -> None:
        await self._response.aclose()


class FaultyTransport(httpx.AsyncBaseTransport):
    """A real network that does what `Faults` say."""

    def __init__(self, faults: Faults, *, keep: int = 40) -> None:
        self._faults = faults
        self._keep = keep
        self._inner = httpx.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        fault = self._faults.next(request)
        if fault == "refuse":
            raise httpx.ConnectError("connection refused", request=request)
        if fault == "slow":
            await asyncio.sleep(0.05)
        response = await self._inner.handle_async_request(request)
        if fault == "lose":
            await response.aread()
            await response.aclose()
            raise httpx.ReadError("connection reset by peer", request=request)
        if fault == "cut":
            return httpx.Response(
                response.status_code,
                headers=response.headers,
                stream=_CutStream(response, self._keep),
            )
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


@contextlib.asynccontextmanager
async def connected(
    server: Serving | str,
    draft: ToyDraft | None = None,
    *,
    faults: Faults | None = None,
    retry: Retry = QUICK,
    reply: float = 10.0,
    offline: OfflinePolicy = "fail",
    **options: Any,
) -> AsyncIterator[EdgeClient]:
    """A client of a server, over a failing network if there are faults. A server that is gone
    is an error, where a client's own default is to wait for it."""
    url = server if isinstance(server, str) else server.url
    async with contextlib.AsyncExitStack() as stack:
        http = None
        if faults is not None:
            http = await stack.enter_async_context(
                httpx.AsyncClient(transport=FaultyTransport(faults))
            )
        client = EdgeClient(
            url,
            draft=draft,
            retry=retry,
            timeouts=Timeouts(reply=reply),
            cache=None,
            http_client=http,
            offline=offline,
            **options,
        )
        yield await stack.enter_async_context(client)


async def ids_of(stream: Stream) -> list[int]:
    """The ids of a text, read to its end and left."""
    async with stream:
        async for _ in stream:
            pass
    return [token.id for token in stream.tokens]


GREEDY = Sampling(temperature=0)


def greedy_ids(target: ToyTarget, prompt: str, count: int) -> list[int]:
    """The target's own greedy text, straight from its logits."""
    vocabulary: Vocabulary = target.vocabulary
    table = target._logits
    masked = vocabulary.masked_ids
    ids = target.encode(prompt)
    text: list[int] = []
    while len(text) < count:
        logits = table([*ids, *text]).astype("float32").copy()
        logits[masked] = -float("inf")
        text.append(int(logits.argmax()))
        if text[-1] in vocabulary.end_ids:
            break
    return text
