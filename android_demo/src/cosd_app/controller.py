"""The app's behaviour: one state, changed by actions, told to whoever shows it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, Final

from cosd_app.drafts import RemoteDraft
from cosd_app.keys import KeyStore
from cosd_app.memory import low_memory
from cosd_app.server import Server, checked_address
from cosd_app.state import Choices, Link, Offer, Phase, Problem, Progress, State
from cosd_app.storage import Storage
from cosd_app.words import problem_of
from cosd_app.writing import Writer
from edge_sdk import EdgeClient, Retry, Timeouts
from edge_sdk.decoding.registry import METHODS
from edge_sdk.errors import (
    ConnectionFailed,
    CosdError,
    InvalidRequest,
    NotFound,
    RateLimited,
    ServerFault,
    TimedOut,
    Unauthorized,
)
from edge_sdk.transport.address import checked_key

log = logging.getLogger(__name__)

_WATCH_SECONDS: Final = 5.0
_BACKGROUND_SECONDS: Final = 60.0
_PROGRESS_SECONDS: Final = 0.1

Job = Callable[[], Coroutine[Any, Any, None]]


class Controller:
    """Actions of the app. None of them raises what a server or file does wrong: it becomes
    `state.problem`. An action that comes while another is under way is refused the same way.

    Args:
        storage: the app's folder.
        keys: where the server's key is kept.
        on_change: called with every new state, in the event loop.
        retry, timeouts: of requests.
        low: whether the device is about to run out of memory.
        clock: seconds, never backwards.
    """

    def __init__(
        self,
        storage: Storage,
        keys: KeyStore,
        *,
        on_change: Callable[[State], None] | None = None,
        retry: Retry | None = None,
        timeouts: Timeouts | None = None,
        low: Callable[[], bool] = low_memory,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.state = State()
        self._storage = storage
        self._keys = keys
        self._on_change = on_change
        self._server = Server(
            storage, keys, on_link=self._link_changed, retry=retry, timeouts=timeouts
        )
        self._low = low
        self._clock = clock
        self._writer = Writer(self._set, storage, clock)
        self._job: asyncio.Task[None] | None = None
        self._free_soon: asyncio.TimerHandle | None = None
        self._freeing: set[asyncio.Task[None]] = set()
        self._free_after = False

    def listen(self, on_change: Callable[[State], None]) -> None:
        """Tell every new state to `on_change` from now on."""
        self._on_change = on_change

    async def start(self) -> None:
        """Take up what was set last, and ask the server if one is known."""
        choices = self._storage.load_choices()
        self._set(choices=choices)
        try:
            self._set(has_key=await self._keys.load() is not None)
        except CosdError as error:
            self._set(problem=problem_of(error))
        cut_off = self._storage.load_text()
        if cut_off is not None:
            prompt, spans = cut_off
            self._set(prompt=prompt, spans=spans, finish="cut off")
        self._rest()
        if choices.server:
            await self.refresh()

    async def set_server(self, address: str, key: str | None = None) -> None:
        """Use a server.

        Args:
            address: "host:port" is taken as https, or as http on this device.
            key: a new key; None keeps the one that is stored, "" forgets it.
        """

        async def job() -> None:
            server = checked_address(address)
            if key:
                checked_key(key.strip())
            await self._drop_client()
            if key:
                await self._keys.save(key.strip())
            # A key goes only to the server that it was entered for.
            elif key == "" or server != self.state.choices.server:
                await self._keys.clear()
            self._set(has_key=await self._keys.load() is not None)
            self._choose(server=server)
            self._set(model="", methods=(), offers=(), link=Link.UNKNOWN, turns=())
            await self._ask()

        await self._run(Phase.CONNECTING, job)

    async def refresh(self) -> None:
        """Ask the server what it serves and which drafts it offers."""
        await self._run(Phase.CONNECTING, self._ask)

    def choose(self, **changes: Any) -> None:
        """Set `Choices` by name; what is not allowed becomes a problem."""
        try:
            if changes.get("method", "hybrid") not in METHODS:
                raise InvalidRequest(f"method {changes['method']!r} does not exist")
            if not 0.0 <= changes.get("temperature", 0.0) <= 2.0:
                raise InvalidRequest("the temperature must be within 0 and 2")
            if not 1 <= changes.get("max_tokens", 1) <= 100_000:
                raise InvalidRequest("the length must be within 1 and 100000 tokens")
            self._choose(**changes)
            self._rest()
        except CosdError as error:
            self._set(problem=problem_of(error))

    async def download(self, name: str) -> None:
        """Fetch a draft that the server offers, and use it. Goes on where a try before ended."""

        async def job() -> None:
            last = -1.0

            def progress(now: Progress) -> None:
                nonlocal last
                if now.done == now.total or self._clock() - last >= _PROGRESS_SECONDS:
                    last = self._clock()
                    self._set(progress=now)

            async with self._server.downloads(self.state.choices.server) as downloads:
                offered = {draft.name: draft for draft in await downloads.offered()}
                self._set(link=Link.ONLINE)
                if name not in offered:
                    raise InvalidRequest(f"the server no longer offers the draft {name!r}")
                await self._drop_client()
                await downloads.fetch(offered[name], progress)
            self._choose(draft=name)
            self._offers(list(offered.values()))

        await self._run(Phase.DOWNLOADING, job)

    async def remove(self, name: str) -> None:
        """Delete a draft from the device."""

        async def job() -> None:
            await self._drop_client()
            await asyncio.to_thread(self._storage.remove, name)
            if self.state.choices.draft == name:
                self._choose(draft="")
            self._set(
                offers=tuple(
                    replace(offer, installed=offer.installed and offer.name != name)
                    for offer in self.state.offers
                )
            )

        await self._run(Phase.CONNECTING, job)

    async def generate(self, prompt: str, *, seed: int | None = None) -> None:
        """Write: a continuation of `prompt`, or the answer to it in the chat.

        Args:
            seed: 64 bits; by default fresh ones.
        """

        async def job() -> None:
            client = await self._connected()
            await self._writer.write(client, self.state.choices, prompt, seed=seed)

        await self._run(Phase.GENERATING, job)

    async def go_on(self) -> None:
        """Write on where a text ended that is no chat: stopped, cut off or long enough."""

        async def job() -> None:
            client = await self._connected()
            await self._writer.go_on(client, self.state)

        await self._run(Phase.GENERATING, job)

    async def new_text(self) -> None:
        """Clear text and chat."""
        await self._run(Phase.CONNECTING, self._writer.clear)

    async def stop(self) -> None:
        """End what is under way; text and downloaded bytes stay. Idempotent."""
        job = self._job
        if job is None or job.done():
            return
        self._set(phase=Phase.STOPPING)
        job.cancel()
        await asyncio.wait({job})

    def background(self) -> None:
        """The app is no longer seen. A text under way goes on as long as the system lets it;
        after a pause the SDK sends what had no answer again, so the session is resumed."""
        self._writer.keep()
        if self._free_soon is None:
            loop = asyncio.get_running_loop()
            self._free_soon = loop.call_later(_BACKGROUND_SECONDS, self._relieve)

    def foreground(self) -> None:
        """The app is seen again."""
        if self._free_soon is not None:
            self._free_soon.cancel()
            self._free_soon = None

    async def watch_memory(self) -> None:
        """Free the model whenever memory is short. Runs until it is cancelled."""
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            if await asyncio.to_thread(self._low):
                await self.free_model()

    async def free_model(self) -> None:
        """Give the draft's memory back: now, or once the text under way is over. The next
        text loads it again."""
        if self.state.busy:
            self._free_after = True
        else:
            await self._drop_client()

    async def aclose(self) -> None:
        """End what is under way and close connections. Idempotent."""
        self.foreground()
        await self.stop()
        await self._drop_client()

    @property
    def model_in_memory(self) -> bool:
        """A draft is loaded."""
        return self._server.connected_now

    async def _run(self, phase: Phase, work: Job) -> None:
        if self.state.busy:
            self._set(
                problem=Problem("The app is still busy", "Wait for it to end, or press Stop.")
            )
            return
        self._set(phase=phase, problem=None)
        self._job = job = asyncio.create_task(work())
        try:
            await asyncio.wait({job})
        except asyncio.CancelledError:
            job.cancel()
            await asyncio.wait({job})
            raise
        finally:
            if self._free_after:
                self._free_after = False
                await self._drop_client()
            self._set(progress=None)
            self._rest(force=True)
        error = None if job.cancelled() else job.exception()
        if isinstance(error, Exception):
            self._failed(error)
        elif error is not None:
            raise error

    def _failed(self, error: Exception) -> None:
        if not isinstance(error, CosdError):
            log.error("an action failed", exc_info=error)
        if isinstance(error, ConnectionFailed | TimedOut):
            self._set(link=Link.OFFLINE)
        elif isinstance(error, Unauthorized | NotFound | RateLimited | ServerFault):
            self._set(link=Link.ONLINE)
        self._set(problem=problem_of(error))

    async def _ask(self) -> None:
        async with self._server.downloads(self.state.choices.server) as downloads:
            offered = await downloads.offered()
        self._set(link=Link.ONLINE)
        self._offers(offered)

    def _offers(self, drafts: Sequence[RemoteDraft]) -> None:
        here = {draft.name: self._storage.installed(draft.name) for draft in drafts}
        self._set(
            offers=tuple(
                Offer(
                    name=draft.name,
                    model=draft.model,
                    bytes=draft.bytes,
                    sha256=draft.sha256,
                    installed=here[draft.name] == draft.sha256,
                )
                for draft in drafts
            )
        )

    async def _connected(self) -> EdgeClient:
        if not self._server.fits(self.state.choices):
            await self._drop_client()
        client = await self._server.connected(self.state.choices)
        self._set(link=Link.ONLINE, model=client.card.model, methods=client.card.methods)
        return client

    def _link_changed(self, up: bool) -> None:
        self._set(link=Link.ONLINE if up else Link.OFFLINE)

    async def _drop_client(self) -> None:
        await self._writer.end_chat()
        await self._server.drop()

    def _relieve(self) -> None:
        self._free_soon = None
        task = asyncio.get_running_loop().create_task(self.free_model())
        self._freeing.add(task)
        task.add_done_callback(self._freeing.discard)

    def _choose(self, **changes: Any) -> None:
        choices = replace(self.state.choices, **changes)
        if choices != self.state.choices:
            self._storage.save_choices(choices)
            self._set(choices=choices)

    def _rest(self, *, force: bool = False) -> None:
        if self.state.busy and not force:
            return
        choices: Choices = self.state.choices
        usable = not METHODS[choices.method].drafts or (
            self._storage.installed(choices.draft) is not None
        )
        self._set(phase=Phase.READY if choices.server and usable else Phase.SETUP)

    def _set(self, **changes: Any) -> None:
        state = replace(self.state, **changes)
        if state == self.state:
            return
        self.state = state
        if self._on_change is not None:
            self._on_change(state)
