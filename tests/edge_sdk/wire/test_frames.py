"""Frames of a WebSocket."""

from __future__ import annotations

import pytest
from websockets.frames import Frame, Opcode

from edge_sdk.errors import ProtocolError, ServerFault
from edge_sdk.wire.frames import (
    SLOTS,
    Down,
    Failure,
    Up,
    failure,
    frame,
    read_failure,
    read_reply,
    reply,
    split,
    wire_bytes,
)


def test_every_kind_and_slot() -> None:
    heads = set()
    for kinds in (Up, Down):
        for kind in kinds:
            for slot in range(SLOTS):
                data = frame(kind, slot, b"x")
                assert split(data) == (kind, slot)
                assert data[1:] == b"x"
                heads.add(data[0])
    assert len(heads) == 6 * SLOTS


@pytest.mark.parametrize("seconds", [0.0, 1e-6, 3.3e-4, 0.0123, 1.7, 90.0, 4000.0])
def test_seconds_survive_to_a_thousandth(seconds: float) -> None:
    body, found = read_reply(reply(3, b"body", seconds))
    assert body == b"body"
    assert found == pytest.approx(seconds, rel=1e-3, abs=1e-7)


def test_seconds_that_cannot_be_written() -> None:
    assert read_reply(reply(0, b"", 1e9))[1] == 65504.0
    assert read_reply(reply(0, b"", -1.0))[1] == 0.0


def test_errors() -> None:
    error = ServerFault("say", field="f", retry_after=0.5)
    assert read_failure(failure(7, error)) == Failure("server_fault", "say", "f", 0.5)
    assert split(failure(7, error)) == (Down.ERROR, 7)
    with pytest.raises(ProtocolError, match="empty"):
        split(b"")


@pytest.mark.parametrize("size", [0, 125, 126, 65535, 65536, 1 << 20])
@pytest.mark.parametrize("masked", [True, False])
def test_the_size_on_the_wire(size: int, masked: bool) -> None:
    data = Frame(Opcode.BINARY, bytes(size)).serialize(mask=masked, extensions=[])
    assert wire_bytes(size, masked=masked) == len(data)
