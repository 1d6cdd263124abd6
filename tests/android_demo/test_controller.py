"""The app's behaviour against a real server, without a screen."""

from __future__ import annotations

import asyncio
import itertools
import stat
from pathlib import Path
from typing import Any

import pytest
from harness.serving import Serving, until

from cosd_app.controller import Controller
from cosd_app.state import Link, Phase, State
from edge_sdk import EdgeClient, Sampling
from edge_sdk.text.tokens import Origin

KEY = "key-of-the-phone"


class Seen(list[State]):
    """Every state that was told."""

    def __call__(self, state: State) -> None:
        self.append(state)


async def sdk_text(server: Serving, draft: Path, prompt: str, seed: int, **options: Any) -> str:
    async with EdgeClient(server.url, draft=draft, api_key=KEY, cache=None) as client:
        stream = client.generate(
            prompt, seed=seed, sampling=Sampling(temperature=0.7), max_tokens=60, **options
        )
        async for _ in stream:
            pass
        return stream.text


async def test_first_start_to_first_text(app: Any, server: Serving, draft_folder: Path) -> None:
    seen = Seen()
    async with app.opened(seen) as controller:
        assert controller.state.phase is Phase.SETUP
        assert controller.state.link is Link.UNKNOWN
        await controller.set_server(server.url, KEY)
        state = controller.state
        assert state.problem is None
        assert state.link is Link.ONLINE
        assert state.phase is Phase.SETUP  # no draft yet
        (offer,) = state.offers
        assert (offer.name, offer.model, offer.installed) == ("tiny", "tiny", False)

        await controller.download("tiny")
        assert controller.state.phase is Phase.READY
        assert controller.state.offers[0].installed
        shares = [s.progress.share for s in seen if s.progress is not None]
        assert shares == sorted(shares)
        assert shares[-1] == 1.0

        controller.choose(method="coupled", max_tokens=60)
        await controller.generate("a toy of the sea", seed=7)
        state = controller.state
        assert state.problem is None
        assert state.phase is Phase.READY
        assert (state.finish, state.seed) == ("length", 7)
        expected = await sdk_text(server, draft_folder, "a toy of the sea", 7, method="coupled")
        assert state.text == expected
        origins = {span.origin for span in state.spans}
        assert origins >= {Origin.ACCEPTED, Origin.SETTLED}
        figures = state.figures
        assert figures.tokens == 60
        assert figures.tokens_per_second > 0
        assert figures.acceptance is not None
        assert 0 < figures.acceptance <= 1
        assert figures.round_trip is not None
        assert figures.round_trip > 0.004
        assert figures.up_bytes > 0
        assert figures.down_bytes > 0
        assert figures.rates
        growing = [s.text for s in seen if s.phase is Phase.GENERATING]
        assert len(set(growing)) > 3
        assert all(b.startswith(a) for a, b in itertools.pairwise(growing))


async def test_the_key_is_kept_private_and_never_shown(app: Any, server: Serving) -> None:
    seen = Seen()
    async with app.opened(seen) as controller:
        await controller.set_server(server.url, KEY)
        assert controller.state.has_key
    assert all(KEY not in repr(state) for state in seen)
    assert stat.S_IMODE(app.storage.key_file.stat().st_mode) == 0o600
    written = [p for p in app.storage.folder.rglob("*") if p.is_file()]
    assert [p for p in written if KEY.encode() in p.read_bytes()] == [app.storage.key_file]


async def test_a_restart_remembers(app: Any, server: Serving) -> None:
    async with app.opened() as controller:
        await controller.set_server(server.url, KEY)
        await controller.download("tiny")
        controller.choose(temperature=0.3, theme="dark")
    async with app.opened() as again:
        state = again.state
        assert state.phase is Phase.READY
        assert state.link is Link.ONLINE
        assert state.has_key
        assert (state.choices.temperature, state.choices.theme) == (0.3, "dark")
        assert state.choices.draft == "tiny"


async def test_a_key_goes_only_to_the_server_it_was_given_for(app: Any, server: Serving) -> None:
    async with app.opened() as controller:
        await controller.set_server(server.url, KEY)
        await controller.set_server(server.url)  # the same server: kept
        assert controller.state.has_key
        await controller.set_server("http://127.0.0.1:9")
        assert not controller.state.has_key
        assert await app.keys.load() is None


async def test_a_wrong_key(app: Any, server: Serving) -> None:
    async with app.opened() as controller:
        await controller.set_server(server.url, "wrong")
        problem = controller.state.problem
        assert problem is not None
        assert "does not accept this key" in problem.title
        assert controller.state.link is Link.ONLINE
        assert "wrong" not in repr(problem)
        await controller.set_server(server.url, KEY)
        assert controller.state.problem is None
        assert controller.state.offers


@pytest.mark.parametrize(
    ("address", "title"),
    [
        ("", "Something that was entered cannot be used"),
        ("http://", "Something that was entered cannot be used"),
        ("ftp://x", "Something that was entered cannot be used"),
        ("127.0.0.1:9", "The server cannot be reached"),
    ],
)
async def test_addresses_that_lead_nowhere(app: Any, address: str, title: str) -> None:
    async with app.opened() as controller:
        await controller.set_server(address, KEY)
        assert controller.state.problem is not None
        assert controller.state.problem.title == title
        assert controller.state.phase is Phase.SETUP


async def test_stop_keeps_the_text(ready: Controller, server: Serving) -> None:
    ready.choose(method="coupled", max_tokens=3000)
    writing = asyncio.create_task(ready.generate("a toy", seed=3))
    await until(lambda: len(ready.state.text) > 20)
    await ready.stop()
    await writing
    text = ready.state.text
    assert len(text) > 20
    assert ready.state.finish == "stopped"
    assert ready.state.phase is Phase.READY
    assert ready.state.problem is None
    await until(lambda: server.sessions == 0)
    await asyncio.sleep(0.05)
    assert ready.state.text == text
    await ready.stop()  # nothing to stop


async def test_going_on_after_stop(ready: Controller) -> None:
    ready.choose(max_tokens=20)
    await ready.generate("a toy", seed=3)
    first = ready.state.text
    await ready.go_on()
    assert ready.state.problem is None
    assert ready.state.text.startswith(first)
    assert len(ready.state.text) > len(first)
    assert ready.state.prompt == "a toy"


async def test_a_second_action_is_refused_while_one_is_under_way(ready: Controller) -> None:
    ready.choose(max_tokens=3000)
    writing = asyncio.create_task(ready.generate("a toy"))
    await until(lambda: bool(ready.state.text))
    await ready.generate("another")
    assert ready.state.problem is not None
    assert "busy" in ready.state.problem.title
    assert ready.state.prompt == "a toy"
    await ready.stop()
    await writing


async def test_the_server_goes_and_comes_back(
    ready: Controller, server: Serving, draft_folder: Path
) -> None:
    expected = await sdk_text(server, draft_folder, "a toy of the sea", 5, method="coupled")
    seen = Seen()
    ready.listen(seen)
    ready.choose(method="coupled", max_tokens=60)
    writing = asyncio.create_task(ready.generate("a toy of the sea", seed=5))
    await until(lambda: len(ready.state.text) > 5)
    await asyncio.to_thread(server.stop, hard=True)
    await until(lambda: ready.state.link is Link.OFFLINE)
    assert ready.state.phase is Phase.GENERATING
    await asyncio.to_thread(server.start)
    await writing
    assert ready.state.problem is None
    assert ready.state.link is Link.ONLINE
    assert ready.state.text == expected


async def test_stop_while_the_server_is_away(ready: Controller, server: Serving) -> None:
    ready.choose(max_tokens=3000)
    writing = asyncio.create_task(ready.generate("a toy"))
    await until(lambda: len(ready.state.text) > 5)
    await asyncio.to_thread(server.stop, hard=True)
    await until(lambda: ready.state.link is Link.OFFLINE)
    await asyncio.wait_for(ready.stop(), 5)
    await writing
    assert ready.state.finish == "stopped"


async def test_no_server_at_the_first_try(ready: Controller, server: Serving) -> None:
    await asyncio.to_thread(server.stop)
    await ready.free_model()
    await asyncio.wait_for(ready.generate("a toy"), 20)
    assert ready.state.problem is not None
    assert ready.state.problem.title == "The server cannot be reached"
    assert ready.state.link is Link.OFFLINE
    assert ready.state.phase is Phase.READY


async def test_a_chat(ready: Controller) -> None:
    ready.choose(chat=True, max_tokens=12)
    await ready.generate("hello")
    await ready.generate("and then")
    turns = ready.state.turns
    assert [turn.role for turn in turns] == ["user", "assistant"] * 2
    assert (turns[0].text, turns[2].text) == ("hello", "and then")
    assert ready.state.spans == ()
    await ready.free_model()  # the chat outlives the client
    await ready.generate("third")
    assert ready.state.problem is None
    assert len(ready.state.turns) == 6
    await ready.new_text()
    assert ready.state.turns == ()


async def test_without_a_draft_only_the_server_writes(app: Any, server: Serving) -> None:
    async with app.opened() as controller:
        await controller.set_server(server.url, KEY)
        await controller.generate("a toy")
        assert controller.state.problem is not None
        assert "no draft on this device" in controller.state.problem.detail
        controller.choose(method="autoregressive", max_tokens=10)
        assert controller.state.phase is Phase.READY
        await controller.generate("a toy")
        assert controller.state.problem is None
        assert {span.origin for span in controller.state.spans} == {Origin.SERVER}
        await controller.download("tiny")
        controller.choose(method="coupled")
        await controller.generate("a toy")  # the client is made anew, with the draft
        assert controller.state.problem is None


async def test_what_cannot_be_chosen(ready: Controller) -> None:
    before = ready.state.choices
    wrong: list[dict[str, Any]] = [
        {"method": "magic"},
        {"temperature": -1.0},
        {"temperature": float("nan")},
        {"max_tokens": 0},
    ]
    for changes in wrong:
        ready.choose(**changes)
        assert ready.state.problem is not None
        assert ready.state.choices == before
    await ready.generate("   ")
    assert ready.state.problem is not None
    assert ready.state.problem.title == "There is nothing to go on from"


async def test_memory_is_given_back(app: Any, ready: Controller) -> None:
    ready.choose(max_tokens=3000)
    writing = asyncio.create_task(ready.generate("a toy"))
    await until(lambda: bool(ready.state.text))
    await ready.free_model()
    assert ready.model_in_memory  # the text under way keeps it
    await ready.stop()
    await writing
    assert not ready.model_in_memory
    ready.choose(max_tokens=5)
    await ready.generate("a toy")
    assert ready.state.problem is None
    assert ready.model_in_memory
    await ready.free_model()
    assert not ready.model_in_memory


async def test_low_memory_is_noticed(
    app: Any, ready: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cosd_app.controller._WATCH_SECONDS", 0.01)
    ready.choose(max_tokens=5)
    await ready.generate("a toy")
    watching = asyncio.create_task(ready.watch_memory())
    await asyncio.sleep(0.05)
    assert ready.model_in_memory
    app.low = True
    await until(lambda: not ready.model_in_memory)
    watching.cancel()


async def test_in_the_background_the_model_goes_after_a_while(
    ready: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cosd_app.controller._BACKGROUND_SECONDS", 0.02)
    ready.choose(max_tokens=5)
    await ready.generate("a toy")
    ready.background()
    ready.foreground()
    await asyncio.sleep(0.05)
    assert ready.model_in_memory
    ready.background()
    await until(lambda: not ready.model_in_memory)


async def test_a_text_outlives_the_app(app: Any, ready: Controller) -> None:
    ready.choose(max_tokens=3000)
    writing = asyncio.create_task(ready.generate("a toy", seed=3))
    await until(lambda: len(ready.state.text) > 20)
    ready.background()
    kept = ready.state.text
    async with app.opened() as again:  # as if the first had been killed here
        assert again.state.finish == "cut off"
        assert again.state.prompt == "a toy"
        assert again.state.text == kept
        again.choose(max_tokens=10)
        await again.go_on()
        assert again.state.problem is None
        assert again.state.text.startswith(kept)
    await ready.stop()
    await writing
    async with app.opened() as third:
        assert third.state.text == ""


async def test_removing_a_draft(app: Any, ready: Controller) -> None:
    await ready.remove("tiny")
    assert ready.state.phase is Phase.SETUP
    assert not ready.state.offers[0].installed
    assert not app.storage.draft("tiny").exists()
