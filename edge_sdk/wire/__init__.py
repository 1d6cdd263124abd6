"""Messages, codec and limits, shared by both sides."""

from edge_sdk.wire.codec import decode, encode
from edge_sdk.wire.limits import PROTOCOL_VERSION
from edge_sdk.wire.messages import (
    Answer,
    Ask,
    Extend,
    Extended,
    Finish,
    Generate,
    Generated,
    Generation,
    Open,
    Opened,
    PairRegistered,
    Prompt,
    RegisterPair,
    Truncate,
    Truncated,
    Verdict,
    Verify,
)

__all__ = [
    "PROTOCOL_VERSION",
    "Answer",
    "Ask",
    "Extend",
    "Extended",
    "Finish",
    "Generate",
    "Generated",
    "Generation",
    "Open",
    "Opened",
    "PairRegistered",
    "Prompt",
    "RegisterPair",
    "Truncate",
    "Truncated",
    "Verdict",
    "Verify",
    "decode",
    "encode",
]
