"""Messages to bytes and back, and bytes that are no message."""

from __future__ import annotations

import dataclasses
import time
import types
import typing
from dataclasses import dataclass
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_sdk import wire
from edge_sdk.chat import ROLES, Message
from edge_sdk.errors import InvalidRequest, MalformedMessage, MessageTooLarge
from edge_sdk.sampling import Sampling
from edge_sdk.wire import Generated, Generation, Open, Prompt, Verdict, Verify, decode, encode
from edge_sdk.wire.limits import MAX_BLOCKS, MAX_SEQUENCE, MAX_TOKENS

LIMIT = 1 << 20
MESSAGES = [
    value
    for name in wire.__all__
    if dataclasses.is_dataclass(value := getattr(wire, name)) and name != "Finish"
]
COUNTS = {"sequence", "base", "parent", "length", "next_sequence"}
INTEGERS = st.integers(-(2**63), 2**64 - 1)
SAMPLINGS = st.builds(
    Sampling,
    repetition_penalty=st.floats(0.01, 100),
    temperature=st.just(0.0) | st.floats(0.001, 100),
    top_k=st.integers(0, 2**31),
    top_p=st.floats(0, 1, exclude_min=True),
    min_p=st.floats(0, 1),
)
PROMPTS = st.one_of(
    st.builds(Prompt, text=st.text()),
    st.builds(Prompt, ids=st.lists(INTEGERS).map(tuple)),
    st.builds(
        Prompt,
        messages=st.lists(st.builds(Message, st.sampled_from(ROLES), st.text())).map(tuple),
    ),
)
OPTIONS = st.dictionaries(
    st.text(), st.text() | st.booleans() | INTEGERS | st.floats(allow_nan=False), max_size=16
)
GENERATIONS = st.builds(
    Generation,
    method=st.text(),
    sampling=SAMPLINGS,
    max_tokens=st.integers(1, MAX_TOKENS),
    seed=st.integers(0, 2**64 - 1),
    options=OPTIONS,
)


def fields(hint: Any, name: str) -> st.SearchStrategy[Any]:
    """Values of a message field by its type."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        inner = next(item for item in arguments if item is not types.NoneType)
        return st.none() | fields(inner, name)
    if origin is tuple:
        return st.lists(fields(arguments[0], name)).map(tuple)
    if hint is int:
        if name == "block":
            return st.integers(1, MAX_BLOCKS)
        if name == "limit":
            return st.integers(1, MAX_TOKENS)
        return st.integers(0, MAX_SEQUENCE) if name in COUNTS else INTEGERS
    plain: dict[Any, st.SearchStrategy[Any]] = {
        bool: st.booleans(),
        str: st.text(),
        bytes: st.binary(),
        float: st.floats(allow_nan=False, allow_infinity=False),
        Prompt: PROMPTS,
        Generation: GENERATIONS,
        Sampling: SAMPLINGS,
    }
    return plain[hint]


def messages(cls: Any) -> st.SearchStrategy[Any]:
    if cls in (Prompt, Generation):
        return PROMPTS if cls is Prompt else GENERATIONS
    hints = typing.get_type_hints(cls)
    return st.builds(
        cls, **{f.name: fields(hints[f.name], f.name) for f in dataclasses.fields(cls)}
    )


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
@given(data=st.data())
def test_every_message_comes_back(cls: Any, data: st.DataObject) -> None:
    message = data.draw(messages(cls))
    body = encode(message)
    assert decode(cls, body, limit=len(body)) == message
    # A newer peer may have added fields.
    plain = msgpack.unpackb(body, strict_map_key=False)
    missing = len(dataclasses.fields(cls)) - len(plain)
    assert missing >= 0
    if not missing:
        longer = msgpack.packb([*plain, "new", [1, {"a": 2}], None])
        assert decode(cls, longer, limit=LIMIT) == message
    with pytest.raises(MessageTooLarge, match=cls.__name__):
        decode(cls, body, limit=len(body) - 1)


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
@given(data=st.data())
def test_missing_and_ill_typed_fields_are_named(cls: Any, data: st.DataObject) -> None:
    message = data.draw(messages(cls))
    names = [field.name for field in dataclasses.fields(cls)]
    plain = msgpack.unpackb(encode(message), strict_map_key=False)
    required = sum(
        f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        for f in dataclasses.fields(cls)
    )
    if required:
        cut = data.draw(st.integers(0, required - 1))
        with pytest.raises(MalformedMessage, match="missing") as caught:
            decode(cls, msgpack.packb(plain[:cut]), limit=LIMIT)
        assert caught.value.field == f"{cls.__name__}.{names[cut]}"
    index = data.draw(st.integers(0, len(plain) - 1)) if plain else 0
    wrong = msgpack.packb([*plain[:index], {"a": {"b": 1}}, *plain[index + 1 :]])
    with pytest.raises(MalformedMessage) as caught:
        decode(cls, wrong, limit=LIMIT)
    assert str(caught.value.field).startswith(f"{cls.__name__}.{names[index]}")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_an_error(data: bytes) -> None:
    for cls in MESSAGES:
        try:
            decode(cls, data, limit=LIMIT)
        except InvalidRequest:
            continue


JSONISH = st.recursive(
    st.none()
    | st.booleans()
    | INTEGERS
    | st.floats()
    | st.text(max_size=3)
    | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=12,
)


@given(JSONISH)
def test_any_value_is_a_message_or_an_error(value: Any) -> None:
    data = msgpack.packb(value)
    for cls in MESSAGES:
        try:
            message = decode(cls, data, limit=LIMIT)
        except InvalidRequest:
            continue
        assert isinstance(message, cls)


@pytest.mark.parametrize(
    ("value", "hint"),
    [(True, "integer"), (1.0, "integer"), ("1", "integer"), (b"1", "integer"), ([1], "integer")],
)
def test_no_value_is_taken_for_an_integer(value: Any, hint: str) -> None:
    with pytest.raises(MalformedMessage, match=hint) as caught:
        decode(Verify, msgpack.packb([value, 0]), limit=LIMIT)
    assert caught.value.field == "Verify.sequence"


def test_elements_are_named_by_their_place() -> None:
    body = msgpack.packb([None, None, [1, 2, "3"]])
    with pytest.raises(MalformedMessage) as caught:
        decode(Prompt, body, limit=LIMIT)
    assert caught.value.field == "Prompt.ids[2]"


def test_defaults_at_the_end_cost_nothing() -> None:
    assert encode(Verify(3, 4)) == b"\x92\x03\x04"
    assert encode(Verdict(3, 2, 9)) == b"\x93\x03\x02\x09"
    assert encode(Generated(7)) == b"\x91\x07"


@pytest.mark.parametrize(
    "body",
    [
        b"\xdd\x00\x10\x00\x00" * 1000,
        b"\xdf\x00\x00\x00\x0f\xa0" * 1000,
        b"\x91" * 100_000,
        b"\x81\xa0" * 100_000,
        b"\xc6\x7f\xff\xff\xff",
        b"\xdb\x7f\xff\xff\xff",
        b"\xc9\x7f\xff\xff\xff\x01",
    ],
)
def test_claims_and_depth_reserve_nothing(body: bytes) -> None:
    import tracemalloc

    tracemalloc.start()
    begin = time.process_time()
    with pytest.raises(MalformedMessage, match="msgpack"):
        decode(Open, body, limit=LIMIT)
    spent = time.process_time() - begin
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * len(body) + 200_000
    assert spent < 0.5


@pytest.mark.parametrize(
    "message",
    [
        Prompt(text="half a pair \ud800"),
        Prompt(ids=(2**70,)),
    ],
)
def test_what_cannot_be_written_is_said(message: Prompt) -> None:
    with pytest.raises(InvalidRequest, match="Prompt cannot be written"):
        encode(message)


def test_unions_and_unknown_types_are_no_message_fields() -> None:
    @dataclass(frozen=True)
    class Union:
        value: int | str

    @dataclass(frozen=True)
    class Strange:
        value: set[int]

    for cls in (Union, Strange):
        with pytest.raises(TypeError, match="message field"):
            decode(cls, b"\x91\x01", limit=9)


def test_the_limits_of_a_number() -> None:
    assert decode(Verify, encode(Verify(MAX_SEQUENCE, 0)), limit=LIMIT).sequence == MAX_SEQUENCE
    for values in ([MAX_SEQUENCE + 1, 0], [-1, 0], [0, -1], [0, 0, b"", None, -1]):
        with pytest.raises(InvalidRequest, match="must be within"):
            decode(Verify, msgpack.packb(values), limit=LIMIT)
    with pytest.raises(InvalidRequest, match="over the limit"):
        Prompt(messages=(Message("user", "x"),) * 1025)


def test_a_prompt_takes_messages_only() -> None:
    with pytest.raises(InvalidRequest, match="give Message"):
        Prompt(messages=(object(),))  # type: ignore[arg-type]
