"""What a controller is told of a text."""

from __future__ import annotations

from collections.abc import Sequence

from edge_sdk.decoding.grid import GRID
from edge_sdk.decoding.method import Drafted
from edge_sdk.text.blocks import Outcome
from edge_sdk.text.control import Control
from edge_sdk.text.flight import Answered


def confidences(drafted: Sequence[Drafted]) -> list[float]:
    """q(x) of the tokens of a block; empty where the method knows no q."""
    values = [token.law.numerator(token.rank) / GRID for token in drafted if token.law is not None]
    return values if len(values) == len(drafted) else []


def learn(control: Control, answered: Answered, outcome: Outcome, seconds: float) -> None:
    """Tell a controller what became of a block.

    Args:
        seconds: what the device spent on the verdict.
    """
    exchange, drafted = answered.exchange, answered.block.drafted
    if outcome.stale:
        return
    control.round_trip(
        seconds=answered.seconds,
        server_seconds=exchange.server_seconds,
        up_bytes=exchange.wire_up_bytes,
        down_bytes=exchange.wire_down_bytes,
        tokens=len(drafted),
        alone=answered.alone,
    )
    control.verdict(
        examined=outcome.examined,
        accepted=outcome.accepted,
        confidences=confidences(drafted[: outcome.examined]),
        settled=len(outcome.tokens) > outcome.accepted or outcome.asking,
        seconds=seconds,
    )
