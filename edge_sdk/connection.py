"""A draft model and a server, aligned; what every text of a client stands on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import ssl
import weakref
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, Self, TypeVar

import httpx
import numpy as np
from numpy.typing import NDArray

from edge_sdk.adapt import Controller
from edge_sdk.arguments import kind, shown
from edge_sdk.closing import AsyncClosing
from edge_sdk.decoding.noise import token_keys
from edge_sdk.draft.follower import Follower
from edge_sdk.draft.model import DraftModel
from edge_sdk.errors import CosdError, InvalidRequest
from edge_sdk.home import cosd_home
from edge_sdk.offline import OfflinePolicy, OnLink, Outage
from edge_sdk.peer import Card, fetch_vocabulary, register
from edge_sdk.transport import HttpTransport, Transport, TransportName, transport_named
from edge_sdk.transport.address import ApiKey
from edge_sdk.vocab import Alignment, Vocabulary
from edge_sdk.waiting import Retry, Timeouts

log = logging.getLogger(__name__)

_CLOSE_SECONDS = 2.0

T = TypeVar("T")


class Closable(Protocol):
    """A text that can be stopped.

    Attributes:
        waits_for_this_task: it is under way, and goes on only if the current task reads on.
    """

    @property
    def waits_for_this_task(self) -> bool: ...

    async def aclose(self) -> None:
        """Stop it. Idempotent."""
        ...


class Connection(AsyncClosing):
    """What one client shares among its texts: the draft model, the server's card, the two
    vocabularies and the transport. Arguments: see `edge_sdk.client.EdgeClient`.

    Attributes:
        transport: requests to the server.
        retry: when a request is sent again.
        outage: whether the link is down, and what texts do then.
        draft_thread: the one thread that runs the draft model.
        streams: texts under way.
        closed: `aclose` was called.
    """

    def __init__(
        self,
        base_url: str,
        *,
        draft: DraftModel | Path | str | None = None,
        api_key: ApiKey | None = None,
        timeouts: Timeouts | None = None,
        retry: Retry | None = None,
        verify: ssl.SSLContext | bool = True,
        ca_file: Path | str | None = None,
        transport: TransportName = "auto",
        http_client: httpx.AsyncClient | None = None,
        cache: Path | str | None = "home",
        offline: OfflinePolicy = "wait",
        on_link: OnLink | None = None,
    ) -> None:
        if not isinstance(draft, DraftModel | str | os.PathLike | None):
            raise InvalidRequest(
                f"draft is {shown(draft)} ({kind(draft)}); give a draft model or the folder of "
                f"an exported one",
                field="draft",
            )
        if not isinstance(cache, str | os.PathLike | None):
            raise InvalidRequest(
                f"cache is {shown(cache)} ({kind(cache)}); give a folder, or None for no cache",
                field="cache",
            )
        http = HttpTransport(
            base_url,
            api_key=api_key,
            timeouts=timeouts,
            retry=retry,
            verify=verify,
            ca_file=ca_file,
            client=http_client,
        )
        self.transport: Transport = transport_named(transport, http)
        self.retry = retry or Retry()
        self.outage = Outage(offline, self.retry, on_link)
        self.draft_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="draft")
        self._draft_given = draft
        self._draft = draft if isinstance(draft, DraftModel) else None
        self._cache = _cache_folder(cache)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._card: Card | None = None
        self._vocabulary: Vocabulary | None = None
        self._alignment: Alignment | None = None
        self._follower: Follower | None = None
        self._common_keys: NDArray[np.uint64] | None = None
        self._registered = False
        self._connecting = asyncio.Lock()
        self._drafting = asyncio.Lock()
        self._drafted: weakref.ref[Closable] | None = None
        self._controllers: dict[str, Controller] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self.streams: weakref.WeakSet[Closable] = weakref.WeakSet()
        self.closed = False

    async def __aenter__(self) -> Self:
        try:
            await self.connect()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def connect(self) -> None:
        """Load the draft, ask the server what it serves, and align the vocabularies. Done
        once; `generate` does it when needed.

        Raises:
            ModelError: the draft folder cannot be used.
            TransportError, Unauthorized: the server cannot be talked to.
            VocabularyMismatch: draft and target share too little, or the draft was exported for
                another target.
            InvalidRequest: the client is in use in another event loop.
        """
        self._check_loop()
        async with self._connecting:
            if self._card is not None:
                return
            card = Card.read(await self.transport.card())
            vocabulary = await fetch_vocabulary(self.transport, card.fingerprint, self._cache)
            if self._draft is None and self._draft_given is not None:
                self._draft = await asyncio.to_thread(_load, Path(str(self._draft_given)))
            if self._draft is not None:
                self._alignment = await asyncio.to_thread(
                    Alignment.between, target=vocabulary, draft=self._draft.vocabulary
                )
                if self._draft.pruned is not None:
                    self._draft.pruned.check(self._alignment)
                log.info("%d tokens in common with %s", len(self._alignment), card.model)
            self._vocabulary = vocabulary
            self._card = card

    async def aclose(self) -> None:
        """Close sessions, connections and, if it was loaded here, the draft. Idempotent.

        Texts still being generated end with an `InvalidRequest`.

        Raises:
            InvalidRequest: the client is in use in another event loop.
        """
        if self._loop is not None and self._loop.is_closed():
            # Its connections and texts ended with that loop.
            self.closed = True
            await self._free_draft()
            return
        self._check_loop()
        self.closed = True
        self.outage.close()
        for stream in list(self.streams):
            await stream.aclose()
        if self._closing:
            await asyncio.wait(self._closing, timeout=_CLOSE_SECONDS)
        await self.transport.aclose()
        await self._free_draft()

    async def _free_draft(self) -> None:
        await asyncio.to_thread(self.draft_thread.shutdown)
        if self._draft is not None and not isinstance(self._draft_given, DraftModel):
            self._draft.close()

    @property
    def card(self) -> Card:
        """What the server serves; after `connect`."""
        return _connected(self._card)

    @property
    def vocabulary(self) -> Vocabulary:
        """The target's vocabulary; after `connect`."""
        return _connected(self._vocabulary)

    @property
    def draft(self) -> DraftModel:
        """The draft model.

        Raises:
            InvalidRequest: the client has none.
        """
        if self._draft is None:
            raise InvalidRequest(
                "this method drafts, but the client has no draft model; pass draft=FOLDER or "
                "use method='autoregressive'",
                field="draft",
            )
        return self._draft

    @property
    def has_draft(self) -> bool:
        """A draft was given, loaded or not."""
        return self._draft_given is not None

    @property
    def follower(self) -> Follower:
        """The draft in step with the latest text; what the next one shares with it stays warm."""
        if self._follower is None:
            self._follower = Follower(self.draft, self.alignment, self.vocabulary)
        return self._follower

    def common_keys(self) -> NDArray[np.uint64]:
        """Noise keys of V_C by rank, for `coupled`; after `connect`."""
        if self._common_keys is None:
            self._common_keys = token_keys(self.vocabulary, self.alignment.target_ids)
        return self._common_keys

    @property
    def alignment(self) -> Alignment:
        """V_C of draft and target; after `connect`."""
        return _connected(self._alignment)

    @contextlib.asynccontextmanager
    async def drafting(self, text: Closable) -> AsyncIterator[None]:
        """The draft model is free, and this text's until the end.

        Raises:
            InvalidRequest: it is busy with a text that the waiting task itself would have to
                read on.
        """
        busy = None if self._drafted is None else self._drafted()
        if self._drafting.locked() and busy is not None and busy.waits_for_this_task:
            raise InvalidRequest(
                "this client's draft is busy with another text of this task; close it first or "
                "use another client"
            )
        busy = None
        async with self._drafting:
            self._drafted = weakref.ref(text)
            yield

    def controller(self, name: str, *, plain: bool) -> Controller:
        """What has been learnt of a method, or of all of them as "auto", by earlier texts.

        Args:
            plain: the server may decode alone.
        """
        if name not in self._controllers:
            self._controllers[name] = Controller(plain=plain)
        return self._controllers[name]

    async def register_pair(self, session_id: str) -> None:
        """Tell the server V_C, once; see `register`."""
        if not self._registered:
            await register(self.transport, self.alignment, session_id)
            self._registered = True

    def _check_loop(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise InvalidRequest(
                "this client belongs to another event loop (a second asyncio.run, or another "
                "thread); make a client in each loop"
            )

    def forget(self, session_id: str) -> None:
        """Close a session in the background; a server that does not answer drops it itself."""

        async def close() -> None:
            with contextlib.suppress(CosdError, TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await self.transport.close_session(session_id)

        task = asyncio.get_running_loop().create_task(close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def _cache_folder(cache: Path | str | None) -> Path | None:
    if cache == "home":
        return cosd_home() / "tables"
    return None if cache is None else Path(cache)


def _connected(value: T | None) -> T:
    if value is None:
        raise InvalidRequest("the client is not connected; use `async with` or await connect()")
    return value


def _load(folder: Path) -> DraftModel:
    from edge_sdk.draft.onnx import OnnxDraft

    return OnnxDraft.open(folder)
