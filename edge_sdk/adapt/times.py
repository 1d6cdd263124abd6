"""What drafting, the link and the server take, learnt from what was done anyway."""

from __future__ import annotations

from typing import Final

from edge_sdk.adapt.estimates import Line, Mean
from edge_sdk.adapt.model import Costs
from edge_sdk.adapt.traffic import Traffic

_STREAMED_BYTES: Final = 15.0  # of a token of the server alone, framing included
_LEAST: Final = 1e-6  # seconds; nothing takes less


class Times:
    """Running estimates, all in seconds. The link is a line: round trip, and seconds a byte up
    and down, each believed to be 10 Mbit/s until something speaks against it."""

    def __init__(self) -> None:
        self._draft = Mean(0.02, memory=200)
        self._verify = Line((0.04, 0.0004), (1.0, 0.002), floor=2e-4)
        self._link = Line((0.05, 8e-7, 8e-7), (1.0, 1e-4, 1e-4), floor=3e-4)
        self._overhead = Mean(0.001)
        self._step = Mean(0.04, memory=4)  # between two tokens of the server alone
        self._step_verify = 0.0  # what a verify took when that was measured
        self._verified = False

    def exchange(self, *, seconds: float, up_bytes: float, down_bytes: float) -> bool:
        """Note an exchange, server time taken off; True if the link seems to have changed."""
        return self._link.note((1.0, up_bytes, down_bytes), max(0.0, seconds))

    def queued(self, *, seconds: float, up_bytes: float, down_bytes: float) -> bool:
        """Note an exchange that may have waited for another: it counts only if it was fast."""
        if seconds >= self._link.at(1.0, up_bytes, down_bytes):
            return False
        return self.exchange(seconds=seconds, up_bytes=up_bytes, down_bytes=down_bytes)

    def drafted(self, *, seconds: float, tokens: int) -> bool:
        """Note drafting; True the first time."""
        first = not self._draft.known
        self._draft.note(seconds / tokens, tokens)
        return first

    def verified(self, *, seconds: float, tokens: int) -> None:
        """Note a pass of the target over so many drafted tokens and one more row."""
        self._verify.note((1.0, float(tokens)), seconds)
        self._verified = True

    def spent(self, seconds: float) -> None:
        """Note what the device spent on a verdict."""
        self._overhead.note(seconds)

    def streamed(self, *, tokens: int, seconds: float, first_seconds: float) -> None:
        """Note tokens of the server alone, from the request on, and when the first came."""
        if tokens > 1:
            self._step.note((seconds - first_seconds) / (tokens - 1))
            self._step_verify = self._verify.values[0] if self._verified else 0.0

    def costs(self, traffic: Traffic) -> Costs:
        """Costs of a round of a method."""
        round_trip, up_byte, down_byte = self._link.values
        request, token = traffic.up
        verify, verify_row = self._verify.values
        return Costs(
            draft=max(self._draft.value, _LEAST),
            verify=verify,
            verify_row=verify_row,
            round_trip=round_trip * (1 + traffic.expected.asks),
            up=request * up_byte,
            up_token=token * up_byte,
            down=traffic.down * down_byte,
            overhead=self._overhead.value,
            alone=self._alone(verify, down_byte),
        )

    def _alone(self, verify: float, down_byte: float) -> float:
        """Seconds a token of the server alone: as measured, and since then as the passes of the
        target go; unmeasured, a pass over one row or the bytes of a token."""
        if not self._step.known:
            return max(verify, _STREAMED_BYTES * down_byte, _LEAST)
        if not self._step_verify and self._verified:
            self._step_verify = verify
        drift = verify / self._step_verify if self._step_verify > 0 else 1.0
        return max(self._step.value * drift, _LEAST)
