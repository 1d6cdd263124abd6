"""What log lines say, and what they must never say."""

from __future__ import annotations

import io
import json
import logging
import secrets
from collections.abc import Iterator

import httpx
import pytest
from harness.raw import ALIGNMENT, block, opening, pair
from harness.serving import toy_target
from pydantic import SecretStr

from edge_sdk.wire import Generate, Prompt, encode
from server_app.app import create_app
from server_app.methods.registry import SERVER_HALVES
from server_app.observability import logs
from server_app.observability.facts import RequestFacts, noting
from server_app.observability.logs import JsonFormatter, TextFormatter
from server_app.settings import Settings

WORDS = ("zebra", "quartz", "harmonica")
GOOD, WRONG, WATCH = "key-nightingale", "key-albatross", "key-cormorant"


@pytest.fixture(params=[TextFormatter, JsonFormatter])
def written(request: pytest.FixtureRequest) -> Iterator[io.StringIO]:
    """Everything that anybody logs, at the level of `--log-level debug`."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(request.param())
    # The client of the test is in the same process.
    handler.addFilter(lambda record: not record.name.startswith("http"))
    root = logging.getLogger()
    levels = {name: logging.getLogger(name).level for name in ("", *logs.OWN)}
    root.addHandler(handler)
    for name in levels:
        logging.getLogger(name).setLevel(logging.DEBUG)
    yield stream
    root.removeHandler(handler)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


async def test_a_busy_run_logs_no_prompt_and_no_key(written: io.StringIO) -> None:
    target = toy_target()
    settings = Settings(target="toy:1", api_keys=(SecretStr(GOOD),), metrics_key=SecretStr(WATCH))
    app = create_app(target, settings)
    prompt = " ".join(WORDS)
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://cosd") as client,
    ):

        async def send(verb: str, path: str, message: object = b"", key: str = GOOD) -> int:
            body = message if isinstance(message, bytes) else encode(message)
            headers = {"authorization": f"Bearer {key}"}
            return (await client.request(verb, path, content=body, headers=headers)).status_code

        assert await send("PUT", "/v1/pairs", pair()) == 200
        ids = []
        for method in SERVER_HALVES:
            path = f"/v1/sessions/{secrets.token_hex(16)}"
            ids.append(path[-32:])
            message = opening(method=method, prompt=Prompt(text=prompt), max_tokens=4)
            if method in ("hybrid", "greedy"):
                message = opening(method=method, prompt=Prompt(text=prompt))
            assert await send("PUT", path, message) == 200
            if method == "autoregressive":
                assert await send("POST", f"{path}/generate", Generate(0)) == 200
            await send("POST", f"{path}/verify", block(*range(2), q=0.5))
            await send("POST", f"{path}/verify", prompt.encode())
            await send("PUT", path, prompt.encode())
            await send("GET", f"/v1/{prompt}/{GOOD}")
            await send("PUT", path, message, key=WRONG)
        for asked in (
            {"model": target.name, "prompt": prompt, "max_tokens": 3},
            {"model": target.name, "prompt": prompt, "max_tokens": 3, "stream": True},
            {"model": prompt, "prompt": prompt},
            {"model": target.name, "prompt": prompt, "temperature": prompt},
        ):
            status = await send("POST", "/v1/completions", json.dumps(asked).encode())
            assert (status == 200) is ("max_tokens" in asked)
        await send("GET", "/metrics", key=WATCH)
        await send("GET", "/metrics", key=WRONG)
        # The model raises, and its exception quotes the text.
        poisoned = f"/v1/sessions/{secrets.token_hex(16)}"
        greedy = opening(method="greedy", prompt=Prompt(text=prompt))
        assert await send("PUT", poisoned, greedy) == 200
        await app.state.host.engine.call(lambda: None)

        def forward(*_: object) -> None:
            raise ValueError(f"cannot compute {prompt!r} for {GOOD}")

        target.forward = forward  # type: ignore[method-assign, assignment]
        assert await send("POST", f"{poisoned}/verify", block(q=None)) == 500
        # So does something else.
        app.state.host.round_limit = forward
        assert await send("POST", f"{poisoned}/verify", block(q=None)) == 500
    told = written.getvalue()
    assert "ValueError" in told
    assert "forward" in told
    assert "/v1/sessions/{session_id}/verify" in told
    assert "/v1/completions" in told
    assert "malformed_message" in told
    for secret in (*WORDS, GOOD, WRONG, WATCH, *ids, ALIGNMENT.pair_id):
        assert secret not in told
    assert ids[0][:8] in told


def record(message: str = "hello", error: BaseException | None = None, **extra: object) -> str:
    return one(JsonFormatter(), message, error, **extra)


def one(
    formatter: logging.Formatter,
    message: str = "hello",
    error: BaseException | None = None,
    name: str = "server_app.x",
    **extra: object,
) -> str:
    info = None if error is None else (type(error), error, error.__traceback__)
    made = logging.LogRecord(name, logging.WARNING, __file__, 1, message, (), info)
    made.__dict__.update(extra)
    return formatter.format(made)


def test_json_is_one_object_a_line() -> None:
    line = record("two\nlines", facts={"route": "/x", "seconds": 0.25, "owner": "", "tokens": 0})
    assert "\n" not in line
    fields = json.loads(line)
    assert fields.pop("time").endswith("Z")
    assert fields == {
        "level": "warning",
        "logger": "server_app.x",
        "message": "two\nlines",
        "route": "/x",
        "seconds": 0.25,
        "tokens": 0,
    }


def test_text_is_one_line_with_facts() -> None:
    line = one(TextFormatter(), facts={"route": "/x", "seconds": 0.25, "code": ""})
    assert line.endswith(" WARNING hello route=/x seconds=0.25")


def test_lines_of_a_request_carry_its_id() -> None:
    with noting(RequestFacts(request_id="it")):
        assert json.loads(record())["request_id"] == "it"
        assert json.loads(record(facts={"request_id": "other"}))["request_id"] == "other"
    assert "request_id" not in json.loads(record())


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        (RuntimeError("CUDA out of memory"), True),
        (OSError(28, "No space left on device"), True),
        (ValueError("about zebra"), False),
        (KeyError("zebra"), False),
        (UnicodeDecodeError("utf-8", b"zebra", 0, 1, "bad"), False),
    ],
)
def test_messages_of_exceptions(error: Exception, kept: bool) -> None:
    try:
        raise error
    except Exception as caught:  # noqa: BLE001
        fields = json.loads(record(error=caught))["error"]
        text = one(TextFormatter(), error=caught)
    assert fields["type"] == type(error).__name__
    assert "test_messages_of_exceptions" in fields["frames"][-1]
    assert (fields["message"] == str(error)) is kept
    assert f"{type(error).__name__}: " in text
    if not kept:
        assert "zebra" not in text + json.dumps(fields)


def test_other_packages_say_one_line() -> None:
    message = "Task exception was never retrieved\nfuture: <Task exception=ValueError('zebra')>"
    assert "zebra" not in one(TextFormatter(), message, name="asyncio")
    assert "second" in one(TextFormatter(), "first\nsecond")


def test_a_failure_is_told_once() -> None:
    logger = logging.getLogger("uvicorn.error")
    made = logging.LogRecord(
        logger.name, logging.ERROR, "", 1, "Exception in ASGI application\n", (), None
    )
    assert not logs._not_told_twice(made)
    made.msg = "Invalid HTTP request received."
    assert logs._not_told_twice(made)
