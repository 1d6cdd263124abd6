"""Refusals: OpenAI's client raises the class of the case, with the field and the code."""

from __future__ import annotations

from typing import Any

import httpx
import openai
import pytest
from harness.serving import PROMPT, Serving, serving

COMPLETION: dict[str, Any] = {"model": "toy", "prompt": PROMPT, "max_tokens": 3}
CHAT: dict[str, Any] = {
    "model": "toy",
    "messages": [{"role": "user", "content": "hi"}],
    "max_tokens": 3,
}


def refused(client: openai.OpenAI, path: str, body: Any) -> openai.APIStatusError:
    with pytest.raises(openai.APIStatusError) as caught:
        client.post(path, body=body, cast_to=object)
    return caught.value


UNSUPPORTED: list[tuple[str, str, Any]] = [
    ("/completions", "best_of", 3),
    ("/completions", "best_of", True),
    ("/completions", "echo", True),
    ("/completions", "frequency_penalty", 0.1),
    ("/completions", "logit_bias", {"50256": -100}),
    ("/completions", "logprobs", 0),
    ("/completions", "presence_penalty", -1),
    ("/completions", "suffix", "the end"),
    ("/chat/completions", "audio", {"voice": "x"}),
    ("/chat/completions", "frequency_penalty", 1),
    ("/chat/completions", "function_call", {"name": "f"}),
    ("/chat/completions", "functions", [{"name": "f"}]),
    ("/chat/completions", "logit_bias", {"1": 1}),
    ("/chat/completions", "logprobs", True),
    ("/chat/completions", "modalities", ["text", "audio"]),
    ("/chat/completions", "presence_penalty", 1),
    ("/chat/completions", "reasoning_effort", "high"),
    ("/chat/completions", "response_format", {"type": "json_object"}),
    ("/chat/completions", "store", True),
    ("/chat/completions", "tool_choice", "required"),
    ("/chat/completions", "tools", [{"type": "function", "function": {"name": "f"}}]),
    ("/chat/completions", "top_logprobs", 2),
    ("/chat/completions", "web_search_options", {}),
]
WRONG: list[tuple[str, str, Any]] = [
    ("/completions", "max_tokens", 0),
    ("/completions", "max_tokens", True),
    ("/completions", "max_tokens", 2**70),
    ("/completions", "max_completion_tokens", 4),
    ("/completions", "min_p", 2),
    ("/completions", "model", 3),
    ("/completions", "model", None),
    ("/completions", "n", 9),
    ("/completions", "n", 1.0),
    ("/completions", "prompt", None),
    ("/completions", "prompt", ""),
    ("/completions", "prompt", []),
    ("/completions", "prompt", [[]]),
    ("/completions", "prompt", [1, "x"]),
    ("/completions", "prompt", [True]),
    ("/completions", "prompt", [10**6]),
    ("/completions", "prompt", {"text": "x"}),
    ("/completions", "prompt", ["x"] * 33),
    ("/completions", "repetition_penalty", 0),
    ("/completions", "seed", -1),
    ("/completions", "seed", 2**64),
    ("/completions", "seed", "7"),
    ("/completions", "stop", ["a", "b", "c", "d", "e"]),
    ("/completions", "stop", ""),
    ("/completions", "stop", [3]),
    ("/completions", "stop", 3),
    ("/completions", "stream", 1),
    ("/completions", "stream_options", {"include_usage": True}),
    ("/completions", "temperature", -1),
    ("/completions", "temperature", "hot"),
    ("/completions", "temperature", 1e-9),
    ("/completions", "top_k", -1),
    ("/completions", "top_p", 0),
    ("/completions", "top_p", True),
    ("/completions", "no_such_field", 1),
    ("/chat/completions", "messages", []),
    ("/chat/completions", "messages", "hi"),
    ("/chat/completions", "messages", None),
    ("/chat/completions", "messages", [{"role": "user", "content": "x"}] * 1025),
    ("/chat/completions", "prompt", "x"),
]
TURNS: list[tuple[dict[str, Any], str]] = [
    ({"role": "tool", "content": "x"}, "role"),
    ({"role": "user"}, "content"),
    ({"role": "user", "content": None}, "content"),
    ({"role": "user", "content": [{"type": "image_url", "image_url": {}}]}, "content"),
    ({"role": "user", "content": [{"type": "text", "text": 3}]}, "content"),
    ({"role": "user", "content": ["x"]}, "content"),
    ({"role": "user", "content": "x", "name": "Ann"}, "name"),
    ({"role": "assistant", "content": "x", "tool_calls": [{}]}, "tool_calls"),
    ({"role": "user", "content": "x", "colour": "red"}, "colour"),
]


@pytest.mark.parametrize(("path", "field", "value"), [*UNSUPPORTED, *WRONG])
def test_the_field_is_named(client: openai.OpenAI, path: str, field: str, value: Any) -> None:
    base = COMPLETION if path == "/completions" else CHAT
    error = refused(client, path, {**base, field: value})
    assert isinstance(error, openai.BadRequestError)
    assert error.type == "invalid_request_error"
    assert (error.param or "").partition("[")[0] == field
    assert field in error.message


@pytest.mark.parametrize(
    ("path", "field", "value", "said"),
    [
        ("/completions", "n", 9, "n is 9; it must be within [1, 8]"),
        ("/completions", "n", 1.0, "n is 1.0 (float); it must be an integer within [1, 8]"),
        ("/completions", "stream", 1, "stream is 1 (int); it must be true or false"),
        ("/completions", "stop", [3], "stop[0] is 3 (int); it must be a string"),
        ("/chat/completions", "messages", [], "messages has 0 items; give 1 to 1024"),
        ("/chat/completions", "messages", [3], "messages[0] is 3; it must be an object"),
    ],
)
def test_the_value_is_told_and_what_to_give(
    client: openai.OpenAI, path: str, field: str, value: Any, said: str
) -> None:
    base = COMPLETION if path == "/completions" else CHAT
    error = refused(client, path, {**base, field: value})
    assert isinstance(error.body, dict)
    assert error.body["message"] == said


@pytest.mark.parametrize(("turn", "field"), TURNS)
def test_the_field_of_a_turn_is_named(
    client: openai.OpenAI, turn: dict[str, Any], field: str
) -> None:
    good = {"role": "user", "content": "hi"}
    error = refused(client, "/chat/completions", {**CHAT, "messages": [good, turn]})
    assert isinstance(error, openai.BadRequestError)
    assert error.param == f"messages[1].{field}"


def test_an_obfuscated_stream(client: openai.OpenAI) -> None:
    options = {"stream": True, "stream_options": {"include_obfuscation": True}}
    error = refused(client, "/completions", {**COMPLETION, **options})
    assert error.param == "stream_options.include_obfuscation"


def test_unknown_model(client: openai.OpenAI) -> None:
    for path, base in (("/completions", COMPLETION), ("/chat/completions", CHAT)):
        error = refused(client, path, {**base, "model": "gpt-4"})
        assert isinstance(error, openai.NotFoundError)
        assert (error.code, error.param) == ("model_not_found", "model")
        assert "gpt-toy" in error.message


def test_too_long(server: Serving, client: openai.OpenAI) -> None:
    error = refused(client, "/completions", {**COMPLETION, "prompt": "x" * 5000})
    assert (error.status_code, error.code, error.param) == (
        400,
        "context_length_exceeded",
        "prompt",
    )
    turns = [{"role": "user", "content": "x" * 5000}]
    error = refused(client, "/chat/completions", {**CHAT, "messages": turns})
    assert (error.code, error.param) == ("context_length_exceeded", "messages")
    assert server.sessions == 0


def test_keys(server: Serving) -> None:
    for key in ("wrong", "key-of-one-and-more"):
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0) as client:
            error = refused(client, "/completions", COMPLETION)
        assert isinstance(error, openai.AuthenticationError)
        assert error.code == "invalid_api_key"
        assert error.response.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"model": "toy", "prompt": "\\ud800"}',
        b'{"model": "toy", "prompt": NaN}',
        b'{"model": "toy", "temperature": 1e999, "prompt": "x"}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"a":' * 100 + b"1" + b"}" * 100,
        b'{"prompt":' + b"1" * 5000 + b"}",
        b'{"model": "toy", "prompt": [' + b'"x",' * 20_000 + b'"x"]}',
        b'{"model": "toy", "prompt": [' + b"[]," * 1_000_000 + b"[]]}",
        b"{" + b",".join(b'"%d":1' % i for i in range(200_000)) + b"}",
    ],
)
def test_bodies_that_are_none(server: Serving, body: bytes) -> None:
    headers = {"authorization": "Bearer key-of-one"}
    reply = httpx.post(f"{server.url}/v1/completions", content=body, headers=headers)
    assert reply.status_code == 400
    assert reply.json()["error"]["type"] == "invalid_request_error"


def nested(depth: int) -> Any:
    return [nested(depth - 1)] if depth else "x"


@pytest.mark.parametrize(
    ("value", "status"),
    [(nested(14), 200), (nested(15), 400), (["x"] * 16_000, 200), (["x"] * 17_000, 400)],
)
def test_bounds_where_anything_is_taken(server: Serving, value: Any, status: int) -> None:
    headers = {"authorization": "Bearer key-of-one"}
    body = {**COMPLETION, "metadata": value}
    reply = httpx.post(f"{server.url}/v1/completions", json=body, headers=headers)
    assert reply.status_code == status


def test_brackets_in_a_text_are_no_values(client: openai.OpenAI) -> None:
    code = '{"a": [1]}' * 7000
    error = refused(client, "/completions", {**COMPLETION, "prompt": code})
    assert error.code == "context_length_exceeded"


def test_a_body_over_the_limit(server: Serving, client: openai.OpenAI) -> None:
    error = refused(client, "/completions", {**COMPLETION, "prompt": "x" * (4 * 1024 * 1024)})
    assert (error.status_code, error.code) == (413, "message_too_large")


def test_limits_of_a_key() -> None:
    with (
        serving(keys=("one",), max_sessions_per_key=2) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="one", max_retries=0) as client,
    ):
        error = refused(client, "/completions", {**COMPLETION, "n": 4})
        assert isinstance(error, openai.RateLimitError)
        assert error.code == "rate_limit_exceeded"
        assert int(error.response.headers["retry-after"]) >= 1
        assert server.sessions == 0
        assert client.completions.create(**COMPLETION, n=2).choices


def test_a_full_or_draining_server() -> None:
    with (
        serving(max_sessions=2) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as client,
    ):
        for n in (3, 1):
            error = refused(client, "/completions", {**COMPLETION, "n": n, "max_tokens": 500})
            assert isinstance(error, openai.InternalServerError)
            assert (error.status_code, error.type) == (503, "server_error")
            assert int(error.response.headers["retry-after"]) >= 1
            assert server.sessions == 0
            server.app.state.host.draining = True


def test_a_fault_of_the_server(
    server: Serving, client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(text: str) -> list[int]:
        raise RuntimeError("a secret")

    monkeypatch.setattr(server.target, "encode", broken)
    error = refused(client, "/completions", COMPLETION)
    assert error.status_code == 500
    assert error.type == "server_error"
    assert "secret" not in error.message
    monkeypatch.undo()
    assert client.completions.create(**COMPLETION).choices
    assert server.sessions == 0


def test_errors_are_counted_by_their_own_codes() -> None:
    with (
        serving(metrics_open=True) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as client,
    ):
        refused(client, "/completions", {**COMPLETION, "model": "gpt-4"})
        metrics = httpx.get(f"{server.url}/metrics").text
    assert 'cosd_errors_total{code="not_found"} 1.0' in metrics
