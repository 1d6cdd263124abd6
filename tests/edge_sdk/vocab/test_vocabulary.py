from __future__ import annotations

import hashlib
import struct
import time
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_sdk.errors import InvalidRequest, ProtocolError, TokenizerUnsupported
from edge_sdk.vocab import Kind, TokenRole, Vocabulary, bytetable

TEXT, TURN = TokenRole.END_OF_TEXT, TokenRole.END_OF_TURN


def small() -> Vocabulary:
    return Vocabulary.from_token_bytes(
        [b"a", b"1", b"1", b"", b"", b"1", b"xy", b"xy", b"xy"],
        byte_fallback=[1],
        added=[2, 6],
        roles={TEXT: [3], TokenRole.UNKNOWN: [3]},
    )


def test_canonical_prefers_normal_then_added_then_byte() -> None:
    assert small().canonical.tolist() == [0, 5, 5, 3, 4, 5, 7, 7, 7]
    added = Vocabulary.from_token_bytes([b"1", b"1"], byte_fallback=[0], added=[1])
    assert added.canonical.tolist() == [1, 1]
    byte = Vocabulary.from_token_bytes([b"1", b"1"], byte_fallback=[0, 1])
    assert byte.canonical.tolist() == [0, 0]


def test_a_vocabulary_without_text() -> None:
    vocabulary = Vocabulary.from_token_bytes([b"", b""], control=[0])
    assert vocabulary.canonical.tolist() == [0, 1]
    assert dict(vocabulary.ids_by_bytes) == {}


def test_tokens_take_few_bytes_besides_their_text() -> None:
    size = 50_000
    tracemalloc.start()
    try:
        vocabulary = Vocabulary.from_token_bytes([b"%x" % token for token in range(size)])
        assert vocabulary.ids_by_bytes[b"ff"] == 0xFF
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    # Text 5 bytes, its start 4, its kind 1, hash and id 12, canonical id 8; objects take 130 more.
    assert held < 35 * size


def test_ids_without_bytes_stand_for_themselves() -> None:
    vocabulary = Vocabulary.from_token_bytes([b"", b"", b"a", b""], control=[0, 1])
    assert vocabulary.canonical.tolist() == [0, 1, 2, 3]


def test_canonical_is_a_projection(sentencepiece: Vocabulary, tekken: Vocabulary) -> None:
    for vocabulary in (sentencepiece, tekken):
        canonical = vocabulary.canonical
        np.testing.assert_array_equal(canonical[canonical], canonical)
        for token, stands in enumerate(canonical.tolist()):
            assert vocabulary.pieces[token] == vocabulary.pieces[stands]


def test_masks() -> None:
    vocabulary = Vocabulary.from_token_bytes(
        [b"a", b"", b"", b"", b"", b""],
        control=[5],
        roles={TEXT: [1], TokenRole.PADDING: [1, 2], TokenRole.UNKNOWN: [3], TokenRole.BEGIN: [5]},
    )
    assert vocabulary.masked_ids.tolist() == [2, 3, 4]
    assert vocabulary.end_ids == {1}


def test_arrays_are_read_only() -> None:
    given_kinds = np.zeros(1, np.uint8)
    vocabulary = Vocabulary((b"a",), given_kinds, {})
    given_kinds[0] = Kind.UNUSED
    assert vocabulary.kinds[0] == Kind.NORMAL
    for array in (vocabulary.kinds, vocabulary.canonical, vocabulary.masked_ids):
        assert not array.flags.writeable


@pytest.mark.parametrize(
    ("pieces", "kinds", "roles", "why"),
    [
        ([], [], {}, "0 ids"),
        ([b"a"], [0, 0], {}, "1 pieces but kinds of shape"),
        ([b"a"], [5], {}, "kind 5 does not exist"),
        ([b"a"], [Kind.CONTROL], {}, "token 0 is a control or unused token and carries bytes"),
        ([b"a"], [Kind.UNUSED], {}, "token 0 is a control or unused token and carries bytes"),
        ([b"a", b""], [0, 0], {}, "token 1 is text and has no bytes"),
        ([b"ab"], [Kind.BYTE], {}, "token 0 is byte fallback and not one byte"),
        ([b"a" * 65536], [0], {}, "exceeds 65535 bytes"),
        ([b"a"], [0], {TEXT: (1,)}, "names id 1, ids end at 0"),
        ([b"a"], [0], {TEXT: (-1,)}, "names id -1"),
        ([b"a"], [0], {TEXT: (0,)}, "not a control token"),
        ([b""], [Kind.CONTROL], {TEXT: (0, 0)}, "names an id twice"),
    ],
)
def test_parts_that_do_not_fit_are_refused(
    pieces: list[bytes], kinds: list[int], roles: dict[TokenRole, tuple[int, ...]], why: str
) -> None:
    with pytest.raises(InvalidRequest, match=why):
        Vocabulary(tuple(pieces), np.array(kinds, np.uint8), roles)


def test_from_token_bytes_refuses_ids_past_the_end() -> None:
    with pytest.raises(InvalidRequest, match="id 7 does not exist, ids end at 0"):
        Vocabulary.from_token_bytes([b"a"], control=[7])


def test_padded_rows_are_unused_and_masked() -> None:
    padded = small().padded(12)
    assert len(padded) == 12
    assert padded.masked_ids.tolist() == [4, 9, 10, 11]
    assert padded.roles == small().roles
    assert padded.fingerprint != small().fingerprint
    assert small().padded(9).fingerprint == small().fingerprint


def test_control_tokens_past_the_logits_are_dropped() -> None:
    vocabulary = Vocabulary.from_token_bytes(
        [b"a", b"", b"", b""], control=[2, 3], roles={TEXT: [1], TokenRole.PADDING: [3]}
    )
    cut = vocabulary.padded(2)
    assert len(cut) == 2
    assert cut.roles == {TEXT: (1,)}


@pytest.mark.parametrize(("pieces", "roles"), [([b"a", b"b"], {}), ([b"a", b""], {TURN: [1]})])
def test_text_or_ends_past_the_logits_are_refused(
    pieces: list[bytes], roles: dict[TokenRole, list[int]]
) -> None:
    vocabulary = Vocabulary.from_token_bytes(pieces, roles=roles)
    with pytest.raises(TokenizerUnsupported, match="logits are 1 wide and token 1 lies past"):
        vocabulary.padded(1)


@pytest.mark.parametrize("width", [0, -1, 10**9])
def test_absurd_widths_are_refused(width: int) -> None:
    with pytest.raises(TokenizerUnsupported, match="outside 1 to"):
        small().padded(width)


def test_layout_is_the_documented_one() -> None:
    vocabulary = Vocabulary.from_token_bytes([b"a", b"bc", b""], roles={TURN: [2]})
    raw = (
        b"COSDVOC1"
        + struct.pack("<I", 3)
        + bytes([0, 0, 3])
        + struct.pack("<3H", 1, 2, 0)
        + b"abc"
        + struct.pack("<BBII", 1, 2, 1, 2)
    )
    assert vocabulary.to_bytes(compressed=False) == raw
    assert zlib.decompress(vocabulary.to_bytes()) == raw
    assert vocabulary.fingerprint == hashlib.sha256(raw).hexdigest()


def test_bytes_do_not_depend_on_how_roles_were_given() -> None:
    one = Vocabulary.from_token_bytes([b"a", b"", b""], roles={TEXT: [1], TURN: [2]})
    other = Vocabulary.from_token_bytes([b"a", b"", b""], roles={TURN: [2], TEXT: [1]})
    assert one.fingerprint == other.fingerprint
    empty = Vocabulary.from_token_bytes(
        [b"a", b"", b""], roles={TURN: [2], TEXT: [1], TokenRole.BEGIN: []}
    )
    assert empty.fingerprint == one.fingerprint


def assert_same(one: Vocabulary, other: Vocabulary) -> None:
    assert one.pieces == other.pieces
    np.testing.assert_array_equal(one.kinds, other.kinds)
    assert one.roles == other.roles
    assert one.fingerprint == other.fingerprint


def test_mistral_vocabularies_cross_the_wire(sentencepiece: Vocabulary, tekken: Vocabulary) -> None:
    for vocabulary in (sentencepiece, tekken, small()):
        assert_same(Vocabulary.from_bytes(vocabulary.to_bytes()), vocabulary)


def test_a_vocabulary_of_gemmas_size_is_quick() -> None:
    pieces = [b"%x" % token for token in range(262_144)]
    vocabulary = Vocabulary.from_token_bytes(pieces)
    start = time.process_time()
    assert vocabulary.canonical[-1] == 262_143
    assert time.process_time() - start < 0.5


def packed(**changes: bytes) -> bytes:
    """A good table of two tokens with some parts exchanged."""
    parts = {
        "magic": b"COSDVOC1",
        "count": struct.pack("<I", 2),
        "kinds": bytes([0, 3]),
        "lengths": struct.pack("<2H", 1, 0),
        "pieces": b"a",
        "roles": struct.pack("<BBII", 1, 1, 1, 1),
    }
    return b"".join((parts | changes).values())


def test_the_good_table_is_good() -> None:
    assert Vocabulary.from_bytes(zlib.compress(packed())).roles == {TEXT: (1,)}


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "ends inside its magic"),
        (packed(magic=b"COSDVOC2"), "another protocol version"),
        (packed(count=struct.pack("<I", 0)), "names 0 ids"),
        (packed(count=struct.pack("<I", 1_000_001)), "names 1000001 ids"),
        (packed(count=struct.pack("<I", 2**32 - 1)), "names 4294967295 ids"),
        (packed(count=struct.pack("<I", 900_000)), "ends inside its kinds"),
        (packed(lengths=struct.pack("<2H", 1, 60_000)), "ends inside its pieces"),
        (
            packed(lengths=struct.pack("<2H", 0, 1), kinds=bytes([0, 0])),
            "token 0 is text and has no",
        ),
        (packed(kinds=bytes([0, 9])), "kind 9 does not exist"),
        (packed(kinds=bytes([0, 4])), "not a control token"),
        (packed(roles=b""), "ends inside its number of roles"),
        (packed(roles=struct.pack("<BBII", 1, 1, 1, 2)), "names id 2, ids end at 1"),
        (packed(roles=struct.pack("<BBII", 1, 77, 1, 1)), "names role 77"),
        (packed(roles=struct.pack("<BBI", 1, 1, 0)), "gives role 1 0 ids"),
        (packed(roles=struct.pack("<BBI", 1, 1, 2**31)), "gives role 1 2147483648 ids"),
        (packed(roles=struct.pack("<BBIIBII", 2, 2, 1, 1, 1, 1, 1)), "out of order"),
        (packed(roles=struct.pack("<BBIIBII", 2, 1, 1, 1, 1, 1, 1)), "out of order"),
        (packed() + b"\x00", "has 1 bytes after its end"),
    ],
)
def test_hostile_tables_are_refused(raw: bytes, why: str) -> None:
    with pytest.raises(ProtocolError, match=why):
        Vocabulary.from_bytes(zlib.compress(raw))


def test_hostile_compression_is_refused() -> None:
    good = zlib.compress(packed())
    with pytest.raises(ProtocolError, match="is not zlib data"):
        Vocabulary.from_bytes(b"nothing of the kind")
    for size in range(len(good)):
        with pytest.raises(ProtocolError, match="is cut short"):
            Vocabulary.from_bytes(good[:size])
    with pytest.raises(ProtocolError, match="followed by 3 bytes"):
        Vocabulary.from_bytes(good + b"abc")


def test_a_bomb_is_not_unpacked() -> None:
    bomb = zlib.compress(bytes(bytetable.MAX_RAW_BYTES + 1), 1)
    with pytest.raises(ProtocolError, match="unpacks to more than 67108864 bytes"):
        Vocabulary.from_bytes(bomb)


def test_a_body_over_the_limit_is_not_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bytetable, "MAX_COMPRESSED_BYTES", 10)
    with pytest.raises(ProtocolError, match="the limit is 10"):
        Vocabulary.from_bytes(bytes(11))


@given(st.integers(0, len(packed()) - 1), st.integers(0, 255))
def test_a_flipped_byte_never_escapes_as_another_error(at: int, value: int) -> None:
    raw = bytearray(packed())
    raw[at] = value
    try:
        found = Vocabulary.from_bytes(zlib.compress(bytes(raw)))
    except ProtocolError:
        return
    assert found.to_bytes(compressed=False) == bytes(raw)


@given(st.binary(max_size=200))
def test_noise_is_refused(noise: bytes) -> None:
    with pytest.raises(ProtocolError):
        Vocabulary.from_bytes(zlib.compress(noise))
