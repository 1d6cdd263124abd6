"""Collaborative speculative decoding, the device's side."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edge_sdk.chat import Message
    from edge_sdk.client import EdgeClient
    from edge_sdk.conversation import Conversation
    from edge_sdk.decoding.autoregressive import Autoregressive
    from edge_sdk.decoding.baselines import Full, GreedyResample, TargetResample
    from edge_sdk.decoding.candidates import Candidates
    from edge_sdk.decoding.consultant import Consultant
    from edge_sdk.decoding.coupled import Coupled
    from edge_sdk.decoding.greedy import Greedy
    from edge_sdk.decoding.hybrid import Hybrid
    from edge_sdk.decoding.mentored import Mentored
    from edge_sdk.decoding.method import Method
    from edge_sdk.decoding.uncertain import Uncertain
    from edge_sdk.decoding.upload import Upload
    from edge_sdk.draft.model import DraftModel
    from edge_sdk.draft.onnx import OnnxDraft
    from edge_sdk.errors import (
        BaseMismatch,
        ConnectionFailed,
        CosdError,
        DownloadFailed,
        EmptyPrompt,
        InvalidRequest,
        MalformedMessage,
        ManifestMismatch,
        MessageTooLarge,
        ModelError,
        ModelFolderInvalid,
        NoChatTemplate,
        NotFound,
        OutOfSpace,
        PreparationError,
        PromptTooLong,
        ProtocolError,
        RateLimited,
        SequenceConflict,
        SequenceGap,
        ServerAway,
        ServerFault,
        ServerUnavailable,
        SessionError,
        SessionLost,
        TimedOut,
        TokenizerUnsupported,
        TransportError,
        Unauthorized,
        UnknownMethod,
        UnknownVocabulary,
        UnsupportedModel,
        VocabularyMismatch,
    )
    from edge_sdk.result import Result
    from edge_sdk.sampling import Sampling
    from edge_sdk.stats import Stats
    from edge_sdk.stream import Stream
    from edge_sdk.sync_client import ConversationSync, EdgeClientSync, StreamSync
    from edge_sdk.text.round import Round
    from edge_sdk.text.tokens import Origin, Token
    from edge_sdk.text.transcript import Piece
    from edge_sdk.text_request import TextOptions
    from edge_sdk.waiting import Retry, Timeouts

__all__ = [
    "Autoregressive",
    "BaseMismatch",
    "Candidates",
    "ConnectionFailed",
    "Consultant",
    "Conversation",
    "ConversationSync",
    "CosdError",
    "Coupled",
    "DownloadFailed",
    "DraftModel",
    "EdgeClient",
    "EdgeClientSync",
    "EmptyPrompt",
    "Full",
    "Greedy",
    "GreedyResample",
    "Hybrid",
    "InvalidRequest",
    "MalformedMessage",
    "ManifestMismatch",
    "Mentored",
    "Message",
    "MessageTooLarge",
    "Method",
    "ModelError",
    "ModelFolderInvalid",
    "NoChatTemplate",
    "NotFound",
    "OnnxDraft",
    "Origin",
    "OutOfSpace",
    "Piece",
    "PreparationError",
    "PromptTooLong",
    "ProtocolError",
    "RateLimited",
    "Result",
    "Retry",
    "Round",
    "Sampling",
    "SequenceConflict",
    "SequenceGap",
    "ServerAway",
    "ServerFault",
    "ServerUnavailable",
    "SessionError",
    "SessionLost",
    "Stats",
    "Stream",
    "StreamSync",
    "TargetResample",
    "TextOptions",
    "TimedOut",
    "Timeouts",
    "Token",
    "TokenizerUnsupported",
    "TransportError",
    "Unauthorized",
    "Uncertain",
    "UnknownMethod",
    "UnknownVocabulary",
    "UnsupportedModel",
    "Upload",
    "VocabularyMismatch",
]

# Imported when first asked for: the command line starts without the client and onnxruntime.
_MODULES = {
    "Autoregressive": "decoding.autoregressive",
    "BaseMismatch": "errors",
    "Candidates": "decoding.candidates",
    "ConnectionFailed": "errors",
    "Consultant": "decoding.consultant",
    "Conversation": "conversation",
    "ConversationSync": "sync_client",
    "CosdError": "errors",
    "Coupled": "decoding.coupled",
    "DownloadFailed": "errors",
    "DraftModel": "draft.model",
    "EdgeClient": "client",
    "EdgeClientSync": "sync_client",
    "EmptyPrompt": "errors",
    "Full": "decoding.baselines",
    "Greedy": "decoding.greedy",
    "GreedyResample": "decoding.baselines",
    "Hybrid": "decoding.hybrid",
    "InvalidRequest": "errors",
    "MalformedMessage": "errors",
    "ManifestMismatch": "errors",
    "Mentored": "decoding.mentored",
    "Message": "chat",
    "MessageTooLarge": "errors",
    "Method": "decoding.method",
    "ModelError": "errors",
    "ModelFolderInvalid": "errors",
    "NoChatTemplate": "errors",
    "NotFound": "errors",
    "OnnxDraft": "draft.onnx",
    "Origin": "text.tokens",
    "OutOfSpace": "errors",
    "Piece": "text.transcript",
    "PreparationError": "errors",
    "PromptTooLong": "errors",
    "ProtocolError": "errors",
    "RateLimited": "errors",
    "Result": "result",
    "Retry": "waiting",
    "Round": "text.round",
    "Sampling": "sampling",
    "SequenceConflict": "errors",
    "SequenceGap": "errors",
    "ServerAway": "errors",
    "ServerFault": "errors",
    "ServerUnavailable": "errors",
    "SessionError": "errors",
    "SessionLost": "errors",
    "Stats": "stats",
    "Stream": "stream",
    "StreamSync": "sync_client",
    "TargetResample": "decoding.baselines",
    "TextOptions": "text_request",
    "TimedOut": "errors",
    "Timeouts": "waiting",
    "Token": "text.tokens",
    "TokenizerUnsupported": "errors",
    "TransportError": "errors",
    "Unauthorized": "errors",
    "Uncertain": "decoding.uncertain",
    "UnknownMethod": "errors",
    "UnknownVocabulary": "errors",
    "UnsupportedModel": "errors",
    "Upload": "decoding.upload",
    "VocabularyMismatch": "errors",
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
