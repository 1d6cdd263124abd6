"""Which models can be exported, and how to say so."""

from __future__ import annotations

from importlib import import_module

from edge_sdk.errors import UnsupportedModel

_TASK = "text-generation-with-past"


def fused_architectures() -> tuple[str, ...]:
    """Architectures that the backend `fused` writes."""
    from export.backends.fused_shape import ARCHITECTURES

    return tuple(ARCHITECTURES)


def traced_model_types() -> tuple[str, ...]:
    """Model types of decoders that the backend `optimum` traces; none without its package."""
    try:
        import_module("optimum.exporters.onnx.model_configs")  # registers what there is
        from optimum.exporters.tasks import TasksManager
    except ImportError:
        return ()
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    )

    both = set(MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES)
    known = TasksManager.get_supported_model_type_for_task(_TASK, "onnx")
    return tuple(sorted(set(known) - both))


def supported_sentence() -> str:
    """What a person whose model is not supported can take instead."""
    parts = [f"the backend fused exports {', '.join(fused_architectures())}"]
    traced = traced_model_types()
    if traced:
        parts.append(f"the backend optimum the model types {', '.join(traced)}")
    return f"{'; '.join(parts)} (docs/export.md says what to do for another one)"


def check_supported(architecture: str, model_type: str, *, backend: str) -> None:
    """Refuse a model that no backend of the choice exports, before anything is loaded.

    Args:
        architecture: e.g. `LlamaForCausalLM`.
        model_type: e.g. `llama`.
        backend: `auto`, `fused`, `optimum`; another one is left to refuse itself.

    Raises:
        UnsupportedModel: with the list of what is supported.
    """
    fused = architecture in fused_architectures()
    if backend == "fused":
        fine = fused
    elif backend in ("auto", "optimum"):
        traced = traced_model_types()
        fine = model_type in traced or (fused and backend == "auto")
        if backend == "optimum" and not traced:
            fine = True  # its backend says what to install
    else:
        fine = True
    if not fine:
        raise UnsupportedModel(
            f"{architecture} (model type {model_type!r}) cannot be exported with the backend "
            f"{backend}: {supported_sentence()}"
        )
