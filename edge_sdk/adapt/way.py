"""Whether the device drafts or the server decodes alone."""

from __future__ import annotations

import math
from typing import Final

from edge_sdk.adapt.budget import Budget

_MARGIN: Final = 1.02  # how much faster plain decoding must look before speculation is left
_LEAST_ALONE: Final = 32  # tokens before the first probe; doubled by each one that fails
_MOST_ALONE: Final = 256  # after which only the budget makes it wait
_LONGEST_PROBE: Final = 32  # examined tokens
_LOAN: Final = 1.5  # times the text to come, lent to the first trials
_OVERDRAFT: Final = 2.5  # the same on top, until acceptance is seen to be too low


class Way:
    """The way that is believed to be faster, with trials of the other from a `Budget`.

    Speculation is left when plain decoding looks faster by a margin, unless acceptance may well
    be good enough and the budget for finding out is not spent. Then stretches of plain decoding
    alternate with probes. A probe lasts as long as costs as much as getting there, longer while
    it goes well; it ends in speculation if that may well be faster and there is budget for it.

    Attributes:
        alone: the server decodes alone, but for probes.
    """

    def __init__(self) -> None:
        self.alone = False
        self._budget = Budget()
        self._probe_left = 0  # examined tokens until a probe has told enough
        self._stretch = _LEAST_ALONE
        self._tried = 0  # tokens of speculation that are not in the budget yet

    @property
    def probing(self) -> bool:
        """Speculating, though the other way is believed to be faster."""
        return self.alone and self._probe_left > 0

    def verdict(self, *, examined: int, accepted: int, settled: bool, rising: bool) -> None:
        """Note a block; `rising` if acceptance seems to become better."""
        self._tried += accepted + settled
        self._probe_left = max(0, self._probe_left - max(examined, 1))
        if self.alone and examined and (accepted == examined or rising):
            self._probe_left = max(self._probe_left, 1)

    def streamed(self, *, seconds: float, restart: float, loss: float) -> None:
        """Note a stretch of plain decoding; a probe follows.

        Args:
            seconds: of it.
            restart: seconds that leaving and coming back costs by itself.
            loss: seconds a token by which speculation looks slower.
        """
        self._budget.passed(seconds)
        self._budget.lose(restart)
        self._probe_left = _probe_tokens(restart, loss)
        self._stretch = min(2 * self._stretch, _MOST_ALONE)

    def account(self, *, rate: float, alone: float) -> None:
        """Charge the speculation since the last time.

        Args:
            rate: its tokens a second.
            alone: seconds a token of plain decoding.
        """
        took = self._tried / rate
        self._budget.passed(took)
        self._budget.lose(took - self._tried * alone)
        self._tried = 0

    def decide(self, *, plain: float, best: float, hopeful: float, ahead: float) -> None:
        """Choose the way.

        Args:
            plain: tokens a second of plain decoding.
            best: of speculation as it is believed to be.
            hopeful: of speculation as good as it may well be.
            ahead: seconds that the text to come would take by plain decoding.
        """
        self._budget.lend(_LOAN * ahead, overdraft=_OVERDRAFT * ahead)
        if hopeful <= plain:
            self._budget.withdraw()
        hopeless = hopeful <= plain or self._budget.empty
        if self.alone:
            self.alone = hopeless or self._probe_left > 0
        elif plain > best * _MARGIN:
            self.alone = hopeless
            self._probe_left, self._stretch = 0, _LEAST_ALONE

    def stretch(
        self, *, plain: float, ceiling: float, restart: float, loss: float, alone: float
    ) -> int:
        """Tokens of plain decoding before the next probe.

        Args:
            plain, ceiling: tokens a second of plain decoding, and of speculation if nearly
                everything were accepted.
            restart, loss: as in `streamed`.
            alone: seconds a token of plain decoding.
        """
        cost = restart + _probe_tokens(restart, loss) * loss
        wait = self._budget.wait(cost, hopeless=ceiling < plain * _MARGIN)
        return max(self._stretch, math.ceil(wait / alone))


def _probe_tokens(restart: float, loss: float) -> int:
    return _LONGEST_PROBE if loss * _LONGEST_PROBE <= restart else max(2, int(restart / loss))
