"""How far a draft is likely to be accepted, learnt from verdicts."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from edge_sdk.adapt.model import DEPTH

_PRIOR: Final = 0.65  # acceptance before anything is known: the pairs of docs/methods.md
_PRIOR_WEIGHT: Final = 2.0
_BUCKET_WEIGHT: Final = 25.0  # examined tokens before a depth is believed against all depths
_EDGES: Final = (1, 2, 3, 5, 9, 17)  # first depth of each bucket
_MEMORY: Final = 400.0  # examined tokens until the weight of one has fallen to 1/e
_RECENT: Final = 18.0  # the same for what just happened
_ALARM: Final = 9.0  # nats of evidence between the two after which the longer memory is dropped
_HINT: Final = 1.5  # nats of the same that make it worth to look on
_CAP: Final = 0.995  # no run of luck makes a chance of acceptance higher
_CELL: Final = 3.0  # expected acceptances and refusals of a bin before it counts in a test
_CEILING: Final = 0.98  # acceptance that no text is hoped to exceed for long
# Even samples of (0, 1) in a fixed order that says nothing.
_SPREAD: Final = (
    np.random.default_rng(0).permutation((np.arange(4096) + 0.5) / 4096).reshape(64, 64)
)
_OPTIMISM: Final = 2.5  # standard deviations that acceptance may well be better


class Acceptance:
    """Chances that drafted tokens are accepted, by depth.

    The depth of a token is its number since the last settled one. Given that all before it were
    accepted it is accepted with h(depth); texts have easy and hard stretches, so h rises with
    depth though one token is like another. Depths are in buckets, and each bucket has a Beta
    posterior whose prior is the mean over all depths, which has one itself: few samples move
    nothing far.

    The past fades with each examined token. Where the last handful contradicts the rest, the rest
    is dropped: the text has changed. The test is the likelihood ratio of the handful's own mean r
    against the longer mean a, n KL(r, a) nats for n tokens, which unlike a count of standard
    deviations is not alarmed by a second bad token at a = 0.95.
    """

    def __init__(self) -> None:
        self._examined = np.zeros(len(_EDGES))
        self._accepted = np.zeros(len(_EDGES))
        self._recent_examined = self._recent_accepted = self._recent_squares = 0.0
        depths = np.arange(1, DEPTH + 1)
        self._bucket_of = np.searchsorted(np.array(_EDGES), depths, side="right") - 1
        self._depth = 0

    @property
    def weight(self) -> float:
        """Examined tokens that the estimate stands on, faded ones in part."""
        return float(self._examined.sum())

    @property
    def mean(self) -> float:
        """Chance of acceptance of any examined token."""
        examined = self.weight + _PRIOR_WEIGHT
        return (float(self._accepted.sum()) + _PRIOR * _PRIOR_WEIGHT) / examined

    def verdict(self, *, examined: int, accepted: int, settled: bool) -> bool:
        """Take in a verdict on the block that follows the one before; True if the text seems to
        have changed."""
        fade, recent = math.exp(-examined / _MEMORY), math.exp(-examined / _RECENT)
        self._examined *= fade
        self._accepted *= fade
        self._recent_examined *= recent
        self._recent_accepted *= recent
        self._recent_squares *= recent**2
        for index in range(examined):
            bucket = bisect_right(_EDGES, self._depth + index + 1) - 1
            self._examined[bucket] += 1
            self._accepted[bucket] += index < accepted
        self._recent_examined += examined
        self._recent_accepted += accepted
        self._recent_squares += examined
        self._depth = 0 if settled else self._depth + accepted
        return self._changed()

    def streamed(self, tokens: int) -> None:
        """The text went on by so many tokens without a draft: what was known of it fades."""
        fade = math.exp(-tokens / (4 * _MEMORY))
        self._examined *= fade
        self._accepted *= fade
        recent = math.exp(-tokens / (4 * _RECENT))
        self._recent_examined *= recent
        self._recent_accepted *= recent
        self._recent_squares *= recent**2
        self._depth = 0

    def ceiling(self) -> NDArray[np.float64]:
        """`survival` of a draft that is nearly always accepted."""
        return np.power(_CEILING, np.arange(DEPTH + 1, dtype=np.float64))

    def begin(self, *, refusals: float = 1.0) -> None:
        """A new text; drafts are refused that many times as often from now on."""
        refused = np.minimum((self._examined - self._accepted) * refusals, self._examined)
        self._accepted = self._examined - refused
        self._recent_examined = self._recent_accepted = self._recent_squares = 0.0
        self._depth = 0

    def survival(self, *, hopeful: bool = False, refusals: float = 1.0) -> NDArray[np.float64]:
        """S(0) = 1, S(1), ... as `edge_sdk.adapt.model` wants it, [DEPTH + 1].

        Args:
            hopeful: as good as it may well be: that much better by odds, at every depth.
            refusals: if drafts were refused that many times as often.
        """
        mean = self.mean
        hazards = (self._accepted + _BUCKET_WEIGHT * mean) / (self._examined + _BUCKET_WEIGHT)
        if hopeful:
            # The mean of a Beta law and some standard deviations, carried over to log-odds.
            variance = mean * (1 - mean)
            spread = math.sqrt(variance / (self.weight + _PRIOR_WEIGHT))
            odds = math.exp(_OPTIMISM * spread / variance)
            hazards = odds * hazards / (1 - hazards + odds * hazards)
        hazards = np.clip(1 - refusals * (1 - hazards), 0.0, _CAP)
        survival = np.ones(DEPTH + 1)
        np.cumprod(hazards[self._bucket_of], out=survival[1:])
        return survival

    @property
    def rising(self) -> bool:
        """Whether what just happened hints at a better stretch of text."""
        better = self._recent_accepted > self._recent_examined * self.mean
        return better and self._evidence() > _HINT

    def _evidence(self) -> float:
        if not self._recent_squares:
            return 0.0
        recent = self._recent_accepted / self._recent_examined
        independent = self._recent_examined**2 / self._recent_squares
        return independent * _divergence(recent, self.mean)

    def _changed(self) -> bool:
        if self.weight < 2 * _RECENT or not self._recent_squares:
            return False
        if self._evidence() < _ALARM:
            return False
        recent = self._recent_accepted / self._recent_examined
        share = min(1.0, self._recent_examined / max(self.weight, 1.0))
        self._examined *= share
        self._accepted = self._examined * recent
        return True


def _divergence(r: float, a: float) -> float:
    """KL divergence in nats of a coin of chance `a` from one of chance `r`."""
    rest = 0.0 if r <= 0 else r * math.log(r / a)
    return rest + (0.0 if r >= 1 else (1 - r) * math.log((1 - r) / (1 - a)))


class Confidence:
    """What the draft's own belief in a drawn token is worth: a calibration table.

    Beliefs q(x) fall into bins by their odds; each bin has a Beta posterior of being accepted
    whose prior is the overall acceptance, so that a draft which is sure of everything, or of
    which little was seen, is taken at no more than its record.
    """

    _EDGES: Final = (0.1, 0.2, 0.3, 0.45, 0.6, 0.75, 0.85, 0.92, 0.97, 0.99)
    _WEIGHT: Final = 12.0

    def __init__(self) -> None:
        self._examined = [0.0] * (len(self._EDGES) + 1)
        self._accepted = [0.0] * (len(self._EDGES) + 1)

    def verdict(self, confidences: Sequence[float], *, examined: int, accepted: int) -> None:
        """Take in what became of drafted tokens."""
        fade = math.exp(-examined / (4 * _MEMORY))
        self._examined = [fade * value for value in self._examined]
        self._accepted = [fade * value for value in self._accepted]
        for index, confidence in enumerate(confidences[:examined]):
            bin_ = bisect_right(self._EDGES, confidence)
            self._examined[bin_] += 1
            self._accepted[bin_] += index < accepted

    def chance(self, confidence: float, mean: float) -> float:
        """Chance that a token of this belief is accepted, `mean` being that of any token."""
        bin_ = bisect_right(self._EDGES, confidence)
        examined, accepted = self._examined[bin_], self._accepted[bin_]
        return (accepted + self._WEIGHT * mean) / (examined + self._WEIGHT)

    def blocks(self, mean: float) -> NDArray[np.float64]:
        """Chances of acceptance in blocks such as were seen, [64, 64]; the same at each call
        for the same record."""
        weights = np.array(self._examined)
        edges = np.cumsum(weights)[:-1] / max(float(weights.sum()), 1e-9)
        chances = (np.array(self._accepted) + self._WEIGHT * mean) / (weights + self._WEIGHT)
        return chances[np.searchsorted(edges, _SPREAD)]

    @property
    def telling(self) -> bool:
        """Whether belief and acceptance go together: a chi-square test over the bins, at four
        standard deviations of its law."""
        examined = sum(self._examined)
        if examined < 40:
            return False
        mean = sum(self._accepted) / examined
        if not 0 < mean < 1:
            return False
        least = _CELL / min(mean, 1 - mean)
        pairs = zip(self._examined, self._accepted, strict=True)
        used = [(n, k) for n, k in pairs if n >= least]
        square = sum((k - n * mean) ** 2 / (n * mean * (1 - mean)) for n, k in used)
        degrees = max(len(used) - 1, 1)
        return square > degrees + 4 * math.sqrt(2 * degrees)
