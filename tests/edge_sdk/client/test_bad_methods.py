"""Methods that cannot be had, and replies of a method that cannot be true."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from harness.serving import PROMPT, Serving, connected, related_draft

from edge_sdk import Sampling
from edge_sdk.decoding.candidates import CandidateBlock, Candidates
from edge_sdk.decoding.head_tail import HeadTail
from edge_sdk.decoding.hybrid import Hybrid
from edge_sdk.errors import InvalidRequest, ProtocolError, UnknownMethod
from edge_sdk.wire import encode
from edge_sdk.wire.packing import pack_integers, pack_tokens
from server_app.methods.candidates import CandidatesServer
from server_app.methods.head_tail import HeadTailLaw
from server_app.methods.registry import SERVER_HALVES

SIZE = 300
WARM = Sampling(temperature=1.0)


def tokens(ids: list[int], values: list[float]) -> bytes:
    return pack_integers(np.array(ids), 2) + np.array(values, dtype="<f4").tobytes()


BLOCKS = {
    "no message": (b"\xc1", "cannot be read"),
    "id past the vocabulary": (encode(CandidateBlock(tokens([65535], [0.5]))), "65535 is outside"),
    "half a token": (encode(CandidateBlock(tokens([1], [0.5])[:-1])), "no whole number of tokens"),
    "probability 0": (encode(CandidateBlock(tokens([1], [0.0]))), "probability 0"),
    "probability below 0": (encode(CandidateBlock(tokens([1], [-0.1]))), "no probability"),
    "probability above 1": (encode(CandidateBlock(tokens([1], [1.5]))), "no probability"),
    "NaN": (encode(CandidateBlock(tokens([1], [float("nan")]))), "no probability"),
    "no candidates": (encode(CandidateBlock(b"")), "impossible: 0 ids"),
    "order past the ids": (
        encode(CandidateBlock(tokens([1], [0.5]), bytes([0, 1]))),
        "impossible: 1 ids",
    ),
    "order too long": (
        encode(CandidateBlock(tokens([1], [0.5]), bytes(300))),
        "impossible: 1 ids in an order of 300",
    ),
}


@pytest.mark.parametrize(("block", "said"), BLOCKS.values(), ids=BLOCKS.keys())
async def test_impossible_candidates_are_refused_and_the_text_so_far_stays(
    server: Serving, block: bytes, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = CandidatesServer._block
    blocks = 0

    def lying(self: CandidatesServer, size: int) -> bytes:
        nonlocal blocks
        blocks += 1
        return block if blocks == 4 else honest(self, size)

    monkeypatch.setattr(CandidatesServer, "_block", lying)
    async with connected(server, related_draft()) as client:
        stream = client.generate(
            PROMPT, gamma=3, method=Candidates(k=40), sampling=WARM, max_tokens=100, seed=3
        )
        with pytest.raises(ProtocolError, match=said):
            async for _ in stream:
                pass
    assert 3 <= len(stream.tokens) < 100
    written = b"".join(token.data for token in stream.tokens)
    assert written.startswith(stream.text.encode())
    assert stream.stats.tokens == len(stream.tokens)


HEADS = {
    "mass above 1": HeadTail(0.5, tokens([1, 2], [0.5, 0.2])),
    "mass below 1": HeadTail(0.1, tokens([1, 2], [0.5, 0.2])),
    "twice the same id": HeadTail(0.3, tokens([1, 1], [0.5, 0.2])),
    "tail token of the head": HeadTail(0.3, tokens([1, 2], [0.5, 0.2]), tokens([2], [0.1])),
    "tail token of probability 0": HeadTail(0.3, tokens([1, 2], [0.5, 0.2]), tokens([3], [0.0])),
    "negative tail": HeadTail(-0.3, tokens([1, 2], [0.8, 0.5])),
    "NaN tail": HeadTail(float("nan"), tokens([1, 2], [0.5, 0.2])),
}


@pytest.mark.parametrize("message", HEADS.values(), ids=HEADS.keys())
async def test_an_impossible_head_and_tail_is_refused(
    server: Serving, message: HeadTail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HeadTailLaw, "first", lambda self: encode(message))
    async with connected(server, related_draft()) as client:
        stream = client.generate(
            PROMPT, method=Hybrid(), sampling=WARM, max_tokens=100, seed=3, gamma=3
        )
        with pytest.raises(ProtocolError, match=r"head and tail|tail has tokens"):
            async for _ in stream:
                pass


@pytest.mark.parametrize("tail", [b"", tokens([1], [0.0]), tokens([65535], [0.1]), b"x"])
async def test_more_tail_that_is_none_is_refused(
    server: Serving, tail: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A head without mass sends the device for more, which then cannot be used."""
    bare = HeadTail(1.0, pack_tokens(np.array([], dtype=np.int64), np.array([]), "f32", size=SIZE))
    monkeypatch.setattr(HeadTailLaw, "first", lambda self: encode(bare))
    monkeypatch.setattr(HeadTailLaw, "more", lambda self: tail)
    async with connected(server, related_draft()) as client:
        stream = client.generate(
            PROMPT, method=Hybrid(), sampling=WARM, max_tokens=100, seed=3, gamma=3
        )
        with pytest.raises(ProtocolError, match="tail"):
            async for _ in stream:
                pass


async def test_a_method_that_the_server_does_not_offer_is_told_with_its_list(
    server: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(server, related_draft()) as client:
        await client.connect()
        monkeypatch.delitem(SERVER_HALVES, "coupled")
        stream = client.generate(PROMPT, method="coupled", max_tokens=4)
        with pytest.raises(UnknownMethod, match=r"it offers hybrid, candidates, greedy"):
            async for _ in stream:
                pass
        with pytest.raises(UnknownMethod, match="hybrid, candidates"):
            client.generate(PROMPT, method="coupling")


@pytest.mark.parametrize(
    "bad", [lambda: -1, lambda: 2**64, lambda: 1.5, lambda: "7"], ids=["-1", "2**64", "1.5", "'7'"]
)
async def test_a_seed_that_is_not_64_bits(server: Serving, bad: Callable[[], int]) -> None:
    async with connected(server, related_draft()) as client:
        with pytest.raises(InvalidRequest) as caught:
            client.generate(PROMPT, method="coupled", seed=bad())
    assert caught.value.field == "seed"
