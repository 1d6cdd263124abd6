"""Halves with one thing wrong, which the proof by enumeration must see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from harness.cases_to_prove import ABC, ABX, case
from harness.enumeration import distance, enumerate_texts

from edge_sdk.decoding.hybrid import Hybrid, HybridDevice, HybridRejection
from edge_sdk.decoding.method import DeviceContext, DeviceHalf, Drafted
from edge_sdk.wire import decode, encode
from edge_sdk.wire.packing import pack_draft
from server_app.methods.base import Proposal
from server_app.methods.hybrid import HybridServer
from server_app.methods.registry import SERVER_HALVES
from server_app.methods.rows import Rows


class _DrawsFromP(HybridDevice):
    """Replaces a rejected token ~ p instead of ~ max(p - q, 0)."""

    def settle(
        self, rejection: bytes, drafted: Drafted, *, position: int, block: int
    ) -> int | None:
        assert drafted.law is not None
        return super().settle(
            rejection,
            replace(drafted, law=replace(drafted.law, counts=np.zeros_like(drafted.law.counts))),
            position=position,
            block=block,
        )


class _ForgetsOther(HybridDevice):
    """Never takes the region V_O."""

    def settle(
        self, rejection: bytes, drafted: Drafted, *, position: int, block: int
    ) -> int | None:
        message = decode(HybridRejection, rejection, limit=1 << 20)
        changed = replace(message, other_mass=1e-12)
        return super().settle(encode(changed), drafted, position=position, block=block)


class _MisstatesQ(HybridDevice):
    """Says that every drafted token was certain."""

    def pack(self, drafted: Sequence[Drafted]) -> bytes:
        ranks = np.array([token.rank for token in drafted])
        return pack_draft(ranks, np.full(len(ranks), 1 << 24), size=len(self.context.target_ids))


@pytest.mark.parametrize("half", [_DrawsFromP, _ForgetsOther, _MisstatesQ])
def test_broken_device_half_fails_the_proof(half: type[HybridDevice]) -> None:
    class Broken(Hybrid):
        def device_half(self, context: DeviceContext) -> DeviceHalf:
            return half(context, self.law_format)

    broken = case("broken", ABC, ABX, method=Broken(form="law", law_format="f64"))
    texts, reference, _ = enumerate_texts(broken)
    assert distance(texts, reference) > 1e-3


class _AcceptsLikelier(HybridServer):
    """Keeps a token if and only if p >= q."""

    def accepts(self, rows: Rows, index: int, proposal: Proposal, *, position: int) -> bool:
        assert proposal.numerators is not None
        q = proposal.numerators[index] / (1 << 24)
        return rows.probability(index, proposal.tokens[index]) >= q


def test_broken_server_half_fails_the_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        SERVER_HALVES, "hybrid", lambda method, context: _AcceptsLikelier(context.coins, "f64")
    )
    texts, reference, _ = enumerate_texts(case("broken", ABC, ABX))
    assert distance(texts, reference) > 1e-3
