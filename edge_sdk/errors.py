"""The one error tree of the project.

Every error has a `code`, which is what crosses the wire, and an HTTP `status`.
A server raises a class, the wire carries its code, and the SDK raises the same
class again on the other side.

    CosdError
    ├── InvalidRequest            an argument or a message field is wrong
    │   ├── MalformedMessage      bytes that are not a message of this protocol
    │   ├── MessageTooLarge       a body over its limit
    │   ├── UnknownMethod         a decoding method that the server does not offer
    │   ├── EmptyPrompt
    │   ├── PromptTooLong         longer than the target's context
    │   └── NoChatTemplate        chat messages for a model without a chat template
    ├── Unauthorized              missing or wrong API key
    ├── NotFound                  no such route, model or vocabulary
    │   └── UnknownVocabulary     the pair is not registered (the SDK registers it again)
    ├── SessionError
    │   ├── SessionLost           evicted, restarted or re-routed (the SDK re-opens)
    │   ├── SequenceConflict      a sequence number was used before with another body
    │   ├── SequenceGap           an earlier sequence number never came
    │   └── BaseMismatch          base or parent do not fit the session
    ├── RateLimited               over a limit of this key
    ├── ServerUnavailable         overloaded
    │   └── ServerAway            starting or going down (texts wait for it as for a link)
    ├── ServerFault               the server failed on this request
    ├── TransportError            nothing usable came back
    │   ├── ConnectionFailed
    │   ├── TimedOut
    │   └── ProtocolError         the peer's reply breaks the protocol
    ├── VocabularyMismatch        two vocabularies share too little to draft
    ├── ModelError                a model folder or file cannot be used
    │   ├── ModelFolderInvalid    missing or truncated files
    │   ├── ManifestMismatch      the manifest does not describe these files
    │   ├── TokenizerUnsupported  tokens that have no meaning in bytes
    │   └── UnsupportedModel      an architecture that cannot be run or exported
    └── PreparationError          a model could not be made ready
        ├── DownloadFailed
        └── OutOfSpace
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "BaseMismatch",
    "ConnectionFailed",
    "CosdError",
    "DownloadFailed",
    "EmptyPrompt",
    "InvalidRequest",
    "MalformedMessage",
    "ManifestMismatch",
    "MessageTooLarge",
    "ModelError",
    "ModelFolderInvalid",
    "NoChatTemplate",
    "NotFound",
    "OutOfSpace",
    "PreparationError",
    "PromptTooLong",
    "ProtocolError",
    "RateLimited",
    "SequenceConflict",
    "SequenceGap",
    "ServerAway",
    "ServerFault",
    "ServerUnavailable",
    "SessionError",
    "SessionLost",
    "TimedOut",
    "TokenizerUnsupported",
    "TransportError",
    "Unauthorized",
    "UnknownMethod",
    "UnknownVocabulary",
    "UnsupportedModel",
    "VocabularyMismatch",
    "error_for_code",
]


class CosdError(Exception):
    """Base of every error of this project.

    Args:
        message: one sentence that names what is wrong, where, and what to do.
        field: the argument or message field at fault, if there is one.
        retry_after: seconds after which a new try makes sense, if the server said.
    """

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500

    def __init__(
        self, message: str, *, field: str | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.retry_after = retry_after


class InvalidRequest(CosdError, ValueError):
    code = "invalid_request"
    status = 422


class MalformedMessage(InvalidRequest):
    code = "malformed_message"
    status = 422


class MessageTooLarge(InvalidRequest):
    code = "message_too_large"
    status = 413


class UnknownMethod(InvalidRequest):
    code = "unknown_method"


class EmptyPrompt(InvalidRequest):
    code = "empty_prompt"


class PromptTooLong(InvalidRequest):
    code = "prompt_too_long"


class NoChatTemplate(InvalidRequest):
    code = "no_chat_template"


class Unauthorized(CosdError):
    code = "unauthorized"
    status = 401


class NotFound(CosdError):
    code = "not_found"
    status = 404


class UnknownVocabulary(NotFound):
    code = "unknown_vocabulary"


class SessionError(CosdError):
    code = "session_error"
    status = 409


class SessionLost(SessionError):
    code = "session_lost"
    status = 410


class SequenceConflict(SessionError):
    code = "sequence_conflict"


class SequenceGap(SessionError):
    code = "sequence_gap"


class BaseMismatch(SessionError):
    code = "base_mismatch"


class RateLimited(CosdError):
    code = "rate_limited"
    status = 429


class ServerUnavailable(CosdError):
    code = "server_unavailable"
    status = 503


class ServerAway(ServerUnavailable):
    code = "server_away"


class ServerFault(CosdError):
    code = "server_fault"
    status = 500


class TransportError(CosdError):
    code = "transport_error"
    status = 502


class ConnectionFailed(TransportError, ConnectionError):
    code = "connection_failed"


class TimedOut(TransportError, TimeoutError):
    code = "timed_out"
    status = 504


class ProtocolError(TransportError):
    code = "protocol_error"


class VocabularyMismatch(CosdError):
    code = "vocabulary_mismatch"
    status = 422


class ModelError(CosdError):
    code = "model_error"


class ModelFolderInvalid(ModelError):
    code = "model_folder_invalid"


class ManifestMismatch(ModelError):
    code = "manifest_mismatch"


class TokenizerUnsupported(ModelError):
    code = "tokenizer_unsupported"


class UnsupportedModel(ModelError):
    code = "unsupported_model"


class PreparationError(CosdError):
    code = "preparation_error"


class DownloadFailed(PreparationError):
    code = "download_failed"


class OutOfSpace(PreparationError):
    code = "out_of_space"


def _walk(cls: type[CosdError]) -> list[type[CosdError]]:
    return [cls, *(found for child in cls.__subclasses__() for found in _walk(child))]


_BY_CODE: dict[str, type[CosdError]] = {cls.code: cls for cls in _walk(CosdError)}


def error_for_code(code: str) -> type[CosdError]:
    """Class for a wire code; a code of a newer protocol is a plain `CosdError`."""
    return _BY_CODE.get(code, CosdError)
