"""`manifest.json` of an exported draft folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

MANIFEST_NAME = "manifest.json"
MANIFEST_VERSION = 1


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file of the folder: size in bytes and SHA-256 (hex)."""

    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """How the draft was taught to read a chat, measured from its template at export.

    A chat is `start`, then per turn `prefix[role] + content + suffix[role]`, then
    `generation`. It may differ from the template in rare corners; that costs
    acceptance, never correctness.
    """

    start: str
    prefix: Mapping[str, str]
    suffix: Mapping[str, str]
    generation: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a draft folder holds and where it came from.

    Attributes:
        name: short name of the model.
        source: hub id, folder or file that was exported.
        revision: hub revision or SHA-256 of the source file.
        architecture: Hugging Face architecture name.
        graph: file name of the ONNX graph; its external data lie beside it.
        bits: bits a weight of the linear layers (4, 8, 16 or 32).
        context: most tokens a sequence can hold.
        logits_width: V_D, padding rows included.
        vocabulary_fingerprint: `Vocabulary.fingerprint` of the tokenizer padded to that width.
        roles: token ids by `TokenRole` value.
        prefix_ids: ids that begin every text (beginning-of-text token), may be empty.
        chat: chat format, None for a model without one.
        files: every other file of the folder.
        backend: what made the graph, e.g. `optimum`.
        versions: versions of the packages that made it.
    """

    name: str
    source: str
    revision: str
    architecture: str
    graph: str
    bits: int
    context: int
    logits_width: int
    vocabulary_fingerprint: str
    roles: Mapping[str, tuple[int, ...]]
    prefix_ids: tuple[int, ...]
    chat: ChatFormat | None
    files: Mapping[str, FileEntry]
    backend: str
    versions: Mapping[str, str] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Write `manifest.json` (atomically)."""
        raise NotImplementedError

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read and check the manifest of a folder.

        Raises:
            ModelFolderInvalid: no folder, no manifest, or one that is not valid JSON of this version.
        """
        raise NotImplementedError

    def check_files(self, folder: Path, *, digests: bool = False) -> None:
        """Check that every file is there with its size, and its digest if asked.

        Raises:
            ModelFolderInvalid: a file is missing or truncated.
            ManifestMismatch: a digest differs.
        """
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        raise NotImplementedError
