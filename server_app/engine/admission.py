"""Whether a block fits the session as it stands."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from edge_sdk.errors import BaseMismatch, InvalidRequest
from edge_sdk.wire import Finish, Verdict, Verify
from edge_sdk.wire.packing import unpack_ranks
from server_app.engine.session import Session
from server_app.engine.work import VerifyWork
from server_app.target.model import TargetModel


def admit(
    session: Session, verify: Verify, target: TargetModel, *, wanted: Callable[[], bool]
) -> Verdict | VerifyWork:
    """Check base, parent and settled token of the verify whose turn it is.

    A block that builds on another is stale unless that one was accepted whole and the base
    holds; length alone would be ambiguous, since a rejection and its replacement can reach
    the same length as the block it was drafted on.

    Args:
        wanted: whether somebody still waits for the verdict.

    Returns:
        the work to do, or the verdict of a stale block, which costs no computation.

    Raises:
        BaseMismatch: a block drafted with every answer known does not fit the session.
        InvalidRequest: a field is out of range, or the text is complete.
    """
    proposal = session.half.read(verify.draft, session.pair)
    kept = _kept(session, verify, target)
    base = len(session.generated) + (verify.settled is not None) + len(kept)
    if verify.parent is not None:
        if verify.parent >= verify.sequence:
            raise BaseMismatch(
                f"parent {verify.parent} is not before sequence {verify.sequence}", field="parent"
            )
        holds = (
            verify.parent == session.last_sequence
            and session.last_full
            and verify.settled is None
            and verify.base == base
        )
        if not holds:
            return Verdict(sequence=verify.sequence, accepted=-1)
    finish = session.finish(target)
    if finish != Finish.NONE:
        raise InvalidRequest(
            f"the text is complete ({finish.name.lower()}); truncate or extend it first"
        )
    if verify.settled is not None and not session.awaits_device:
        raise BaseMismatch(
            "a settled token came, but the last block left none to the device", field="settled"
        )
    if verify.settled is None and session.awaits_device:
        raise BaseMismatch(
            "the last block was rejected; its settled token must come with this one",
            field="settled",
        )
    if verify.base != base:
        raise BaseMismatch(
            f"base is {verify.base}, but the text has {base} tokens here", field="base"
        )
    if verify.settled is not None:
        check_tokens((verify.settled,), target, "settled")
    if base >= session.generation.max_tokens:
        raise BaseMismatch(
            f"base is {base}, but the text has at most {session.generation.max_tokens} tokens",
            field="base",
        )
    return VerifyWork(session, verify, proposal, kept, wanted=wanted)


def _kept(session: Session, verify: Verify, target: TargetModel) -> list[int]:
    """Target ids of the tokens that the device kept without asking."""
    if not verify.kept:
        return []
    if not session.half.allows_kept or session.pair is None:
        raise InvalidRequest(
            f"method {session.generation.method!r} keeps no token unverified", field="kept"
        )
    ids = session.pair.target_ids
    ranks = unpack_ranks(verify.kept, size=len(ids), field="kept")
    kept: list[int] = ids[ranks].tolist()
    if target.vocabulary.end_ids.intersection(kept):
        raise InvalidRequest("a kept token ends the text, nothing can follow it", field="kept")
    return kept


def check_tokens(tokens: Sequence[int], target: TargetModel, field: str) -> None:
    """Refuse ids that the target cannot have produced.

    Raises:
        InvalidRequest: one is out of range, or masked in every law.
    """
    if not tokens:
        return
    vocabulary = target.vocabulary
    for token in (min(tokens), max(tokens)):
        if not 0 <= token < len(vocabulary):
            raise InvalidRequest(
                f"{field}: id {token} is outside the target's {len(vocabulary)} tokens",
                field=field,
            )
    # They are in order and can be many, and a settled token comes with most rounds.
    masked = vocabulary.masked_ids
    if len(masked):
        ids = np.array(tokens, dtype=np.int64)
        unused = ids[masked[np.searchsorted(masked, ids) % len(masked)] == ids]
        if len(unused):
            raise InvalidRequest(f"{field}: id {unused[0]} is unused in the target", field=field)


def carried_out(session: Session, verify: Verify, work: VerifyWork | None) -> None:
    """Note the outcome of the verify whose turn it was; None for a stale one."""
    session.last_sequence = verify.sequence
    session.last_full = work is not None and work.full
