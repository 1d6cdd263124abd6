"""The target tokens of a text, and where it ends."""

from __future__ import annotations

from collections.abc import Sequence

from edge_sdk.text.tokens import Origin, Token
from edge_sdk.vocab import Vocabulary
from edge_sdk.wire import Finish


class Written:
    """What is certain of a text.

    Args:
        target: the target's vocabulary.
        max_tokens: most target tokens of the text.
        generated: target ids so far.

    Attributes:
        generated: target ids.
        room: tokens that the target's context leaves for the text; set when it is known.
    """

    def __init__(self, target: Vocabulary, *, max_tokens: int, generated: Sequence[int]) -> None:
        self.generated: list[int] = list(generated)
        self.target = target
        self.max_tokens = max_tokens
        self.room = max_tokens

    def __len__(self) -> int:
        return len(self.generated)

    @property
    def most(self) -> int:
        """Most tokens that the text can have."""
        return min(self.max_tokens, self.room)

    def append(self, token: int, origin: Origin) -> Token:
        """Add a token to the text."""
        self.generated.append(token)
        return self.token(token, origin)

    def token(self, token: int, origin: Origin) -> Token:
        """A target id with its bytes."""
        return Token(token, self.target.pieces[token], origin)

    @property
    def finish(self) -> Finish:
        """Why the text is complete after its last token, `Finish.NONE` if it goes on."""
        if self.generated[-1] in self.target.end_ids:
            return Finish.END
        if len(self.generated) >= self.max_tokens:
            return Finish.LENGTH
        if len(self.generated) >= self.room:
            return Finish.CONTEXT
        return Finish.NONE
