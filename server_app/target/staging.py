"""The integers of a pass on their way to the device."""

from __future__ import annotations

from collections.abc import Iterable

import torch


class Staging:
    """Gathers lists of integers on the host and sends them in one copy.

    On CUDA the copy starts in pinned memory, which torch keeps for the next one, and does not
    wait for the device.

    Args:
        device: where the integers are needed.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._values: list[int] = []
        self._spans: list[tuple[int, int]] = []
        self._sent: torch.Tensor | None = None

    def put(self, values: Iterable[int]) -> int:
        """Add a list; returns its number."""
        first = len(self._values)
        self._values.extend(values)
        self._spans.append((first, len(self._values)))
        return len(self._spans) - 1

    def send(self) -> None:
        """Copy all lists to the device."""
        pinned = self.device.type == "cuda"
        host = torch.tensor(self._values, dtype=torch.int64, pin_memory=pinned)
        self._sent = host.to(self.device, non_blocking=True)

    def __getitem__(self, number: int) -> torch.Tensor:
        """A list as an int64 tensor [length] on the device, once sent."""
        assert self._sent is not None, "lists are read after they were sent"
        first, last = self._spans[number]
        return self._sent[first:last]
