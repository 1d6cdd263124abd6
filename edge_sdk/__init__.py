"""Collaborative speculative decoding, the device's side."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edge_sdk.chat import Message
    from edge_sdk.client import EdgeClient
    from edge_sdk.decoding.autoregressive import Autoregressive
    from edge_sdk.decoding.greedy import Greedy
    from edge_sdk.decoding.hybrid import Hybrid
    from edge_sdk.decoding.method import Method
    from edge_sdk.draft.model import DraftModel
    from edge_sdk.draft.onnx import OnnxDraft
    from edge_sdk.errors import CosdError, InvalidRequest, ModelError, TransportError
    from edge_sdk.sampling import Sampling
    from edge_sdk.stats import Stats
    from edge_sdk.stream import Stream
    from edge_sdk.tokens import Origin, Token
    from edge_sdk.transcript import Piece
    from edge_sdk.waiting import Retry, Timeouts

__all__ = [
    "Autoregressive",
    "CosdError",
    "DraftModel",
    "EdgeClient",
    "Greedy",
    "Hybrid",
    "InvalidRequest",
    "Message",
    "Method",
    "ModelError",
    "OnnxDraft",
    "Origin",
    "Piece",
    "Retry",
    "Sampling",
    "Stats",
    "Stream",
    "Timeouts",
    "Token",
    "TransportError",
]

# Imported when first asked for: the command line starts without the client and onnxruntime.
_MODULES = {
    "Autoregressive": "decoding.autoregressive",
    "CosdError": "errors",
    "DraftModel": "draft.model",
    "EdgeClient": "client",
    "Greedy": "decoding.greedy",
    "Hybrid": "decoding.hybrid",
    "InvalidRequest": "errors",
    "Message": "chat",
    "Method": "decoding.method",
    "ModelError": "errors",
    "OnnxDraft": "draft.onnx",
    "Origin": "tokens",
    "Piece": "transcript",
    "Retry": "waiting",
    "Sampling": "sampling",
    "Stats": "stats",
    "Stream": "stream",
    "Timeouts": "waiting",
    "Token": "tokens",
    "TransportError": "errors",
}

# A checker that saw `__getattr__` would accept every name.
if not TYPE_CHECKING:

    def __getattr__(name):
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
