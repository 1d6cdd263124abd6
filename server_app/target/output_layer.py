"""The output layer of a model, into memory that stays."""

from __future__ import annotations

from typing import Any, Final

import torch

_LARGE: Final = 32_768  # ids from which on fresh memory costs more than it is worth


class OutputLayer(torch.nn.Module):
    """Takes the place of a `torch.nn.Linear` that makes logits.

    A pass of 80 rows over 262,144 ids makes 42 MB of logits. Fresh memory of that size comes
    from the system page by page every time, which takes longer than filling it; this keeps one
    buffer and returns views of it, which are valid until the next pass.

    Args:
        linear: on any device; its weight stays shared with whoever else uses it.
    """

    def __init__(self, linear: torch.nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight = linear.weight
        self.bias: torch.Tensor | None = linear.bias
        self._buffer: torch.Tensor | None = None

    @property
    def rows(self) -> int:
        """Rows that the buffer holds."""
        return 0 if self._buffer is None else self._buffer.shape[0]

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits [..., V] of hidden states [..., size]."""
        flat = hidden.reshape(-1, self.in_features)
        out = self._room(flat)
        torch.mm(flat, self.weight.t(), out=out)
        if self.bias is not None:
            out += self.bias
        return out.view(*hidden.shape[:-1], self.out_features)

    def _room(self, flat: torch.Tensor) -> torch.Tensor:
        count = flat.shape[0]
        if self._buffer is None or self.rows < count:
            # Doubled, so that batches that grow do not each need a larger one.
            size = max(count, 2 * self.rows)
            self._buffer = flat.new_empty((size, self.out_features))
        return self._buffer[:count]


def keep_logits(model: torch.nn.Module) -> None:
    """Let a model write its logits into memory that stays, if its output layer is a plain one
    and large."""
    anything: Any = model
    head = anything.get_output_embeddings()
    if type(head) is torch.nn.Linear and head.out_features >= _LARGE:
        anything.set_output_embeddings(OutputLayer(head))
