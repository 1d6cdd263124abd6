"""Checkpoint -> draft folder, and models made ready once in the model home."""

from __future__ import annotations

import shutil
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from edge_sdk.draft.manifest import MANIFEST_NAME, FileEntry, Manifest
from edge_sdk.draft.tokenizer_text import load_tokenizer
from edge_sdk.errors import InvalidRequest, PreparationError
from edge_sdk.vocab.tokenizer_json import read_tokenizer
from export.backend_registry import DEFAULT_BACKEND, check_backend, make_graph
from export.chat_format import read_chat_format
from export.home import locked, model_home, new_folder, prepared_folder, require_space
from export.packaged import PACKAGED_MODELS
from export.progress import NoProgress, Progress
from export.sources import CONVERSION, SourceFolder, packaged_folder, resolve_source, source_key

GRAPH_NAME = "model.onnx"
WEIGHT_BITS = (4, 8, 16, 32)
EXPORT = "2"  # raised when `export_draft` makes other folders from the same source
_MAKERS = ("torch", "transformers", "optimum-onnx", "onnx", "onnxruntime")


def export_draft(
    source: str | Path,
    out: Path,
    *,
    bits: int = 4,
    context: int | None = None,
    backend: str = DEFAULT_BACKEND,
    force: bool = False,
    progress: Progress | None = None,
) -> Manifest:
    """Export a causal language model to a folder that the SDK can draft with.

    `out` appears only when everything in it is written; an export that fails, is interrupted
    or killed leaves nothing that could be taken for a model.

    Args:
        source: see `export.sources.resolve_source`.
        out: folder to make.
        bits: bits a weight: 4, 8, 16 or 32.
        context: most tokens a text can hold; default and most: what the model was built for.
        backend: what makes the graph; `auto` takes the fastest that can.
        force: a draft folder at `out` gives way, when the new one is whole.
        progress: told of each stage.

    Raises:
        InvalidRequest: an argument is out of range, or `out` exists.
        ModelError: the source cannot be exported.
        PreparationError: it could not be fetched or written (`OutOfSpace`: the disk is full).
    """
    progress = progress or NoProgress()
    out = _absolute(out)
    if bits not in WEIGHT_BITS:
        raise InvalidRequest(
            f"{bits} bits a weight are not offered, only {', '.join(map(str, WEIGHT_BITS))}",
            field="bits",
        )
    check_backend(backend)
    _check_out(out, force)
    found = resolve_source(source, progress=progress)
    with locked(out, progress=progress):
        _check_out(out, force)
        with new_folder(out, replace=force) as work:
            return _export(found, work, out.name, bits, context, backend, progress)


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
    short = name if packaged is not None else f"{found.name if found else ''}-{source_key(name)}"
    suffix = "" if context is None else f"-{context}"
    folder = model_home() / "drafts" / f"{short}-{bits}bit-{backend}{suffix}"

    def build(work: Path) -> None:
        source = found or resolve_source(name, progress=progress)
        _export(source, work, short, bits, context, backend, progress)

    prepared_folder(folder, key, build, progress=progress)
    Manifest.read(folder).check_files(folder)
    return folder


def versions() -> dict[str, str]:
    """Versions of the packages that make a draft folder."""
    found = {}
    for name in _MAKERS:
        try:
            found[name] = version(name)
        except PackageNotFoundError as error:
            raise PreparationError(
                f"exporting needs the package {name}; run `pip install edge-cosd[export]`"
            ) from error
    return found


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


def _export(
    source: SourceFolder,
    work: Path,
    name: str,
    bits: int,
    context: int | None,
    backend: str,
    progress: Progress,
) -> Manifest:
    # Imported here: the quantiser needs onnx, which a second call has no use for.
    from export.quantise import quantise_weights

    checkpoint = source.checkpoint
    length = _context(context, checkpoint.context)
    weights = sum(path.stat().st_size for path in checkpoint.weights)
    require_space(work, 3 * weights, f"the export of {source.name}")
    with progress.stage("read the vocabulary"):
        vocabulary = read_tokenizer(checkpoint.folder, width=checkpoint.logits_width)
        prefix_ids = _prefix_ids(checkpoint.folder)
    with progress.stage("measure the chat format"):
        chat = read_chat_format(checkpoint.folder)
    scratch = work / "scratch"
    scratch.mkdir()
    graph, maker = make_graph(
        backend, checkpoint.folder, scratch, context=length, progress=progress
    )
    quantise_weights(graph, work / GRAPH_NAME, bits=bits, progress=progress)
    shutil.rmtree(scratch)
    shutil.copyfile(checkpoint.folder / "tokenizer.json", work / "tokenizer.json")
    with progress.stage("write the manifest"):
        manifest = Manifest(
            name=name,
            source=source.source,
            revision=source.revision,
            architecture=checkpoint.architecture,
            graph=GRAPH_NAME,
            bits=bits,
            context=length,
            logits_width=checkpoint.logits_width,
            vocabulary_fingerprint=vocabulary.fingerprint,
            roles={str(role): tuple(ids) for role, ids in vocabulary.roles.items()},
            prefix_ids=prefix_ids,
            chat=chat,
            files={path.name: FileEntry.of(path) for path in sorted(work.iterdir())},
            backend=maker,
            versions=versions(),
        )
        manifest.write(work)
    return manifest


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
    return tuple(load_tokenizer(folder / "tokenizer.json").encode("").ids)
