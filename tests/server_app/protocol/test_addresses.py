"""Routes, the keys that open them, and the sessions behind them."""

from __future__ import annotations

from typing import Any

import pytest
from harness.raw import KEY, OTHER_KEY, ROUTES, Raw, block, error, frames, opening, pair
from harness.serving import VOCABULARY

from edge_sdk.wire import Extend, Generate, Prompt, Truncate
from server_app.methods.registry import SERVER_HALVES


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *ROUTES,
        ("GET", "/v1/models"),
        ("GET", "/v1/vocabularies/x"),
        ("DELETE", f"/v1/sessions/{'0' * 32}"),
    ],
)
@pytest.mark.parametrize("key", [None, "wrong", KEY + "x", ""])
async def test_no_route_without_a_key(raw: Raw, method: str, path: str, key: str | None) -> None:
    reply = await raw.send(method, path, key=key)
    assert error(reply) == (401, "unauthorized")
    assert reply.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("header", [f"Basic {KEY}", KEY, "Bearer", f"bearer{KEY}"])
async def test_a_key_must_be_a_bearer(raw: Raw, header: str) -> None:
    reply = await raw.client.get("/v1/models", headers={"authorization": header})
    assert error(reply) == (401, "unauthorized")


@pytest.mark.parametrize("action", ["verify", "truncate", "extend", "generate"])
async def test_an_unknown_session_is_lost(raw: Raw, action: str) -> None:
    message: Any = {
        "verify": block(),
        "truncate": Truncate(0, 0),
        "extend": Extend(0, Prompt(text="x"), opening().generation),
        "generate": Generate(0),
    }[action]
    reply = await raw.send("POST", f"/v1/sessions/{'1' * 32}/{action}", message)
    assert error(reply) == (410, "session_lost")


async def test_keys_cannot_touch_each_others_sessions(raw: Raw) -> None:
    path = await raw.open(method="autoregressive", pair_id=None)
    for action, message in (
        ("verify", block()),
        ("truncate", Truncate(0, 0)),
        ("generate", Generate(0)),
        ("extend", Extend(0, Prompt(text="x"), opening().generation)),
    ):
        reply = await raw.send("POST", f"{path}/{action}", message, key=OTHER_KEY)
        assert error(reply) == (410, "session_lost")
    # The same id under another key is another session.
    own = opening(method="autoregressive", pair_id=None, max_tokens=2)
    assert (await raw.send("PUT", path, own, key=OTHER_KEY)).status_code == 200
    theirs = frames((await raw.send("POST", f"{path}/generate", Generate(0))).content)
    ours = frames((await raw.send("POST", f"{path}/generate", Generate(0), key=OTHER_KEY)).content)
    assert (len(theirs), len(ours)) == (64, 2)
    assert (await raw.send("DELETE", path, key=OTHER_KEY)).status_code == 204
    assert raw.host.sessions == 1
    assert (await raw.send("PUT", path, own, key=OTHER_KEY)).status_code == 410


@pytest.mark.parametrize("session", ["1" * 31, "1" * 33, "A" * 32, "g" * 32, "%2e" * 8])
async def test_session_ids_have_one_form(raw: Raw, session: str) -> None:
    reply = await raw.send("POST", f"/v1/sessions/{session}/verify", block())
    assert error(reply) == (422, "invalid_request")


async def test_the_card_the_table_and_what_is_not_there(raw: Raw) -> None:
    card = (await raw.send("GET", "/v1/models")).json()
    assert card["models"][0]["vocabulary_fingerprint"] == VOCABULARY.fingerprint
    assert set(card["methods"]) == set(SERVER_HALVES)
    table = await raw.send("GET", f"/v1/vocabularies/{VOCABULARY.fingerprint}")
    assert type(VOCABULARY).from_bytes(table.content).fingerprint == VOCABULARY.fingerprint
    assert error(await raw.send("GET", "/v1/vocabularies/0")) == (404, "not_found")
    assert error(await raw.send("GET", "/v1/nothing")) == (404, "not_found")
    assert (await raw.send("GET", "/v1/pairs")).status_code == 405
    assert (await raw.send("PUT", "/v1/pairs", pair())).status_code == 200
