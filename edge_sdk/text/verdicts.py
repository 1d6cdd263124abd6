"""Whether a verdict can be the answer to a block."""

from __future__ import annotations

from edge_sdk.errors import ProtocolError
from edge_sdk.text.blocks import Block
from edge_sdk.wire import Finish, Verdict


def check_verdict(
    verdict: Verdict, block: Block, *, length: int, max_tokens: int, target_size: int
) -> None:
    """Refuse what a server that works cannot say.

    Args:
        block: the oldest one in flight.
        length: tokens of the text before it.
        max_tokens: most tokens of the text.
        target_size: ids of the target's vocabulary.

    Raises:
        ProtocolError: naming what is wrong.
    """
    size = len(block.drafted)
    wrong = None
    if verdict.sequence != block.verify.sequence:
        wrong = f"answers {verdict.sequence}, not {block.verify.sequence}"
    elif verdict.finish not in Finish.__members__.values():
        wrong = f"has finish {verdict.finish}"
    elif verdict.stale:
        wrong = None if block.doomed else "drops a block that is not stale"
    elif block.doomed:
        wrong = "keeps a block that was drafted on a rejected one"
    elif verdict.accepted > size:
        wrong = f"accepts {verdict.accepted} of {size} drafted tokens"
    elif length + verdict.accepted + _settles(verdict) > max_tokens:
        wrong = f"goes past the {max_tokens} tokens that were asked for"
    elif verdict.settled is not None and not 0 <= verdict.settled < target_size:
        wrong = f"settles id {verdict.settled}, outside the target's {target_size}"
    elif verdict.rejection is not None and (
        verdict.accepted >= size or verdict.settled is not None or verdict.finish
    ):
        wrong = "carries a rejection where none can be"
    elif (
        verdict.settled is None
        and verdict.rejection is None
        and not verdict.finish
        and not (block.verify.more and verdict.accepted == size)
    ):
        wrong = "settles nothing"
    elif verdict.settled is not None and block.verify.more and verdict.accepted == size:
        wrong = "has a bonus although more was to follow"
    if wrong:
        raise ProtocolError(
            f"the server's verdict {wrong}; the text so far stands, the server is broken or "
            f"speaks another protocol"
        )


def _settles(verdict: Verdict) -> bool:
    return verdict.settled is not None or verdict.rejection is not None
