"""Collaborative speculative decoding, the device's side."""

from edge_sdk.chat import Message
from edge_sdk.client import EdgeClient
from edge_sdk.decoding.autoregressive import Autoregressive
from edge_sdk.decoding.greedy import Greedy
from edge_sdk.decoding.hybrid import Hybrid
from edge_sdk.decoding.method import Method
from edge_sdk.draft.model import DraftModel
from edge_sdk.rounds import Origin, Token
from edge_sdk.sampling import Sampling
from edge_sdk.stats import Stats
from edge_sdk.stream import Stream
from edge_sdk.transcript import Piece
from edge_sdk.transport import Retry, Timeouts

__all__ = [
    "Autoregressive",
    "DraftModel",
    "EdgeClient",
    "Greedy",
    "Hybrid",
    "Message",
    "Method",
    "Origin",
    "Piece",
    "Retry",
    "Sampling",
    "Stats",
    "Stream",
    "Timeouts",
    "Token",
]
