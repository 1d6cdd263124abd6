"""Bodies that no client should send: each gets an answer below 500, soon, in OpenAI's form."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from harness.serving import PROMPT, Serving, serving, toy_target
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from server_app.openai.interface import unsupported
from server_app.openai.interface.chat_request import ChatRequest, Turn
from server_app.openai.interface.completion_request import CompletionRequest

EXAMPLES = settings(
    max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)
BASES: dict[str, dict[str, Any]] = {
    "completions": {"model": "toy", "prompt": PROMPT, "max_tokens": 4},
    "chat/completions": {
        "model": "toy",
        "messages": [
            {"role": "system", "content": "hi"},
            {"role": "user", "content": [{"type": "text", "text": "the sea"}]},
        ],
        "max_tokens": 4,
    },
}
FIELDS = sorted(
    {*CompletionRequest.model_fields, *ChatRequest.model_fields, *Turn.model_fields}
    | {*unsupported.COMPLETION, *unsupported.CHAT, *unsupported.TURN, "type", "text"}
)
LEAVES: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-2, 300),
    st.sampled_from([2**31, 2**53, 2**63, 2**64, 10**400]),
    st.floats(allow_nan=False),
    st.text(max_size=12),
    st.sampled_from(["", "text", "user", "toy", "auto", "\0", "é😀", " the", "x" * 2000]),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=6),
        st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4),
    ),
    max_leaves=12,
)


@st.composite
def damaged(draw: st.DrawFn, path: str) -> bytes:
    """A good body with some values replaced, added or taken away, or some bytes changed."""
    body = json.loads(json.dumps(BASES[path]))
    for _ in range(draw(st.integers(1, 4))):
        place = body
        turns = body.get("messages")
        if isinstance(turns, list) and turns and draw(st.booleans()):
            turn = draw(st.sampled_from(turns))
            place = turn if isinstance(turn, dict) else body
        field = draw(st.sampled_from(FIELDS))
        if draw(st.integers(0, 4)) == 0:
            place.pop(field, None)
        else:
            place[field] = draw(VALUES)
    data = bytearray(json.dumps(body).encode())
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 3]))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data[: draw(st.sampled_from([len(data), len(data), len(data) // 2]))])


@pytest.fixture(scope="module")
def small() -> Iterator[Serving]:
    with serving(lambda: toy_target(context=48)) as running:
        yield running
        assert running.sessions == 0


@pytest.fixture(scope="module")
def http(small: Serving) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{small.url}/v1/", timeout=10) as client:
        yield client


def check(reply: httpx.Response) -> None:
    assert reply.status_code < 500, reply.text
    if reply.status_code != 200:
        error = reply.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["message"]
        assert error["type"] == "invalid_request_error"
        assert len(reply.content) < 4000
    elif reply.headers["content-type"].startswith("text/event-stream"):
        events = reply.text.split("\n\n")
        assert events[-2:] == ["data: [DONE]", ""]
        assert all("error" not in json.loads(event[6:]) for event in events[:-2])
    else:
        assert all(choice["finish_reason"] for choice in reply.json()["choices"])


@EXAMPLES
@given(body=damaged("completions"))
def test_damaged_completions(http: httpx.Client, body: bytes) -> None:
    check(http.post("completions", content=body))


@EXAMPLES
@given(body=damaged("chat/completions"))
def test_damaged_chats(http: httpx.Client, body: bytes) -> None:
    check(http.post("chat/completions", content=body))


@EXAMPLES
@given(value=VALUES, path=st.sampled_from(sorted(BASES)))
def test_any_json(http: httpx.Client, value: Any, path: str) -> None:
    check(http.post(path, content=json.dumps(value).encode()))


@EXAMPLES
@given(body=st.binary(max_size=200), path=st.sampled_from(sorted(BASES)))
def test_any_bytes(http: httpx.Client, body: bytes, path: str) -> None:
    check(http.post(path, content=body))


@EXAMPLES
@given(field=st.sampled_from(FIELDS), value=LEAVES, path=st.sampled_from(sorted(BASES)))
def test_one_field(http: httpx.Client, field: str, value: Any, path: str) -> None:
    check(http.post(path, content=json.dumps({**BASES[path], field: value}).encode()))
