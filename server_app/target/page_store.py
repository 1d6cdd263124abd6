"""Keys and values of a group of layers, in pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from server_app.target.pages import Reservation

_MOVED_AT_ONCE = 256  # pages, so that moving takes little memory


@dataclass(slots=True)
class _Layer:
    """Keys [pages, page, heads, head size] and values of a layer."""

    keys: torch.Tensor
    values: torch.Tensor


class PageStore:
    """Tensors of a group of layers.

    A layer's tensors are made when it is first written, in the shape that the model gives it,
    so that no shape is guessed from a configuration.

    Args:
        layers: how many.
        page: tokens a page.
    """

    def __init__(self, layers: int, *, page: int) -> None:
        self._layers: list[_Layer | None] = [None] * layers
        self._page = page
        self.pages = 0

    @property
    def bytes_per_token(self) -> int:
        """Bytes of one token over all layers written so far."""
        return sum(side[0, 0].numel() * side.element_size() for side in self._sides())

    def resize(self, pages: int) -> None:
        """Make room for so many pages; what is past them is dropped. Layer by layer: never
        twice the whole store in memory."""
        for layer in self._layers:
            if layer is not None:
                layer.keys = _resized(layer.keys, pages)
                layer.values = _resized(layer.values, pages)
        self.pages = pages

    def pack(self, kept: Sequence[int]) -> None:
        """Move page `kept[i]` to i, for ascending numbers, and drop the others."""
        for side in self._sides():
            for first in range(0, len(kept), _MOVED_AT_ONCE):
                # NOTE: a page never moves up, so none is overwritten before it has moved.
                moved = kept[first : first + _MOVED_AT_ONCE]
                side[first : first + len(moved)] = side[list(moved)]
        self.resize(len(kept))

    def prepare(self, work: Reservation, fresh: torch.Tensor) -> None:
        """Clear fresh pages and copy into them.

        Args:
            fresh: `work.fresh` on the device.

        Attention may read past the end of a text, where it gives no weight; but no weight
        times NaN is NaN, and a text that went wrong must not spoil the next one.
        """
        if not work.fresh:
            return
        for side in self._sides():
            side.index_fill_(0, fresh, 0)
            for copy in work.copies:
                side[copy.target, : copy.tokens] = side[copy.source, : copy.tokens]

    def write(
        self, layer: int, slots: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> None:
        """Store keys and values [tokens, heads, head size].

        Args:
            slots: page times tokens a page, plus the place in the page.
        """
        store = self._layers[layer]
        if store is None:
            store = self._layers[layer] = _Layer(self._new(keys), self._new(values))
        store.keys.flatten(0, 1).index_copy_(0, slots, keys)
        store.values.flatten(0, 1).index_copy_(0, slots, values)

    def read(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values [pages, page, heads, head size] of a layer that was written."""
        store = self._layers[layer]
        assert store is not None, "a layer is read only after it was written"
        return store.keys, store.values

    def _new(self, side: torch.Tensor) -> torch.Tensor:
        return side.new_zeros((self.pages, self._page, *side.shape[1:]))

    def _sides(self) -> list[torch.Tensor]:
        return [
            side
            for layer in self._layers
            if layer is not None
            for side in (layer.keys, layer.values)
        ]


def _resized(side: torch.Tensor, pages: int) -> torch.Tensor:
    resized = side.new_zeros((pages, *side.shape[1:]))
    held = min(pages, side.shape[0])
    resized[:held] = side[:held]
    return resized
