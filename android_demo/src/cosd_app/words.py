"""Errors in plain words: what happened, and what the person holding the phone can do."""

from __future__ import annotations

from typing import Final

from cosd_app.state import Problem
from edge_sdk.errors import (
    ConnectionFailed,
    CosdError,
    DownloadFailed,
    EmptyPrompt,
    InvalidRequest,
    ModelError,
    NoChatTemplate,
    NotFound,
    OutOfSpace,
    PromptTooLong,
    ProtocolError,
    RateLimited,
    ServerFault,
    ServerUnavailable,
    SessionError,
    TimedOut,
    Unauthorized,
    UnknownMethod,
    VocabularyMismatch,
)

# The first class that fits counts, so a class stands before those it derives from.
_WORDS: Final[tuple[tuple[type[CosdError], str, str], ...]] = (
    (
        Unauthorized,
        "The server does not accept this key",
        "Enter the key again in Settings; whoever runs the server gives it out.",
    ),
    (
        ConnectionFailed,
        "The server cannot be reached",
        "Check that you are online, that the address in Settings is right and the server runs.",
    ),
    (
        TimedOut,
        "The server does not answer",
        "The connection may be slow or the server busy; try again.",
    ),
    (
        RateLimited,
        "You have asked for a lot in a short time",
        "The server limits each key; wait a little and try again.",
    ),
    (
        ServerUnavailable,
        "The server is not ready",
        "It is starting, stopping or has too much to do; try again in a moment.",
    ),
    (
        OutOfSpace,
        "There is not enough room on this device",
        "Delete something and go on with the download; what is here already is kept.",
    ),
    (
        DownloadFailed,
        "The download did not finish",
        "Press Download again: it goes on where it stopped.",
    ),
    (
        EmptyPrompt,
        "There is nothing to go on from",
        "Type a few words first.",
    ),
    (
        PromptTooLong,
        "This text is too long for the server's model",
        "Shorten the prompt, or begin a new chat.",
    ),
    (
        NoChatTemplate,
        "The server's model does not chat",
        "Turn Chat off: the model then continues your text.",
    ),
    (
        UnknownMethod,
        "The server does not offer this method",
        "Choose another method in Settings.",
    ),
    (
        VocabularyMismatch,
        "The draft on this device does not fit the server's model",
        "Download another draft in Settings.",
    ),
    (
        ModelError,
        "The draft on this device is damaged or not usable",
        "Download it again in Settings.",
    ),
    (
        NotFound,
        "The server does not have this",
        "Look at the list of drafts in Settings again.",
    ),
    (
        ProtocolError,
        "This address is not a server that this app understands",
        "Check the address in Settings; app and server may also be of different versions.",
    ),
    (
        SessionError,
        "The server lost track of this text",
        "Start the text again.",
    ),
    (
        ServerFault,
        "The server made a mistake",
        "Try again; if it stays, tell whoever runs the server.",
    ),
    (
        InvalidRequest,
        "Something that was entered cannot be used",
        "Look at the sentence below and correct it.",
    ),
)


def problem_of(error: Exception) -> Problem:
    """An error for a person."""
    if not isinstance(error, CosdError):
        return Problem(
            "Something unexpected happened in this app",
            "Try again; if it stays, report the sentence below.",
            f"{type(error).__name__}: {error}",
        )
    for cls, title, advice in _WORDS:
        if isinstance(error, cls):
            if isinstance(error, RateLimited | ServerUnavailable) and error.retry_after:
                advice = f"Try again in about {round(error.retry_after)} seconds."
            return Problem(title, advice, error.message)
    return Problem("Something went wrong", "Try again.", error.message)
