"""Checkpoint -> the files of a draft folder, in steps that can be taken up again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from edge_sdk.draft.manifest import FileEntry, Manifest
from edge_sdk.draft.pruned_head import PrunedHead
from edge_sdk.draft.tokenizer_text import load_tokenizer
from edge_sdk.errors import InvalidRequest, PreparationError
from edge_sdk.vocab import Alignment
from edge_sdk.vocab.tokenizer_json import TOKENIZER_NAME, read_tokenizer
from export.backend_registry import AUTO, DEFAULT_BACKEND, make_graph
from export.chat_format import read_chat_format
from export.checkpoint import Checkpoint
from export.compact_json import copy_compact
from export.home import require_space
from export.memory import require_memory
from export.onnx_graph import data_files, normalised, read_graph
from export.progress import Progress
from export.sample_text import sample_texts
from export.sources import SourceFolder
from export.stages import Stages, link_or_copy
from export.supported import check_supported, fused_architectures
from export.target_vocabulary import TargetVocabulary, aligned

GRAPH_NAME = "model.onnx"
EXPORT = "4"  # raised when the same source gives another folder
ONNX_SOURCE = "onnx"  # the manifest's `backend` for a graph that was there already
_TRACER = "optimum-onnx"
_MAKERS = ("torch", "transformers", _TRACER, "onnx", "onnxruntime")
_MADE_NAME = "made.json"
_DECODER_NAME = "decoder.onnx"


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """What a draft folder depends on besides its source.

    Attributes:
        bits: bits a weight.
        context: most tokens a text can hold; None: what the model was built for.
        backend: what makes the graph.
        trust_remote_code: Python code that comes with the model may run.
        pruned: the target whose common vocabulary alone the head is to compute; None: all ids.
    """

    bits: int = 4
    context: int | None = None
    backend: str = DEFAULT_BACKEND
    trust_remote_code: bool = False
    pruned: TargetVocabulary | None = None


def build_draft(
    source: SourceFolder,
    folder: Path,
    *,
    name: str,
    options: ExportOptions,
    stages: Stages,
    progress: Progress,
) -> Manifest:
    """Fill the empty `folder` with a draft.

    Args:
        source: the model.
        folder: to fill.
        name: what the manifest calls it.
        options: how to export.
        stages: where finished steps are kept and taken over from.
        progress: told of each stage.

    Raises:
        InvalidRequest: a context that the model cannot have.
        ModelError: the source cannot be exported.
        PreparationError: too little disk or memory, or it could not be written.
    """
    checkpoint = source.checkpoint
    context = _context(options.context, checkpoint.context)
    if checkpoint.graph is None:
        check_supported(checkpoint.architecture, checkpoint.model_type, backend=options.backend)
    with progress.stage("read the vocabulary"):
        vocabulary = read_tokenizer(checkpoint.folder, width=checkpoint.logits_width)
        prefix_ids = _prefix_ids(checkpoint.folder)
        pair = None if options.pruned is None else aligned(options.pruned, vocabulary)
    key = _weights_key(source, options, context, pair)
    if not stages.finished("weights", key):
        _require_resources(source, options, stages)
    with progress.stage("measure the chat format"):
        chat = read_chat_format(checkpoint.folder)
    maker = _weights(source, folder, options, context, pair, key, stages, progress)
    copy_compact(checkpoint.folder / TOKENIZER_NAME, folder / TOKENIZER_NAME)
    with progress.stage("write the manifest"):
        manifest = Manifest(
            name=name,
            source=source.source,
            revision=source.revision,
            architecture=checkpoint.architecture,
            graph=GRAPH_NAME,
            bits=options.bits,
            context=context,
            logits_width=checkpoint.logits_width,
            vocabulary_fingerprint=vocabulary.fingerprint,
            roles={str(role): tuple(ids) for role, ids in vocabulary.roles.items()},
            prefix_ids=prefix_ids,
            chat=chat,
            files={path.name: FileEntry.of(path) for path in sorted(folder.iterdir())},
            backend=maker,
            versions=versions(),
            pruned=_head(options, pair),
        )
        manifest.write(folder)
    return manifest


def versions() -> dict[str, str]:
    """Versions of the packages that make a draft folder."""
    found = {}
    for name in _MAKERS:
        try:
            found[name] = version(name)
        except PackageNotFoundError as error:
            if name == _TRACER:  # needs transformers below 4.58; the fused graphs do without
                continue
            raise PreparationError(
                f"exporting needs the package {name}; run `pip install edge-cosd[export]`"
            ) from error
    return found


def _weights(
    source: SourceFolder,
    folder: Path,
    options: ExportOptions,
    context: int,
    pair: Alignment | None,
    key: Mapping[str, str],
    stages: Stages,
    progress: Progress,
) -> str:
    """Put the finished graph and its weights into `folder`; the name of what made it."""

    def quantised(work: Path) -> None:
        # Imported here: the quantiser needs onnx, which a second call has no use for.
        from export.pruned_graph import prune_head
        from export.quantise import quantise_weights

        made = stages.make("graph", graph_key, traced)
        graph = made / _DECODER_NAME
        scratch = work / "scratch"
        scratch.mkdir()
        if pair is not None:
            graph = prune_head(
                graph, scratch / _DECODER_NAME, keep=pair.draft_ids, progress=progress
            )
        tokenizer = source.checkpoint.folder / TOKENIZER_NAME
        quantise_weights(
            graph,
            work / GRAPH_NAME,
            bits=options.bits,
            progress=progress,
            sample=sample_texts(tokenizer, context=context),
        )
        shutil.rmtree(scratch)
        shutil.copyfile(made / _MADE_NAME, work / _MADE_NAME)

    def traced(work: Path) -> None:
        _graph(source.checkpoint, work, options, context, progress)

    graph_key = {name: value for name, value in key.items() if name not in ("bits", "head")}
    weights = stages.make("weights", key, quantised)
    stages.drop("graph")
    graph = weights / GRAPH_NAME
    for path in (graph, *data_files(graph, read_graph(graph))):
        link_or_copy(path, folder / path.name)
    return str(json.loads((weights / _MADE_NAME).read_text(encoding="utf-8"))["backend"])


def _graph(
    checkpoint: Checkpoint, work: Path, options: ExportOptions, context: int, progress: Progress
) -> None:
    """The fp32 graph and its weights in `work`, and what made it."""
    scratch = work / "scratch"
    scratch.mkdir()
    if checkpoint.graph is not None:
        graph = normalised(checkpoint.graph, scratch / _DECODER_NAME, progress)
        maker = ONNX_SOURCE
    else:
        graph, maker = make_graph(
            options.backend,
            checkpoint.folder,
            scratch,
            context=context,
            progress=progress,
            trust_remote_code=options.trust_remote_code,
        )
    for path in data_files(graph, read_graph(graph)):
        path.rename(work / path.name)
    graph.rename(work / _DECODER_NAME)
    shutil.rmtree(scratch)
    (work / _MADE_NAME).write_text(json.dumps({"backend": maker}) + "\n", encoding="utf-8")


def _weights_key(
    source: SourceFolder, options: ExportOptions, context: int, pair: Alignment | None
) -> dict[str, str]:
    head = _head(options, pair)
    return {
        "head": "" if head is None else f"{head.pair_id} {head.draft_ids_sha256}",
        "source": source.revision,
        "settings": source.checkpoint.settings_sha256(),
        "export": EXPORT,
        "bits": str(options.bits),
        "context": str(context),
        "backend": options.backend,
        **versions(),
    }


def _head(options: ExportOptions, pair: Alignment | None) -> PrunedHead | None:
    if options.pruned is None or pair is None:
        return None
    return PrunedHead.of(pair, target=options.pruned.name)


def _require_resources(source: SourceFolder, options: ExportOptions, stages: Stages) -> None:
    """Disk and memory for all steps, in multiples of the fp32 weights that were measured on
    SmolLM2-135M: fused 1.0 and 2.2 times, optimum 1.7 and 4.7 times, and the folder itself."""
    checkpoint = source.checkpoint
    fused = checkpoint.architecture in fused_architectures()
    if checkpoint.graph is not None:
        disk, memory = 1.1, 1.1
    elif options.backend == "fused" or (options.backend == AUTO and fused):
        disk, memory = 1.1, 2.4
    else:
        disk, memory = 2.2, 5.0
    if options.pruned is not None:
        disk += 1.0
    folder = max(options.bits, 8) / 32 * 1.15
    what = f"the export of {source.name}"
    needed = int((disk + folder) * checkpoint.fp32_bytes)
    require_space(stages.folder, needed, what, instead="export to a folder on another disk")
    require_memory(int(memory * checkpoint.fp32_bytes), what)


def _context(wanted: int | None, most: int) -> int:
    if wanted is None:
        return most
    if not 1 <= wanted <= most:
        raise InvalidRequest(
            f"a context of {wanted} tokens is not possible, the model was built for 1 to {most}",
            field="context",
        )
    return wanted


def _prefix_ids(folder: Path) -> tuple[int, ...]:
    return tuple(load_tokenizer(folder / TOKENIZER_NAME).encode("").ids)
