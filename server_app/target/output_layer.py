"""The output layer of a model, into memory that stays."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

import torch

from server_app.target.screening import Screening

_LARGE: Final = 32_768  # ids from which on fresh memory costs more than it is worth
_PART: Final = 16_384  # ids whose logits say which rows need the others
_FAST_PRODUCTS: Final = os.environ.get("ONEDNN_DEFAULT_FPMATH_MODE", "").lower()
_WORTH: Final = 12  # rows that judge a token; fewer wait for the weights, whatever their number


class OutputLayer(torch.nn.Module):
    """Takes the place of a `torch.nn.Linear` that makes logits.

    A pass of 80 rows over 262,144 ids makes 42 MB of logits. Fresh memory of that size comes
    from the system page by page every time, which takes longer than filling it; this keeps one
    buffer and returns views of it, which are valid until the next pass.

    Args:
        linear: on any device; its weight stays shared with whoever else uses it.
        masked: ids that no law contains.

    Attributes:
        screening: of the pass that comes next: rows that it finds to judge nothing are left out.
    """

    def __init__(self, linear: torch.nn.Linear, masked: Sequence[int] = ()) -> None:
        super().__init__()
        self.screening: Screening | None = None
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight = linear.weight
        self.bias: torch.Tensor | None = linear.bias
        self._buffer: torch.Tensor | None = None
        self._masked = torch.tensor([one for one in masked if one < _PART], dtype=torch.int64)

    @property
    def screens(self) -> bool:
        """Leaving rows out saves time here: on a CPU, where each row costs what its products
        cost."""
        # Products of float32 in fewer bits are further apart than a screen allows for.
        exact = self.weight.dtype != torch.float32 or _FAST_PRODUCTS in ("", "strict")
        return self.weight.device.type == "cpu" and self.out_features > 2 * _PART and exact

    def made(self, logits: torch.Tensor) -> bool:
        """These are logits of the latest pass as this layer left them."""
        buffer = self._buffer
        return buffer is not None and len(logits) > 0 and logits.data_ptr() == buffer.data_ptr()

    @property
    def rows(self) -> int:
        """Rows that the buffer holds."""
        return 0 if self._buffer is None else self._buffer.shape[0]

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits [..., V] of hidden states [..., size]."""
        flat = hidden.reshape(-1, self.in_features)
        screening, self.screening = self.screening, None
        if screening is not None and self._screens(screening, len(flat)):
            return self._screened(flat, screening)[None]
        out = self._room(flat)
        torch.mm(flat, self.weight.t(), out=out)
        if self.bias is not None:
            out += self.bias
        return out.view(*hidden.shape[:-1], self.out_features)

    def _screens(self, screening: Screening, rows: int) -> bool:
        # Other rows come from a model that picks those that are wanted after this layer.
        its_own = sum(screening.counts) == rows
        return its_own and screening.judging >= _WORTH and self.screens

    def _screened(self, flat: torch.Tensor, screening: Screening) -> torch.Tensor:
        """Logits [rows that are wanted, V]."""
        part = torch.mm(flat, self.weight[:_PART].t())
        if self.bias is not None:
            part += self.bias[:_PART]
        wanted = torch.tensor(
            screening.wanted(part, self._masked, flat, self.weight, self.bias), dtype=torch.int64
        )
        flat = flat.index_select(0, wanted)
        out = self._room(flat)
        out[:, :_PART] = part.index_select(0, wanted)
        torch.mm(flat, self.weight[_PART:].t(), out=out[:, _PART:])
        if self.bias is not None:
            out[:, _PART:] += self.bias[_PART:]
        return out

    def _room(self, flat: torch.Tensor) -> torch.Tensor:
        count = flat.shape[0]
        if self._buffer is None or self.rows < count:
            # Doubled, so that batches that grow do not each need a larger one.
            size = max(count, 2 * self.rows)
            self._buffer = flat.new_empty((size, self.out_features))
        return self._buffer[:count]


def keep_logits(model: torch.nn.Module, masked: Sequence[int] = ()) -> None:
    """Let a model write its logits into memory that stays, if its output layer is a plain one
    and large.

    Args:
        masked: ids that no law contains.
    """
    anything: Any = model
    head = anything.get_output_embeddings()
    if type(head) is torch.nn.Linear and head.out_features >= _LARGE:
        anything.set_output_embeddings(OutputLayer(head, masked))
