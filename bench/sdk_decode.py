"""A decode step of `OnnxDraft` against a bare onnxruntime loop on the same graph, and against
itself in a longer context."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from edge_sdk.draft.manifest import Manifest
from edge_sdk.draft.onnx import OnnxDraft
from edge_sdk.draft.onnx_graph import DecoderGraph
from edge_sdk.draft.onnx_session import open_session

SHORT: Final = 64
LONG: Final = 1024
_IN_A_ROW: Final = 4  # steps of one before the next one's turn


@dataclass(frozen=True, slots=True)
class DecodeTimes:
    """Median seconds of a step.

    Attributes:
        bare: of the bare loop after 64 tokens.
        short, long: of `OnnxDraft.next_logits` after 64 and after 1,024 tokens.
        bare_ratio, long_ratio: medians of the ratios within each turn.
    """

    bare: float
    short: float
    long: float
    bare_ratio: float
    long_ratio: float


class BareLoop:
    """A step after `context` tokens with everything bound once: what onnxruntime itself takes.

    Args:
        folder: a draft folder.
        threads: of a pass, as of `OnnxDraft`.
        context: tokens before the one that is computed.
    """

    def __init__(self, folder: Path, *, threads: int, context: int) -> None:
        manifest = Manifest.read(folder)
        self._session = open_session(folder / manifest.graph, threads=threads, spin=True)
        graph = DecoderGraph.read(self._session.get_inputs(), self._session.get_outputs())
        self._binding: onnxruntime.IOBinding = self._session.io_binding()
        self._held: list[NDArray[Any]] = []
        self._input(graph.ids.name, np.full((1, 1), 11, graph.ids.dtype))
        if graph.mask is not None:
            self._input(graph.mask.name, np.ones((1, context + 1), graph.mask.dtype))
        if graph.positions is not None:
            self._input(graph.positions.name, np.full((1, 1), context, graph.positions.dtype))
        if graph.lengths is not None:
            last, total = graph.lengths.last, graph.lengths.total
            self._input(last.name, np.full((1,), context, last.dtype))
            self._input(total.name, np.array(context + 1, total.dtype))
        for slot in graph.cache:
            if graph.lengths is not None:
                buffer = np.zeros(slot.shape(2 * LONG), slot.dtype)
                self._input(slot.past, buffer)
                self._output(slot.present, buffer)
            else:
                self._input(slot.past, np.zeros(slot.shape(context), slot.dtype))
                self._output(slot.present, np.zeros(slot.shape(context + 1), slot.dtype))
        width = graph.width or manifest.logits_width
        self._output(graph.logits, np.zeros((1, 1, width), graph.logits_dtype))

    def step(self) -> None:
        self._session.run_with_iobinding(self._binding)

    def _input(self, name: str, array: NDArray[Any]) -> None:
        self._held.append(array)
        self._binding.bind_input(
            name, "cpu", 0, array.dtype.type, list(array.shape), array.ctypes.data
        )

    def _output(self, name: str, array: NDArray[Any]) -> None:
        self._held.append(array)
        self._binding.bind_output(
            name, "cpu", 0, array.dtype.type, list(array.shape), array.ctypes.data
        )


def decode_times(
    folder: Path, *, threads: int, turns: int, advance: Callable[[], None] = lambda: None
) -> DecodeTimes:
    """Time the three in turns.

    Args:
        turns: of each, four steps a turn.
        advance: called after each turn.
    """
    bare = BareLoop(folder, threads=threads, context=SHORT + _IN_A_ROW // 2)
    with (
        OnnxDraft.open(folder, threads=threads) as short,
        OnnxDraft.open(folder, threads=threads) as long,
    ):
        _fill(short, SHORT)
        _fill(long, LONG)
        seconds: dict[str, list[float]] = {"bare": [], "short": [], "long": []}
        ratios: list[tuple[float, float]] = []
        for turn in range(turns + 1):
            taken = {
                "bare": _timed(bare.step),
                "short": _steps(short, SHORT),
                "long": _steps(long, LONG),
            }
            if turn:
                for name, value in taken.items():
                    seconds[name].append(value)
                ratios.append((taken["short"] / taken["bare"], taken["long"] / taken["short"]))
                advance()
    return DecodeTimes(
        median(seconds["bare"]),
        median(seconds["short"]),
        median(seconds["long"]),
        median(first for first, _ in ratios),
        median(second for _, second in ratios),
    )


def _timed(step: Callable[[], object]) -> float:
    """Median seconds of some steps in a row, after one that warms the caches."""
    step()
    taken = []
    for _ in range(_IN_A_ROW):
        begin = time.perf_counter()
        step()
        taken.append(time.perf_counter() - begin)
    return median(taken)


def _steps(draft: OnnxDraft, context: int) -> float:
    draft.rewind(context)
    taken = []
    for number in range(_IN_A_ROW + 1):
        draft.append([11 + number])
        begin = time.perf_counter()
        draft.next_logits()
        taken.append(time.perf_counter() - begin)
    return median(taken[1:])


def _fill(draft: OnnxDraft, context: int) -> None:
    size = len(draft.vocabulary)
    draft.append([(7919 * i + 13) % size for i in range(context)])
    draft.next_logits()
