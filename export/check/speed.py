"""Speed and memory of a draft folder by number of threads, each in a fresh process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from edge_sdk.errors import ModelError
from export.progress import Progress

PROMPT_TOKENS: Final = 512
_ROUNDS: Final = 2  # processes for each number of threads, taking turns
_MOST_THREADS: Final = 8
_SECONDS: Final = 600.0


@dataclass(frozen=True, slots=True)
class Speed:
    """What one number of threads gives.

    Attributes:
        threads: threads of a pass.
        load_s: seconds to open the folder, until a first pass is done.
        decode_ms: milliseconds a decode step, median.
        prefill_ms: milliseconds of a prompt of `prefill_tokens` in one pass.
        prefill_tokens: how long that prompt is.
        resident_mb: resident memory of the whole process while it decodes, in 10^6 bytes.
        program_mb: of that, what the process held before the folder was opened.
    """

    threads: int
    load_s: float
    decode_ms: float
    prefill_ms: float
    prefill_tokens: int
    resident_mb: float
    program_mb: float


def thread_counts() -> tuple[int, ...]:
    """1, 2, 4, ... up to the processors that this process may use."""
    try:
        processors = len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        processors = os.cpu_count() or 1
    counts = [1]
    while 2 * counts[-1] <= min(processors, _MOST_THREADS):
        counts.append(2 * counts[-1])
    return tuple(counts)


def measure_speed(
    folder: Path, threads: Sequence[int], *, progress: Progress, steps: int = 48
) -> tuple[Speed, ...]:
    """Measure a folder in fresh processes, numbers of threads taking turns.

    Raises:
        ModelError: a process failed; the message is its own.
    """
    found: dict[int, list[dict[str, float]]] = {count: [] for count in threads}
    with progress.stage("measure speed and memory", _ROUNDS * len(threads)) as stage:
        for _ in range(_ROUNDS):
            for count in threads:
                found[count].append(_fresh(folder, count, steps))
                stage.advance()
    return tuple(_speed(runs) for runs in found.values())


def _fresh(folder: Path, threads: int, steps: int) -> dict[str, float]:
    command = [sys.executable, "-m", "export.check.fresh", str(folder)]
    options = ["--threads", threads, "--prompt", PROMPT_TOKENS, "--steps", steps]
    try:
        done = subprocess.run(
            [*command, *map(str, options)],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ModelError(
            f"measuring {folder} with {threads} threads took more than {_SECONDS:.0f} s; "
            "measure on a machine that is not so busy"
        ) from error
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        raise ModelError(f"{folder} could not be measured in a fresh process: {lines[-1]}")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def _speed(runs: Sequence[dict[str, float]]) -> Speed:
    def of(name: str) -> float:
        return float(median(run[name] for run in runs))

    return Speed(
        threads=int(of("threads")),
        load_s=of("load_s"),
        decode_ms=1e3 * of("decode_s"),
        prefill_ms=1e3 * of("prefill_s"),
        prefill_tokens=int(of("prefill_tokens")),
        resident_mb=of("resident_bytes") / 1e6,
        program_mb=of("empty_bytes") / 1e6,
    )
