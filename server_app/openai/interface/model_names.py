"""What clients may call the target."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ModelNames:
    """Iterates over the name and the aliases.

    Attributes:
        name: the target's own.
        aliases: further names, for clients that insist on one.
        created: when this server came up, in Unix seconds.
    """

    name: str
    aliases: Sequence[str] = ()
    created: int = field(default_factory=lambda: int(time.time()))

    def __iter__(self) -> Iterator[str]:
        return iter((self.name, *self.aliases))

    def __contains__(self, name: object) -> bool:
        return name in (self.name, *self.aliases)
