"""A decoder graph in an onnxruntime session, with the cache of one text."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from edge_sdk.draft.onnx_cache import cache_for
from edge_sdk.draft.onnx_graph import DecoderGraph, Feed
from edge_sdk.draft.onnx_session import run_failures
from edge_sdk.errors import ModelError

log = logging.getLogger(__name__)

_MOST_ROWS = 256  # of a prefill pass, so that attention scores stay small
_LOGITS_BYTES = 32 << 20  # of a prefill pass over a graph that computes all rows of logits


class Decoder:
    """Computes logits for ids that follow those in its cache.

    Buffers and bindings are kept from pass to pass; a pass of one token writes four numbers
    and runs. `cancel` is safe from any thread, everything else from one at a time.

    Args:
        session: a decoder graph.
        graph: its inputs and outputs.
        width: V_D.
        context: most tokens the cache will hold.
    """

    def __init__(
        self,
        session: onnxruntime.InferenceSession,
        graph: DecoderGraph,
        *,
        width: int,
        context: int,
    ) -> None:
        self._session: onnxruntime.InferenceSession | None = session
        self._graph = graph
        self._binding = session.io_binding()
        self._cache = cache_for(graph, context=context)
        self._width = width
        row_bytes = width * np.dtype(graph.logits_dtype).itemsize
        rows = _LOGITS_BYTES // row_bytes if graph.every_row else _MOST_ROWS
        self.most_rows = max(1, min(rows, _MOST_ROWS))
        self._arrays: dict[str, NDArray[np.integer]] = {}  # what the binding points into
        self._logits: NDArray[np.floating] | None = None
        self._shrinks = False
        self._running: onnxruntime.RunOptions | None = None
        self._lock = threading.Lock()

    @property
    def length(self) -> int:
        """Tokens in the cache."""
        return self._cache.length

    def keep(self, length: int) -> None:
        """Drop tokens from the end; no more than `length` stay."""
        self._cache.keep(length)

    def try_shrinking(self) -> None:
        """Find out whether onnxruntime can let go of memory after a pass; it can where it was
        built with an arena. Before the first token, and leaves none."""
        self._shrinks = True
        try:
            self.extend([0], shrink=True)
        except ModelError as error:
            self._shrinks = False
            log.info("the memory of long passes is kept: %s", error)
        self.keep(0)

    def extend(self, ids: Sequence[int], *, shrink: bool = False) -> NDArray[np.float32]:
        """Compute the next ids in one pass; logits [V_D] after the last of them.

        Args:
            ids: 1 to `most_rows` ids.
            shrink: let go of the memory that onnxruntime would keep for the next pass, which
                after a long one is much more than a short one needs.

        Raises:
            ModelError: closed, cancelled, logits that are not numbers, or onnxruntime failed.
                The cache holds what it held before.
        """
        if self._session is None:
            raise ModelError("the draft model is closed; open it again")
        start = self._cache.length
        end = start + len(ids)
        with run_failures(f"a draft pass over tokens {start} to {end - 1}"):
            self._feed(ids, start)
            self._cache.bind(self._binding, len(ids))
            logits = self._bind_logits(len(ids) if self._graph.every_row else 1)
            self._run(self._session, self._binding, shrink=shrink and self._shrinks)
        row: NDArray[np.float32] = logits[0, -1].astype(np.float32)
        if not np.isfinite(row.max()):
            raise ModelError(
                f"the draft's logits after {end} tokens are not numbers (NaN or infinite); the "
                "weights are damaged or overflow in their type, so export the model again"
            )
        self._cache.advance(len(ids))
        return row

    def cancel(self) -> None:
        """Stop the pass that is running, if one is; safe from any thread."""
        with self._lock:
            if self._running is not None:
                self._running.terminate = True

    def close(self) -> None:
        """Free session and cache. Idempotent."""
        self._session = None
        self._binding = None
        self._cache.free()
        self._arrays = {}
        self._logits = None

    def _feed(self, ids: Sequence[int], start: int) -> None:
        graph, end = self._graph, start + len(ids)
        self._array(graph.ids, (1, len(ids)))[0] = ids
        if graph.mask is not None:
            self._array(graph.mask, (1, end))[0] = 1
        if graph.positions is not None:
            self._array(graph.positions, (1, len(ids)))[0] = range(start, end)
        if graph.lengths is not None:
            # GroupQueryAttention counts from the last token: total length less one.
            self._array(graph.lengths.last, (1,))[0] = end - 1
            self._array(graph.lengths.total, ())[()] = end

    def _array(self, feed: Feed, shape: tuple[int, ...]) -> NDArray[np.integer]:
        array = self._arrays.get(feed.name)
        if array is None or array.shape != shape:
            array = np.empty(shape, feed.dtype)
            self._binding.bind_input(
                feed.name, "cpu", 0, feed.dtype, list(shape), array.ctypes.data
            )
            self._arrays[feed.name] = array
        return array

    def _bind_logits(self, rows: int) -> NDArray[np.floating]:
        if self._logits is None or self._logits.shape[1] != rows:
            self._logits = np.empty((1, rows, self._width), self._graph.logits_dtype)
            self._binding.bind_output(
                self._graph.logits,
                "cpu",
                0,
                self._graph.logits_dtype,
                self._logits.shape,
                self._logits.ctypes.data,
            )
        return self._logits

    def _run(
        self,
        session: onnxruntime.InferenceSession,
        binding: onnxruntime.IOBinding,
        *,
        shrink: bool = False,
    ) -> None:
        options = onnxruntime.RunOptions()
        if shrink:
            options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        with self._lock:
            self._running = options
        try:
            session.run_with_iobinding(binding, options)
        finally:
            with self._lock:
                self._running = None
