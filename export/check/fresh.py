"""Speed and memory of a draft folder, measured in the process that runs this program.

    python -m export.check.fresh FOLDER --threads 2

The process loads the SDK and nothing else, as on a device. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from pathlib import Path

from edge_sdk.draft.onnx import OnnxDraft
from edge_sdk.errors import CosdError

_BEGIN = 32  # tokens held before the first step that counts


def measure(folder: Path, *, threads: int, prompt: int, steps: int) -> dict[str, float]:
    """Times in seconds, memory in bytes.

    Args:
        folder: a draft folder.
        threads: threads of a pass.
        prompt: tokens of the prompt whose pass is timed.
        steps: decode steps, of which the median counts.
    """
    empty = _resident_bytes()
    begin = time.perf_counter()
    draft = OnnxDraft.open(folder, threads=threads)
    load = time.perf_counter() - begin
    with draft:
        width = len(draft.vocabulary)
        ids = [(7919 * i + 13) % width for i in range(prompt)]
        room = draft.context - 1
        steps = max(1, min(steps, room - min(_BEGIN, room // 2)))
        draft.append(ids[: min(_BEGIN, room // 2) or 1])
        draft.next_logits()
        taken = []
        for step in range(steps):
            draft.append([ids[step % len(ids)]])
            begin = time.perf_counter()
            draft.next_logits()
            taken.append(time.perf_counter() - begin)
        resident = _resident_bytes()
        passes = []
        for _ in range(2):
            draft.reset()
            draft.append(ids[:room])
            begin = time.perf_counter()
            draft.next_logits()
            passes.append(time.perf_counter() - begin)
    return {
        "threads": threads,
        "load_s": load,
        "decode_s": sorted(taken)[len(taken) // 2],
        "prefill_s": min(passes),
        "prefill_tokens": min(prompt, room),
        "empty_bytes": empty,
        "resident_bytes": resident,
    }


def _resident_bytes() -> int:
    """Resident memory of this process. Linux tells it without a package that would be resident
    itself."""
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        import psutil

        return int(psutil.Process().memory_info().rss)


def main() -> int:
    """Run the program. Status 0 done, 1 an error, which is one line on the error stream."""
    parser = argparse.ArgumentParser(prog="python -m export.check.fresh")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--steps", type=int, default=48)
    given = parser.parse_args()
    try:
        found = measure(given.folder, threads=given.threads, prompt=given.prompt, steps=given.steps)
    except CosdError as error:
        sys.stderr.write(f"{error.message}\n")
        return 1
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
