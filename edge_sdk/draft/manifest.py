"""`manifest.json` of an exported draft folder."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Self

from edge_sdk.chat import ROLES
from edge_sdk.draft.fields import Fields
from edge_sdk.draft.pruned_head import PrunedHead
from edge_sdk.errors import ManifestMismatch, ModelFolderInvalid, OutOfSpace, PreparationError
from edge_sdk.vocab.vocabulary import TokenRole

MANIFEST_NAME = "manifest.json"
MANIFEST_VERSION = 1
MAX_MANIFEST_BYTES = 1 << 20
WEIGHT_BITS = (4, 8, 16, 32)
MAX_CONTEXT = 1 << 24  # tokens; the longest in use is 10 million
MAX_VOCABULARY = 1 << 21  # rows of logits; the largest vocabulary in use has 262,208


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file of the folder: size in bytes and SHA-256 (hex)."""

    bytes: int
    sha256: str

    @classmethod
    def of(cls, path: Path) -> Self:
        """Measure a file."""
        return cls(path.stat().st_size, file_sha256(path))


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """How the draft was taught to read a chat, measured from its template at export.

    A chat is `start`, then per turn `prefix[role] + content + suffix[role]`, then
    `generation`. A chat that opens with a system message begins with `start_with_system`
    instead: some templates put a system message of their own before the others. Special
    tokens are spelled out, the beginning token included, so `prefix_ids` are not added.
    A format without the role `system` is of a template that has none. It may differ from
    the template in rare corners; that costs acceptance, never correctness.
    """

    start: str
    start_with_system: str
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
        prefix_ids: ids that begin every plain text (beginning-of-text token), may be empty.
        chat: chat format, None for a model without one.
        files: every other file of the folder.
        backend: what made the graph, e.g. `optimum`.
        versions: versions of the packages that made it.
        pruned: the common vocabulary that the head is for; None: the head is for all ids.
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
    pruned: PrunedHead | None = None

    def write(self, folder: Path) -> None:
        """Write `manifest.json` (atomically).

        Raises:
            PreparationError: the file could not be written (`OutOfSpace`: the disk is full).
        """
        partial = folder / f"{MANIFEST_NAME}.partial-{os.getpid()}"
        text = json.dumps(self.to_json(), indent=2, ensure_ascii=False) + "\n"
        try:
            with partial.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(folder / MANIFEST_NAME)
        except OSError as error:
            partial.unlink(missing_ok=True)
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            raise (OutOfSpace if full else PreparationError)(
                f"{folder / MANIFEST_NAME} could not be written ({error.strerror}); "
                "free some space or choose another folder"
            ) from error

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read and check the manifest of a folder.

        Raises:
            ModelFolderInvalid: no folder, no manifest, or one that is not valid JSON of this
                version.
        """
        path = folder / MANIFEST_NAME
        try:
            if not folder.is_dir():
                raise ModelFolderInvalid(
                    f"{folder} is a file, not a folder; give the folder that `cosd export` made"
                    if folder.exists()
                    else f"model folder {folder} does not exist; make one with "
                    f"`cosd export SOURCE {folder}`, or give the folder that `cosd prepare NAME "
                    f"--draft` prints"
                )
            # Opening a pipe would wait for a writer.
            if path.exists() and not path.is_file():
                raise ModelFolderInvalid(f"{path} is no plain file; export the model again")
            with path.open("rb") as file:
                data = file.read(MAX_MANIFEST_BYTES + 1)
        except OSError as error:
            raise ModelFolderInvalid(
                f"{folder} has no readable {MANIFEST_NAME} ({error.strerror}); it is no exported "
                f"draft folder, make one with `cosd export SOURCE OUT`"
            ) from error
        if len(data) > MAX_MANIFEST_BYTES:
            raise ModelFolderInvalid(
                f"{path} is larger than {MAX_MANIFEST_BYTES} bytes; export the model again"
            )
        try:
            document = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise ModelFolderInvalid(
                f"{path} is not valid JSON ({error}); export the model again"
            ) from error
        return cls._from_json(document, path)

    def check_files(self, folder: Path, *, digests: bool = False) -> None:
        """Check that every file is there with its size, and its digest if asked.

        Raises:
            ModelFolderInvalid: a file is missing or truncated.
            ManifestMismatch: a digest differs.
        """
        for name, entry in self.files.items():
            path = folder / name
            if not path.is_file():
                raise ModelFolderInvalid(
                    f"{path} is missing although the manifest lists it; export the model again"
                )
            size = path.stat().st_size
            if size != entry.bytes:
                raise ModelFolderInvalid(
                    f"{path} has {size} bytes, the manifest says {entry.bytes}: the file is "
                    "truncated or of another export; export the model again"
                )
        if not digests:
            return
        for name, entry in self.files.items():
            if file_sha256(folder / name) != entry.sha256:
                raise ManifestMismatch(
                    f"{folder / name} does not have the SHA-256 of the manifest: the file was "
                    "changed or belongs to another export; export the model again"
                )

    def to_json(self) -> dict[str, Any]:
        """The document of `manifest.json`: the fields by name, and `version`."""
        document: dict[str, Any] = {"version": MANIFEST_VERSION}
        document.update({f.name: getattr(self, f.name) for f in fields(self)})
        document["roles"] = {role: list(ids) for role, ids in self.roles.items()}
        document["prefix_ids"] = list(self.prefix_ids)
        document["files"] = {name: asdict(entry) for name, entry in self.files.items()}
        document["versions"] = dict(self.versions)
        document["pruned"] = None if self.pruned is None else asdict(self.pruned)
        if self.chat is not None:
            document["chat"] = {
                "start": self.chat.start,
                "start_with_system": self.chat.start_with_system,
                "prefix": dict(self.chat.prefix),
                "suffix": dict(self.chat.suffix),
                "generation": self.chat.generation,
            }
        return document

    @classmethod
    def _from_json(cls, document: object, path: Path) -> Self:
        top = Fields(document, path, "the document")
        version = top.integer("version", low=0)
        if version != MANIFEST_VERSION:
            raise ModelFolderInvalid(
                f"{path} is of manifest version {version}, this program reads version "
                f"{MANIFEST_VERSION}; export the model again or use a matching program version"
            )
        width = top.integer("logits_width", low=1, high=MAX_VOCABULARY)
        bits = top.integer("bits", low=1)
        if bits not in WEIGHT_BITS:
            raise top.wrong("bits", f"one of {', '.join(map(str, WEIGHT_BITS))}")
        files = {
            _file_name(name, path): FileEntry(entry.integer("bytes", low=0), entry.sha256("sha256"))
            for name, entry in top.objects("files").items()
        }
        graph = top.text("graph")
        if graph not in files:
            raise top.wrong("graph", "the name of a file that `files` lists")
        return cls(
            name=top.text("name"),
            source=top.text("source"),
            revision=top.text("revision", empty=True),
            architecture=top.text("architecture"),
            graph=graph,
            bits=bits,
            context=top.integer("context", low=1, high=MAX_CONTEXT),
            logits_width=width,
            vocabulary_fingerprint=top.sha256("vocabulary_fingerprint"),
            roles=_roles(top, width),
            prefix_ids=top.ids("prefix_ids", width),
            chat=_chat(top),
            files=files,
            backend=top.text("backend"),
            versions=top.texts("versions") if top.has("versions") else {},
            pruned=PrunedHead.read(top.child("pruned"), width) if top.has("pruned") else None,
        )


def file_sha256(path: Path) -> str:
    """SHA-256 (hex) of a file, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _roles(top: Fields, width: int) -> dict[str, tuple[int, ...]]:
    roles = top.child("roles")
    known = {role.value for role in TokenRole}
    for name in roles.names():
        if name not in known:
            raise top.wrong(f"roles.{name}", f"one of the roles {', '.join(sorted(known))}")
    return {name: roles.ids(name, width) for name in roles.names()}


def _chat(top: Fields) -> ChatFormat | None:
    if not top.has("chat"):
        return None
    chat = top.child("chat")
    prefix, suffix = chat.texts("prefix"), chat.texts("suffix")
    for name, table in (("prefix", prefix), ("suffix", suffix)):
        if not set(table) <= set(ROLES):
            raise chat.wrong(name, f"a table with the roles {', '.join(ROLES)}")
    if "user" not in prefix or "assistant" not in prefix or set(prefix) != set(suffix):
        raise chat.wrong("prefix", "a table of user and assistant with the roles of `suffix`")
    return ChatFormat(
        start=chat.text("start", empty=True),
        start_with_system=chat.text("start_with_system", empty=True),
        prefix=prefix,
        suffix=suffix,
        generation=chat.text("generation", empty=True),
    )


def _file_name(name: str, path: Path) -> str:
    plain = name not in ("", ".", "..", MANIFEST_NAME) and "\0" not in name
    if not plain or PurePosixPath(name).name != name or PureWindowsPath(name).name != name:
        raise ModelFolderInvalid(
            f"{path}: `files` names {name!r}, which is no plain file name; export the model again"
        )
    return name
