"""Opening an onnxruntime session, and its failures in plain words."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

from edge_sdk.errors import InvalidRequest, ModelError, ModelFolderInvalid

MAX_DEFAULT_THREADS = 4
MAX_THREADS = 256  # onnxruntime starts all of them at once, and tens of thousands hang
# A pass with bound inputs and outputs fails with a bare RuntimeError.
_FAILURES: tuple[type[BaseException], ...] = (
    RuntimeError,
    *(
        kind
        for kind in vars(ort_errors).values()
        if isinstance(kind, type) and issubclass(kind, Exception)
    ),
)


def default_threads() -> int:
    """Physical cores that this process may use, at most 4 (small models gain nothing above)."""
    try:
        allowed = os.sched_getaffinity(0)
    except AttributeError:  # not on Linux
        allowed = set(range(os.cpu_count() or 1))
    cores = set()
    for cpu in allowed:
        siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        try:
            cores.add(siblings.read_text())
        except OSError:
            cores.add(str(cpu))
    return max(1, min(len(cores), MAX_DEFAULT_THREADS))


def open_session(
    graph: Path, *, threads: int, spin: bool, profile: Path | None = None
) -> onnxruntime.InferenceSession:
    """Load a graph by its path; external weights are mapped from their file.

    Args:
        graph: the graph file.
        threads: threads of one pass.
        spin: whether idle threads wait busily **inside** a pass; never between passes.
        profile: beginning of the name of a file that onnxruntime writes the time of every
            operator to; the session's `end_profiling` ends it.

    Raises:
        InvalidRequest: threads below 1 or above 256.
        ModelFolderInvalid: the graph cannot be read or run, with onnxruntime's reason.
    """
    if not 1 <= threads <= MAX_THREADS:
        raise InvalidRequest(f"threads is {threads}; use 1 to {MAX_THREADS}", field="threads")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 4
    options.add_session_config_entry("session.intra_op.allow_spinning", "1" if spin else "0")
    options.add_session_config_entry("session.force_spinning_stop", "1")
    if profile is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(profile)
    try:
        return onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
    except _FAILURES as error:
        raise ModelFolderInvalid(
            f"onnxruntime cannot load {graph} ({_sentence(error)}); export the model again, "
            f"or update onnxruntime (this is {onnxruntime.__version__})"
        ) from error


@contextmanager
def run_failures(what: str) -> Iterator[None]:
    """Turn failures of onnxruntime inside the block into `ModelError`."""
    try:
        yield
    except _FAILURES as error:
        raise ModelError(f"{what} failed in onnxruntime: {_sentence(error)}") from error


def _sentence(error: BaseException) -> str:
    return " ".join(str(error).split())[:400].rstrip(" .")
