"""Prompts that every key may share."""

from __future__ import annotations

import json
import os
from pathlib import Path

import httpx
import pytest
from harness.raw import KEY, OTHER_KEY, block, opening
from harness.serving import toy_target
from pydantic import SecretStr

from edge_sdk.chat import Message
from edge_sdk.errors import InvalidRequest
from edge_sdk.wire import Prompt, encode
from server_app.app import create_app
from server_app.settings import Settings
from server_app.shared_prompts import read_shared_prompts


def test_a_text_is_one_prompt(tmp_path: Path) -> None:
    path = tmp_path / "system.txt"
    path.write_text("You are kind.\nYou are brief.\n")
    assert read_shared_prompts(path) == (Prompt(text="You are kind.\nYou are brief.\n"),)
    assert read_shared_prompts(None) == ()


def test_a_list_of_texts_and_chats(tmp_path: Path) -> None:
    path = tmp_path / "prompts.json"
    path.write_text(json.dumps(["one", [{"role": "system", "content": "two"}]]))
    assert read_shared_prompts(path) == (
        Prompt(text="one"),
        Prompt(messages=(Message("system", "two"),)),
    )


@pytest.mark.parametrize(
    ("name", "data", "say"),
    [
        ("a.txt", b"", "item 0"),
        ("a.txt", b"\xff", "cannot be read"),
        ("a.json", b"[", "not JSON"),
        ("a.json", b'{"a": 1}', "must be a JSON list"),
        ("a.json", b"[1]", "item 0 of"),
        ("a.json", b'["x", ""]', "item 1 of"),
        ("a.json", b'["x", []]', "item 1 of"),
        ("a.json", b'[[{"role": "robot", "content": "x"}]]', "chat role"),
        ("a.json", b"[" * 200_000, "not JSON"),
    ],
)
def test_files_that_cannot_be(tmp_path: Path, name: str, data: bytes, say: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(InvalidRequest, match=say):
        read_shared_prompts(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="cannot be read"):
        read_shared_prompts(tmp_path / "none.txt")


def test_what_is_no_plain_file_is_not_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (Path("/dev/zero"), pipe, tmp_path):
        with pytest.raises(InvalidRequest, match="no plain file"):
            read_shared_prompts(path)


def test_a_file_that_is_too_large(tmp_path: Path) -> None:
    path = tmp_path / "large.txt"
    path.write_bytes(b"x" * (8 * 1024 * 1024 + 1))
    with pytest.raises(InvalidRequest, match="over 8 MiB"):
        read_shared_prompts(path)


async def test_keys_share_them_and_nothing_else(tmp_path: Path) -> None:
    shared = "the system prompt that all of us begin with, word for word. " * 3
    path = tmp_path / "system.txt"
    path.write_text(shared)
    settings = Settings(
        target="toy:1", api_keys=(SecretStr(KEY), SecretStr(OTHER_KEY)), shared_prompts=path
    )
    app = create_app(toy_target(), settings)
    transport = httpx.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://x") as client,
    ):

        def value() -> float:
            return app.state.metrics.registry.get_sample_value("cosd_prefix_shared_tokens_total")

        async def taken(number: int, prompt: str, key: str) -> float:
            """Tokens that a new session takes from another's cache."""
            before = value()
            session = f"/v1/sessions/{number:032x}"
            headers = {"authorization": f"Bearer {key}"}
            message = opening(method="greedy", pair_id=None, prompt=Prompt(text=prompt))
            await client.put(session, content=encode(message), headers=headers)
            body = encode(block(q=None))
            reply = await client.post(f"{session}/verify", content=body, headers=headers)
            assert reply.status_code == 200
            return value() - before

        assert await taken(1, shared + "and then I", KEY) > 20
        assert await taken(2, shared + "and then you", OTHER_KEY) > 20
        own = "something that only one key ever asked, at some length. " * 3
        assert await taken(3, own, KEY) == 0
        assert await taken(4, own, OTHER_KEY) == 0
        assert await taken(5, own, KEY) > 20
