"""The client that apps embed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import operator
import secrets
import ssl
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypeVar

import httpx
import numpy as np
from numpy.typing import NDArray

from edge_sdk.chat import Message
from edge_sdk.decoding.method import Method
from edge_sdk.decoding.noise import token_keys
from edge_sdk.decoding.registry import method_named
from edge_sdk.draft.follower import Follower
from edge_sdk.draft.model import DraftModel
from edge_sdk.errors import CosdError, EmptyPrompt, InvalidRequest
from edge_sdk.home import cosd_home
from edge_sdk.peer import Card, fetch_vocabulary, register
from edge_sdk.sampling import Sampling
from edge_sdk.session import Request
from edge_sdk.stream import Stream
from edge_sdk.transport import HttpTransport, Retry, Timeouts
from edge_sdk.vocab import Alignment, Vocabulary
from edge_sdk.vocab.stop import StopStrings
from edge_sdk.wire import Generation, Prompt
from edge_sdk.wire.limits import MAX_DRAFT

log = logging.getLogger(__name__)

_CLOSE_SECONDS = 2.0

T = TypeVar("T")


class EdgeClient:
    """A draft model on this device and a server that verifies it.

    Example:
        async with EdgeClient("http://127.0.0.1:8077", draft="smollm2-draft") as client:
            async for piece in client.generate("The sea is", sampling=Sampling(temperature=0.7)):
                print(piece.text, end="", flush=True)

    Args:
        base_url: address of the server.
        draft: a draft model, or the folder of an exported one; None for `autoregressive` only.
            A model that was passed in is not closed with the client.
        api_key: bearer key of the server.
        timeouts, retry: how long to wait and when to try again.
        verify: TLS verification; an `ssl.SSLContext` for own authorities.
        http_client: an `httpx.AsyncClient` to use; it is not closed.
        cache: folder for byte tables of targets, by default in `COSD_HOME`; None keeps nothing
            on disk.

    One draft model follows one text: generations that draft run one after another.
    """

    def __init__(
        self,
        base_url: str,
        *,
        draft: DraftModel | Path | str | None = None,
        api_key: str | None = None,
        timeouts: Timeouts | None = None,
        retry: Retry | None = None,
        verify: ssl.SSLContext | bool = True,
        http_client: httpx.AsyncClient | None = None,
        cache: Path | Literal["home"] | None = "home",
    ) -> None:
        self.retry = retry or Retry()
        self.transport = HttpTransport(
            base_url,
            api_key=api_key,
            timeouts=timeouts,
            retry=self.retry,
            verify=verify,
            client=http_client,
        )
        self.draft_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="draft")
        self._draft_given = draft
        self._draft = draft if isinstance(draft, DraftModel) else None
        self._cache = cosd_home() / "tables" if cache == "home" else cache
        self._card: Card | None = None
        self._vocabulary: Vocabulary | None = None
        self._alignment: Alignment | None = None
        self._follower: Follower | None = None
        self._common_keys: NDArray[np.uint64] | None = None
        self._registered = False
        self._connecting = asyncio.Lock()
        self._drafting = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()
        self.streams: set[Stream] = set()
        self.closed = False

    async def __aenter__(self) -> Self:
        try:
            await self.connect()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def connect(self) -> None:
        """Load the draft, ask the server what it serves, and align the vocabularies. Done
        once; `generate` does it when needed.

        Raises:
            ModelError: the draft folder cannot be used.
            TransportError, Unauthorized: the server cannot be talked to.
            VocabularyMismatch: draft and target share too little.
        """
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
                log.info("%d tokens in common with %s", len(self._alignment), card.model)
            self._vocabulary = vocabulary
            self._card = card

    async def aclose(self) -> None:
        """Close sessions, connections and, if it was loaded here, the draft. Idempotent.

        Texts still being generated elsewhere end with an `InvalidRequest`.
        """
        self.closed = True
        for stream in list(self.streams):
            await stream.aclose()
        if self._closing:
            await asyncio.wait(self._closing, timeout=_CLOSE_SECONDS)
        await self.transport.aclose()
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

    def generate(
        self,
        prompt: str | None = None,
        *,
        messages: Sequence[Message] | None = None,
        prompt_ids: Sequence[int] | None = None,
        method: Method | str = "hybrid",
        sampling: Sampling | None = None,
        max_tokens: int = 256,
        stop: Sequence[str] = (),
        seed: int | None = None,
        gamma: int = 3,
    ) -> Stream:
        """Generate a text.

        Args:
            prompt: text to go on from; or give `messages` or target ids as `prompt_ids`.
            method: a decoding method or its name.
            sampling: transforms of the target's law; by default temperature 1, and 0 for
                `greedy`.
            max_tokens: most target tokens.
            stop: strings that end the text; they are not part of it.
            seed: 64 bits; by default fresh ones.
            gamma: tokens drafted a round.

        Raises:
            InvalidRequest: an argument is wrong; the message names it.
        """
        chosen = method_named(method) if isinstance(method, str) else method
        if sampling is None:
            sampling = Sampling(temperature=0.0 if chosen.name == "greedy" else 1.0)
        chosen.check(sampling)
        gamma = _integer("gamma", gamma)
        if not 1 <= gamma <= MAX_DRAFT:
            raise InvalidRequest(
                f"gamma is {gamma}; it must be within [1, {MAX_DRAFT}]", field="gamma"
            )
        StopStrings(stop)
        given = (prompt, messages, prompt_ids)
        if any(part is not None and len(part) == 0 for part in given):
            raise EmptyPrompt("the prompt is empty; give at least one character", field="prompt")
        if not isinstance(prompt, str | None):
            raise InvalidRequest(
                f"the prompt is {type(prompt).__name__}, not a string; chat goes into messages=, "
                f"target ids into prompt_ids=",
                field="prompt",
            )
        if chosen.drafts and self._draft_given is None:
            _ = self.draft
        request = Request(
            prompt=Prompt(
                text=prompt,
                messages=None if messages is None else tuple(messages),
                ids=None
                if prompt_ids is None
                else tuple(_integer("prompt_ids", token) for token in prompt_ids),
            ),
            method=chosen,
            generation=Generation(
                method=chosen.name,
                sampling=sampling,
                max_tokens=_integer("max_tokens", max_tokens),
                seed=secrets.randbits(64) if seed is None else _integer("seed", seed),
                options=chosen.options(),
            ),
            gamma=1 if chosen.keeps_sure else gamma,
            stop=tuple(stop),
        )
        return Stream(self, request)

    @contextlib.asynccontextmanager
    async def drafting(self) -> AsyncIterator[None]:
        """The draft model is free, and this text's until the end."""
        async with self._drafting:
            yield

    async def register_pair(self) -> None:
        """Tell the server V_C, once."""
        if not self._registered:
            await register(self.transport, self.alignment)
            self._registered = True

    def forget(self, session_id: str) -> None:
        """Close a session in the background; a server that does not answer drops it itself."""

        async def close() -> None:
            with contextlib.suppress(CosdError, TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await self.transport.close_session(session_id)

        task = asyncio.get_running_loop().create_task(close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def _integer(name: str, value: int) -> int:
    try:
        return operator.index(value)
    except TypeError as error:
        raise InvalidRequest(f"{name} is {value!r}; it must be an integer", field=name) from error


def _connected(value: T | None) -> T:
    if value is None:
        raise InvalidRequest("the client is not connected; use `async with` or await connect()")
    return value


def _load(folder: Path) -> DraftModel:
    from edge_sdk.draft.onnx import OnnxDraft

    return OnnxDraft.open(folder)
