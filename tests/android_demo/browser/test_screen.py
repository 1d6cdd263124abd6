"""The app from end to end: a person's hands on the screen, a real server behind it."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from edge_sdk import EdgeClient, Sampling

if TYPE_CHECKING:
    from conftest import Screen, ToyServer

pytest.importorskip("flet", reason="the screen's tests run in `make test-android`")
pytest.importorskip("playwright", reason="the screen's tests run in `make test-android`")
pytestmark = pytest.mark.skipif(
    shutil.which("chromium") is None and shutil.which("chromium-browser") is None,
    reason="there is no chromium; on Debian: apt-get install chromium",
)

KEY = "key-of-the-phone"
PROMPT = "a toy of the sea"


async def sdk_text(server: ToyServer, seed: int, tokens: int) -> str:
    """What the SDK writes by itself."""
    client = EdgeClient(server.url, draft=server.draft, api_key=KEY, cache=None)
    async with client:
        result = await client.complete(
            PROMPT,
            method="coupled",
            seed=seed,
            sampling=Sampling(temperature=0.7),
            max_tokens=tokens,
        )
    return result.text


async def write(screen: Screen, seed: int) -> None:
    """Enter prompt and seed, and begin."""
    await screen.go("Settings")
    await screen.type("Seed", str(seed))
    await screen.go("Text")
    await screen.type("Prompt", PROMPT)
    await screen.press("Write")


async def text_longer_than(screen: Screen, size: int, seconds: float = 30.0) -> str:
    end = asyncio.get_running_loop().time() + seconds
    while len(text := await screen.text()) <= size:
        assert asyncio.get_running_loop().time() < end, await screen.spoken()
        await asyncio.sleep(0.05)
    return text


def done(spoken: list[str]) -> bool:
    return "Write" in spoken and any("Long enough" in text for text in spoken)


async def test_from_nothing_to_a_text(
    running: ToyServer, opened: Callable[..., Any], data: Path
) -> None:
    screen = await opened()
    spoken = await screen.spoken()
    assert "Server: no server" in spoken
    assert any(text.startswith("Open Settings first") for text in spoken)

    await screen.go("Settings")
    await screen.type("Server address", running.url)
    await screen.type("Key", "not-the-right-one")
    await screen.press("Connect")
    await screen.until(lambda now: any("does not accept this key" in text for text in now))
    assert "not-the-right-one" not in await screen.page.content()

    await screen.type("Key", KEY)
    await screen.press("Connect")
    spoken = await screen.until(lambda now: "Download" in now)
    assert "Server: online" in spoken
    assert not any("does not accept" in text for text in spoken)
    assert any(text.startswith("A key is stored. It is not shown") for text in spoken)
    await screen.press("Download")
    await screen.until(lambda now: any(text.endswith("in use") for text in now))
    await screen.tap(screen.page.get_by_role("button", name="Method: hybrid"))
    await screen.tap(screen.page.get_by_role("button", name="coupled", exact=True))
    await screen.type("Seed", "7")
    await screen.tap(screen.page.get_by_label("Longest text, in tokens", exact=True))
    await asyncio.sleep(0.3)
    for key in ("Control+A", "Delete"):
        await screen.page.keyboard.press(key)
    await screen.page.keyboard.type("60", delay=15)

    await screen.go("Text")
    await screen.type("Prompt", PROMPT)
    await screen.press("Write")
    growing = {len(await text_longer_than(screen, size)) for size in (0, 10, 30)}
    assert len(growing) > 1
    spoken = await screen.until(done)
    assert await screen.text() == await sdk_text(running, 7, 60)
    assert any("percent drafted here" in text and "settled" in text for text in spoken)
    for figure in ("tokens/s: ", "accepted: ", "bytes up/down: ", "round trip: "):
        (value,) = [text for text in spoken if text.startswith(figure)]
        assert "none" not in value
    assert any(text.startswith("Chart of tokens a second: now ") for text in spoken)
    assert KEY not in await screen.page.content()
    assert screen.elsewhere == []


async def test_stop_in_mid_stream(opened: Callable[..., Any], set_up: Callable[..., Any]) -> None:
    await set_up(method="coupled", max_tokens=3000)
    screen = await opened()
    await write(screen, 3)
    await text_longer_than(screen, 20)
    assert "Stop" in await screen.spoken()
    await screen.press("Stop")
    spoken = await screen.until(lambda now: "Write" in now)
    text = await screen.text()
    assert len(text) > 20
    assert "Stopped." in spoken
    await asyncio.sleep(0.5)
    assert await screen.text() == text
    await screen.press("Go on")
    longer = await text_longer_than(screen, len(text))
    assert longer.startswith(text)


async def test_the_server_is_killed_and_comes_back(
    running: ToyServer, opened: Callable[..., Any], set_up: Callable[..., Any]
) -> None:
    expected = await sdk_text(running, 5, 200)
    await set_up(method="coupled", max_tokens=200)
    screen = await opened()
    await write(screen, 5)
    await text_longer_than(screen, 20)
    running.kill()
    try:
        await screen.until(lambda now: "Server: offline" in now, 60)
        held = await screen.text()
        assert expected.startswith(held)
        assert len(held) < len(expected)
        assert "Stop" in await screen.spoken()
    finally:
        running.start()
    await screen.until(done, 60)
    assert await screen.text() == expected
    assert "Server: online" in await screen.spoken()


async def test_turning_the_phone_in_mid_text(
    running: ToyServer, opened: Callable[..., Any], set_up: Callable[..., Any]
) -> None:
    await set_up(method="coupled", max_tokens=120)
    screen = await opened()
    await write(screen, 9)
    await text_longer_than(screen, 20)
    await screen.page.set_viewport_size({"width": 860, "height": 412})
    await asyncio.sleep(0.3)
    await screen.page.set_viewport_size({"width": 412, "height": 860})
    await screen.until(done, 60)
    assert await screen.text() == await sdk_text(running, 9, 120)


async def test_light_and_dark(
    running: ToyServer, opened: Callable[..., Any], set_up: Callable[..., Any], tmp_path: Path
) -> None:
    """Pictures go to COSD_PICTURES, for people to look at."""
    pictures = Path(os.environ.get("COSD_PICTURES", tmp_path))
    await set_up(method="coupled", max_tokens=120)
    screen = await opened(color_scheme="light")
    await write(screen, 11)
    await screen.until(done)
    light = await screen.brightness(pictures / "text-light.png")
    await screen.page.emulate_media(color_scheme="dark")
    await asyncio.sleep(1.0)
    dark = await screen.brightness(pictures / "text-dark.png")
    assert light > 200
    assert dark < 60
    await screen.go("Settings")
    address = screen.page.get_by_label("Server address", exact=True)
    await screen.tap(address)  # the browser has what is in a field only while it is in use
    await asyncio.sleep(0.5)
    assert await address.input_value() == running.url
    await screen.brightness(pictures / "settings-dark.png")
    await screen.page.set_viewport_size({"width": 860, "height": 412})
    await screen.go("Text")
    await asyncio.sleep(0.5)
    await screen.brightness(pictures / "text-on-its-side.png")
    assert "Write" in await screen.spoken()
    await screen.page.set_viewport_size({"width": 320, "height": 640})
    await screen.go("Text")
    await asyncio.sleep(0.5)
    await screen.brightness(pictures / "text-small.png")
    assert "Write" in await screen.spoken()
