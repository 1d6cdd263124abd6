"""Checkpoint -> draft folder, and models made ready once in the model home."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from edge_sdk.draft.manifest import MANIFEST_NAME, WEIGHT_BITS, Manifest
from edge_sdk.errors import InvalidRequest
from edge_sdk.vocab import read_tokenizer
from export.backend_registry import DEFAULT_BACKEND, check_backend
from export.draft_folder import EXPORT, ExportOptions, build_draft, versions
from export.home import check_makeable, locked, model_home, new_folder, prepared_folder
from export.packaged import PACKAGED_MODELS
from export.progress import NoProgress, Progress
from export.sources import (
    CONVERSION,
    SourceFolder,
    locate,
    packaged_folder,
    resolve_source,
    source_key,
)
from export.stages import stages_of
from export.target_vocabulary import TargetVocabulary, aligned, read_target

__all__ = ["WEIGHT_BITS", "export_draft", "prepare_draft", "prepare_target", "versions"]


def export_draft(
    source: str | Path,
    out: str | Path,
    *,
    bits: int = 4,
    context: int | None = None,
    backend: str = DEFAULT_BACKEND,
    target: str | None = None,
    prune: bool = False,
    api_key: str | None = None,
    trust_remote_code: bool = False,
    force: bool = False,
    progress: Progress | None = None,
) -> Manifest:
    """Export a causal language model to a folder that the SDK can draft with.

    `out` appears only when everything in it is written. Finished steps lie in `<out>.work`
    until then: after an interruption, kill or failure the same call goes on from them.

    Args:
        source: a Hugging Face folder, a folder that optimum exported, a GGUF file, a hub id
            (`owner/name`, `owner/name@revision`) or the name of a packaged model.
        out: folder to make.
        bits: bits a weight: 4, 8, 16 or 32.
        context: most tokens a text can hold; default and most: what the model was built for.
        backend: what makes the graph; `auto` takes the fastest that computes what the model
            computes. Not used where the source is an ONNX graph.
        target: address of a server, or a model as `source`: a draft that shares too few
            tokens with it is refused before the work starts.
        prune: the head computes the tokens that source and target share and no others, which
            gains where these are much fewer; the SDK refuses the draft for another target. Needs
            `target`.
        api_key: key of the server.
        trust_remote_code: Python code that comes with the model may run.
        force: a draft folder at `out` gives way, when the new one is whole.
        progress: told of each stage; `export.console.TerminalProgress` draws bars.

    Returns:
        the manifest of the folder, which is also in `manifest.json`.

    Raises:
        InvalidRequest: an argument is out of range, or `out` exists.
        ModelError: the source cannot be exported (`UnsupportedModel` names what can be).
        PreparationError: it could not be fetched or written, or there is too little memory
            (`OutOfSpace`: too little disk).
        VocabularyMismatch: source and target share too little.
        TransportError, Unauthorized: the server of the target cannot be talked to.
    """
    progress = progress or NoProgress()
    options = _options(bits, context, backend, trust_remote_code)
    if prune and target is None:
        raise InvalidRequest(
            "a pruned head is for one target, and none is named; give --target", field="target"
        )
    out = _absolute(Path(out))
    _check_out(out, force)
    check_makeable(out)
    locate(source)
    judge = None
    if target is not None:
        # Before the source, whose weights are read: a server may be away.
        judge = read_target(
            target, api_key=api_key, trust_remote_code=trust_remote_code, progress=progress
        )
    found = resolve_source(source, trust_remote_code=trust_remote_code, progress=progress)
    if judge is not None:
        _check_target(judge, found, progress)
        options = replace(options, pruned=judge if prune else None)
    with locked(out, progress=progress):
        _check_out(out, force)
        with stages_of(out, progress) as stages, new_folder(out, replace=force) as work:
            return build_draft(
                found, work, name=out.name, options=options, stages=stages, progress=progress
            )


def prepare_target(name: str, *, progress: Progress | None = None) -> Path:
    """Hugging Face folder of a target model; a packaged or GGUF model is converted once.

    Raises:
        ModelError: it cannot be used.
        PreparationError: it could not be fetched or written.
    """
    progress = progress or NoProgress()
    packaged = PACKAGED_MODELS.get(name)
    if packaged is not None:
        return packaged_folder(packaged, progress=progress)
    return resolve_source(name, progress=progress).path


def prepare_draft(
    name: str,
    *,
    bits: int = 4,
    context: int | None = None,
    backend: str = DEFAULT_BACKEND,
    progress: Progress | None = None,
) -> Path:
    """Draft folder of a model in the model home, exported once for these settings and the
    installed versions of the exporters.

    Raises:
        InvalidRequest, ModelError, PreparationError: as `export_draft`.
    """
    progress = progress or NoProgress()
    options = _options(bits, context, backend, False)
    packaged = PACKAGED_MODELS.get(name)
    found = None if packaged is not None else resolve_source(name, progress=progress)
    revision = packaged.sha256 if packaged is not None else found.revision if found else ""
    key = {
        "source": revision,
        "conversion": CONVERSION,
        "export": EXPORT,
        "bits": str(bits),
        "context": str(context),
        "backend": backend,
        **versions(),
    }
    if found is not None:
        key["settings"] = found.checkpoint.settings_sha256()
    short = name if packaged is not None else f"{found.name if found else ''}-{source_key(name)}"
    suffix = "" if context is None else f"-{context}"
    folder = model_home() / "drafts" / f"{short}-{bits}bit-{backend}{suffix}"

    def build(work: Path) -> None:
        source = found or resolve_source(name, progress=progress)
        with stages_of(folder, progress) as stages:
            build_draft(source, work, name=short, options=options, stages=stages, progress=progress)

    prepared_folder(folder, key, build, progress=progress)
    Manifest.read(folder).check_files(folder)
    return folder


def _options(
    bits: int, context: int | None, backend: str, trust_remote_code: bool
) -> ExportOptions:
    if bits not in WEIGHT_BITS:
        raise InvalidRequest(
            f"{bits} bits a weight are not offered, only {', '.join(map(str, WEIGHT_BITS))}",
            field="bits",
        )
    check_backend(backend)
    return ExportOptions(bits, context, backend, trust_remote_code)


def _check_target(target: TargetVocabulary, source: SourceFolder, progress: Progress) -> None:
    draft = read_tokenizer(source.path, width=source.checkpoint.logits_width)
    common = aligned(target, draft)
    progress.note(
        f"{len(common):,} tokens in common with the target {target.name}, "
        f"{common.text_tokens / len(draft.ids_by_bytes):.1%} of the draft's texts."
    )


def _absolute(out: Path) -> Path:
    try:
        return Path(out).expanduser().absolute()
    except RuntimeError as error:
        raise InvalidRequest(
            f"the home folder in {str(out)!r} is not known; give a whole path", field="out"
        ) from error


def _check_out(out: Path, force: bool) -> None:
    try:
        _check_place(out, force)
    except OSError as error:
        raise InvalidRequest(
            f"{out} cannot be looked at ({error.strerror}); choose another folder", field="out"
        ) from error


def _check_place(out: Path, force: bool) -> None:
    if not out.exists():
        return
    if not out.is_dir():
        raise InvalidRequest(f"{out} is a file; give the folder to make", field="out")
    if not any(out.iterdir()):
        out.rmdir()
        return
    if not force:
        raise InvalidRequest(
            f"{out} exists; choose another folder, or --force to replace the draft in it",
            field="out",
        )
    # --force replaces a draft, never somebody's documents.
    if not (out / MANIFEST_NAME).is_file():
        raise InvalidRequest(
            f"{out} is no draft folder (it has no {MANIFEST_NAME}), so --force does not replace "
            "it; choose another folder",
            field="out",
        )
