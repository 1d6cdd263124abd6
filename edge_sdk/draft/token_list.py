"""The ids that a draft model holds."""

from __future__ import annotations

import operator
from collections.abc import Sequence

from edge_sdk.errors import InvalidRequest


class TokenList:
    """Ids of one text, checked against a vocabulary's width and a context."""

    def __init__(self, *, width: int, context: int) -> None:
        self.ids: list[int] = []
        self._width = width
        self._context = context

    def __len__(self) -> int:
        return len(self.ids)

    def append(self, ids: Sequence[int]) -> None:
        """Add ids at the end; on an error nothing is added.

        Raises:
            InvalidRequest: an id is no integer or out of range, or the context would overflow.
        """
        checked: list[int] = []
        for token_id in ids:
            try:
                value = operator.index(token_id)
            except TypeError:
                raise InvalidRequest(
                    f"draft id {token_id!r} is not an integer", field="ids"
                ) from None
            if not 0 <= value < self._width:
                raise InvalidRequest(
                    f"draft id {value} is outside the vocabulary of {self._width} ids", field="ids"
                )
            checked.append(value)
        if len(self.ids) + len(checked) > self._context:
            raise InvalidRequest(
                f"{len(self.ids)} + {len(checked)} ids do not fit the draft's context of "
                f"{self._context}; go on without drafting",
                field="ids",
            )
        self.ids.extend(checked)

    def rewind(self, length: int) -> None:
        """Keep the first `length` ids.

        Raises:
            InvalidRequest: `length` is negative or above the present length.
        """
        if not 0 <= length <= len(self.ids):
            raise InvalidRequest(
                f"cannot rewind to {length}: the draft holds {len(self.ids)} ids", field="length"
            )
        del self.ids[length:]
