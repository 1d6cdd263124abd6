"""What trying speculation may cost where plain decoding looks faster."""

from __future__ import annotations

from typing import Final

_SHARE: Final = 0.015  # of all decoding time
_HOPELESS_SHARE: Final = 0.002  # the same where no acceptance could make speculation pay


class Budget:
    """An account of seconds: speculation that looks slower than plain decoding spends, time that
    passes earns a share of itself.

    Near a tie a trial costs little a token and so may last long enough to tell the two apart;
    where speculation is far behind, the account is empty after a few blocks. The first trial may
    overdraw it: a short run of refusals, each dear on a far link, else ends what would have paid
    for the rest of the text. Once the evidence, not the account, has spoken against speculation,
    trials only look whether the text has changed, and there is no overdraft for those.
    """

    def __init__(self) -> None:
        self._seconds = 0.0
        self._lost = 0.0
        self._overdraft = 0.0  # seconds of which a share may be lost besides
        self._credited = False

    def lend(self, seconds: float, *, overdraft: float = 0.0) -> None:
        """Count the text to come as if it had passed, once: otherwise nothing could be tried
        before it is half written.

        Args:
            seconds: to count.
            overdraft: further seconds, until `withdraw`.
        """
        if not self._credited:
            self._credited = True
            self._seconds += seconds
            self._overdraft = overdraft

    def withdraw(self) -> None:
        """End the overdraft for good."""
        self._overdraft = 0.0

    def passed(self, seconds: float) -> None:
        """Note decoding time of either kind."""
        self._seconds += seconds

    def lose(self, seconds: float) -> None:
        """Note what speculation lost on plain decoding; below 0 what it gained, which makes up
        for losses but is not saved for later ones."""
        self._lost = max(0.0, self._lost + seconds)

    @property
    def empty(self) -> bool:
        return self._lost >= _SHARE * (self._seconds + self._overdraft)

    def wait(self, cost: float, *, hopeless: bool) -> float:
        """Seconds of plain decoding until a trial of this cost may be made, overdraft aside."""
        share = _HOPELESS_SHARE if hopeless else _SHARE
        return max(0.0, (self._lost + cost) / share - self._seconds)
