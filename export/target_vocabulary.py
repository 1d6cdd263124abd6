"""The vocabulary of a target: from the server that serves it, or from its model."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from edge_sdk.errors import VocabularyMismatch
from edge_sdk.home import cosd_home
from edge_sdk.peer import Card, fetch_vocabulary
from edge_sdk.transport import HttpTransport
from edge_sdk.vocab import Alignment, Vocabulary, read_tokenizer
from export.progress import NoProgress, Progress
from export.sources import SourceFolder, resolve_source

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TargetVocabulary:
    """A target's tokens.

    Attributes:
        name: of the target.
        vocabulary: its tokens, as many as its logits are wide.
        source: the model, where it is on this machine; None for a server.
    """

    name: str
    vocabulary: Vocabulary
    source: SourceFolder | None


def is_address(target: str) -> bool:
    """Whether a target is a server."""
    return target.startswith(("http://", "https://"))


def read_target(
    target: str,
    *,
    api_key: str | None = None,
    trust_remote_code: bool = False,
    progress: Progress | None = None,
) -> TargetVocabulary:
    """Look a target up.

    Args:
        target: address of a server (its byte table is kept in `COSD_HOME`), or a model as
            `export.sources.resolve_source` takes it.
        api_key: key of the server.
        trust_remote_code: Python code that comes with the model may run.
        progress: told of each stage.

    Raises:
        TransportError, Unauthorized: the server cannot be talked to.
        ModelError, PreparationError: as `resolve_source`.
    """
    if is_address(target):
        name, vocabulary = run(_ask(target, api_key))
        return TargetVocabulary(name, vocabulary, None)
    found = resolve_source(
        target, trust_remote_code=trust_remote_code, progress=progress or NoProgress()
    )
    vocabulary = read_tokenizer(found.path, width=found.checkpoint.logits_width)
    return TargetVocabulary(found.name, vocabulary, found)


def aligned(target: TargetVocabulary, draft: Vocabulary) -> Alignment:
    """V_C of a draft and a target.

    Raises:
        VocabularyMismatch: they share too little; the target is named.
    """
    try:
        return Alignment.between(target=target.vocabulary, draft=draft)
    except VocabularyMismatch as error:
        raise VocabularyMismatch(f"with the target {target.name}, {error.message}") from error


def run(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, also where this thread has a running event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(asyncio.run, work).result()


async def _ask(address: str, api_key: str | None) -> tuple[str, Vocabulary]:
    transport = HttpTransport(address, api_key=api_key)
    try:
        card = Card.read(await transport.card())
        tables = cosd_home() / "tables"
        return card.model, await fetch_vocabulary(transport, card.fingerprint, tables)
    finally:
        await transport.aclose()
