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
    OutOfSpace,
    PreparationError,
    UnsupportedModel,
)
from export.backends.base import ExportBackend
from export.backends.loading import first_line, load_config, load_model
from export.backends.parity import check_parity
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
        export = _exporter()
        config = load_config(source, trust_remote_code=trust_remote_code)
        _check_architecture(config)
        traced = work / "traced"
        with progress.stage("load the model"):
            # torch's own attention traces to fewer nodes, and leaves out caps of scores.
            capped = getattr(config, "attn_logit_softcapping", None)
            model = load_model(
                source,
                config,
                trust_remote_code=trust_remote_code,
                attention="eager" if capped else None,
            )
        model.config.use_cache = True
        with progress.stage("tracing the model to ONNX"), _quiet():
            try:
                export(model, output=str(traced), task=_TASK, do_validation=False)
            except OSError as error:
                raise _not_written(error, work) from error
            except CosdError:
                raise
            except Exception as error:  # torch and optimum raise anything
                raise PreparationError(
                    f"optimum could not export {source} ({type(error).__name__}: "
                    f"{first_line(error)}); try another backend, or another model"
                ) from error
        out = normalised(traced / _MADE, work / "decoder.onnx", progress)
        model.set_attn_implementation("eager")
        with progress.stage("compare the graph with the model"):
            check_parity(out, model, context=context, backend=self.name)
        return out


def _exporter() -> Any:
    try:
        from optimum.exporters.onnx import onnx_export_from_model
    except ImportError as error:
        raise PreparationError(
            f"exporting needs optimum's ONNX exporter, which is not installed ({error}); "
            "run `pip install 'edge-cosd[export]'`"
        ) from error
    return onnx_export_from_model


def _check_architecture(config: Any) -> None:
    from optimum.exporters.tasks import TasksManager

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


def _not_written(error: OSError, work: Path) -> CosdError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return OutOfSpace(
            f"the export could not be written to {work} ({error.strerror}); free some space"
        )
    return PreparationError(f"the export could not be written to {work} ({first_line(error)})")


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
