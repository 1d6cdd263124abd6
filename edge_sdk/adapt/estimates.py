"""Running estimates of what things take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

_OUTLIER: Final = 4.0  # deviations beyond which one value alone is not believed
_CHANGED: Final = 2  # outliers in a row to one side after which the past is not believed


class Mean:
    """An exponentially weighted mean; the first value counts whole.

    Args:
        prior: value until there is one.
        memory: weight of the past against one more value, once there is enough of it.
    """

    def __init__(self, prior: float, *, memory: float = 30.0) -> None:
        self.value = prior
        self._memory = memory
        self._weight = 0.0

    @property
    def known(self) -> bool:
        """Whether anything was measured."""
        return self._weight > 0

    def note(self, value: float, weight: float = 1.0) -> None:
        """Take in a value that stands for `weight` of them."""
        if not math.isfinite(value) or weight <= 0:
            return
        self._weight = min(self._weight + weight, self._memory + weight)
        self.value += (value - self.value) * weight / self._weight


class Line:
    """y = t_0 x_0 + t_1 x_1 + ..., by Bayesian linear regression that forgets.

    The normal equations with a Gaussian prior (Bishop 2006, section 3.3): evidence A and A t are
    sums over the samples, discounted by each new one, and the prior is added anew each time, so
    that what no sample speaks of stays where the prior has it.

    A single far value is taken as the farthest believable one; two in a row to the same side
    mean that the world has changed, and what was known of it is dropped.

    Args:
        prior: expected coefficients.
        spread: their standard deviations.
        floor: least standard deviation of a value.
        share: standard deviation of a value as a share of it.
        memory: samples until the weight of one has fallen to 1/e.
    """

    def __init__(
        self,
        prior: Sequence[float],
        spread: Sequence[float],
        *,
        floor: float,
        share: float = 0.03,
        memory: float = 60.0,
    ) -> None:
        self._prior = np.array(prior)
        self._precision = np.diag(1 / np.array(spread) ** 2)
        self._evidence = np.zeros_like(self._precision)
        self._moment = np.zeros_like(self._prior)
        self._floor = floor
        self._share = share
        self._keep = float(np.exp(-1 / memory))
        self._deviation = 0.0
        self._far = 0  # outliers in a row, below 0 to the lower side
        self._values: tuple[float, ...] | None = None
        self._covariance = np.diag(np.array(spread) ** 2)

    @property
    def values(self) -> tuple[float, ...]:
        """Coefficients, none below 0."""
        if self._values is None:
            self._covariance = np.linalg.inv(self._precision + self._evidence)
            solved = self._covariance @ (self._precision @ self._prior + self._moment)
            self._values = tuple(float(value) for value in np.maximum(solved, 0.0))
        return self._values

    def at(self, *x: float) -> float:
        """y of one x."""
        return sum(a * b for a, b in zip(self.values, x, strict=True))

    def note(self, x: Sequence[float], y: float) -> bool:
        """Take in a sample; True if the world seems to have changed."""
        if not math.isfinite(y) or y < 0:
            return False
        row = np.array(x)
        expected = self.at(*x)
        noise = self._floor + self._share * expected
        unsure = float(row @ self._covariance @ row)
        off = y - expected
        limit = _OUTLIER * math.sqrt((noise + self._deviation) ** 2 + unsure)
        changed = False
        if abs(off) > limit:
            if self._far * off < 0:
                self._far = 0
            self._far += 1 if off > 0 else -1
            changed = abs(self._far) >= _CHANGED
            if changed:
                self._forget()
            else:
                y = expected + math.copysign(limit, off)
        else:
            self._far = 0
            self._deviation += (abs(off) - self._deviation) / 10
        weight = 1 / (self._floor + self._share * y) ** 2
        self._evidence = self._keep * self._evidence + weight * np.outer(row, row)
        self._moment = self._keep * self._moment + weight * y * row
        self._values = None
        return changed

    def _forget(self) -> None:
        self._evidence[:] = 0
        self._moment[:] = 0
        self._deviation = 0.0
        self._far = 0
