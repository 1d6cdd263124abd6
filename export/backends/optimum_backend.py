"""Export with optimum (package optimum-onnx, transformers below 4.58)."""

from __future__ import annotations

import errno
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edge_sdk.errors import (
    CosdError,
    ModelFolderInvalid,
    OutOfSpace,
    PreparationError,
    UnsupportedModel,
)
from export.backends.base import ExportBackend
from export.onnx_graph import normalised
from export.progress import Progress

_TASK = "text-generation-with-past"
_MADE = "model.onnx"


class OptimumBackend(ExportBackend):
    """Every architecture that optimum can export for text generation, as one decoder graph."""

    name = "optimum"

    def export(
        self,
        source: Path,
        work: Path,
        *,
        context: int,
        progress: Progress,
        trust_remote_code: bool = False,
    ) -> Path:
        main_export = _exporter()
        _check_architecture(source, trust_remote_code)
        traced = work / "traced"
        with progress.stage("tracing the model to ONNX"), _quiet():
            try:
                main_export(
                    str(source),
                    output=str(traced),
                    task=_TASK,
                    framework="pt",
                    library_name="transformers",
                    dtype="fp32",
                    do_validation=False,
                    local_files_only=True,
                    trust_remote_code=trust_remote_code,
                )
            except OSError as error:
                raise _cannot_read_or_write(error, source, work) from error
            except CosdError:
                raise
            except Exception as error:  # torch and optimum raise anything
                raise PreparationError(
                    f"optimum could not export {source} ({type(error).__name__}: "
                    f"{_first_line(error)}); try another backend, or another model"
                ) from error
        return normalised(traced / _MADE, work / "decoder.onnx", progress)


def _exporter() -> Any:
    try:
        from optimum.exporters.onnx import main_export
    except ImportError as error:
        raise PreparationError(
            f"exporting needs optimum's ONNX exporter, which is not installed ({error}); "
            "run `pip install 'edge-cosd[export]'`"
        ) from error
    return main_export


def _check_architecture(source: Path, trust_remote_code: bool) -> None:
    from optimum.exporters.tasks import TasksManager
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(
            str(source), local_files_only=True, trust_remote_code=trust_remote_code
        )
    except (OSError, ValueError, KeyError) as error:
        if "model type" in str(error) or "custom code" in str(error):
            raise UnsupportedModel(
                f"{source} is of an architecture that this transformers does not know "
                f"({_first_line(error)}); choose another model"
            ) from error
        raise ModelFolderInvalid(
            f"{source} has no usable config.json ({_first_line(error)}); fetch the model again"
        ) from error
    kind = config.model_type
    names = ", ".join(config.architectures or []) or kind
    try:
        tasks = TasksManager.get_supported_tasks_for_model_type(
            kind, "onnx", library_name="transformers"
        )
    except KeyError:
        tasks = {}
    if _TASK not in tasks:
        raise UnsupportedModel(
            f"optimum cannot export {names} (model type {kind!r}) for text generation with a "
            "cache; choose a model of a decoder architecture such as Llama, Qwen or Gemma"
        )


def _cannot_read_or_write(error: OSError, source: Path, work: Path) -> CosdError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return OutOfSpace(
            f"the export could not be written to {work} ({error.strerror}); free some space"
        )
    return ModelFolderInvalid(
        f"{source} is not a readable model ({_first_line(error)}); fetch the model again"
    )


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else "no reason given"


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings of tracing, which say nothing to the person who waits."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
