"""Tokens of a text and where they came from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Origin(StrEnum):
    """Where a token of the text came from."""

    ACCEPTED = "accepted"  # drafted, and accepted by the target
    SETTLED = "settled"  # bonus or replacement after the accepted prefix
    SERVER = "server"  # decoded by the server alone
    UNVERIFIED = "unverified"  # kept without asking the server


@dataclass(frozen=True, slots=True)
class Token:
    """One token of the text: target id, bytes and origin."""

    id: int
    data: bytes
    origin: Origin
