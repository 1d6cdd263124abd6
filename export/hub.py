"""A model from the Hugging Face hub, into the hub's own cache."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from edge_sdk.errors import DownloadFailed
from export.home import disk_errors
from export.progress import Progress

_HUB_ID = re.compile(r"(?P<id>\w[\w.-]*/\w[\w.-]*)(?:@(?P<revision>[\w./-]+))?")
_CODE = re.compile(r"[^/]+\.py")
_WANTED = re.compile(r"[^/]+\.(json|safetensors|jinja)|pytorch_model.*\.bin")


@dataclass(frozen=True, slots=True)
class HubId:
    """`owner/name`, and a branch, tag or commit."""

    id: str
    revision: str | None

    @classmethod
    def parse(cls, text: str) -> HubId | None:
        """Read `owner/name` or `owner/name@revision`; None for another text."""
        match = _HUB_ID.fullmatch(text)
        return cls(match["id"], match["revision"]) if match else None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Where a model lies, and its commit."""

    folder: Path
    commit: str


def fetch_from_hub(hub_id: HubId, *, progress: Progress, code: bool = False) -> Snapshot:
    """Download config, tokenizer and weights of a model. What is there already is not fetched.

    Args:
        hub_id: which model.
        progress: one stage that counts bytes.
        code: Python files as well.

    Raises:
        DownloadFailed: no such model, no right to it, or no connection.
        OutOfSpace: the disk is full.
    """
    from huggingface_hub import HfApi, hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    failures: tuple[type[Exception], ...] = (
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        OSError,
        *_network_errors("RequestException", "HTTPError"),
    )
    try:
        with disk_errors(Path("the hub's cache")):
            api: Any = HfApi()
            info = api.model_info(hub_id.id, revision=hub_id.revision, files_metadata=True)
            files = [
                (f.rfilename, f.size or 0)
                for f in info.siblings
                if _WANTED.fullmatch(f.rfilename) or (code and _CODE.fullmatch(f.rfilename))
            ]
            if any(name.endswith(".safetensors") for name, _ in files):
                files = [(name, size) for name, size in files if not name.endswith(".bin")]
            folder = None
            total = sum(size for _, size in files)
            with progress.stage(f"download {hub_id.id}", total) as stage:
                for name, size in files:
                    path = hf_hub_download(hub_id.id, name, revision=info.sha)
                    folder = Path(path).parent
                    stage.advance(size)
    except failures as error:
        if isinstance(error, _network_errors("ConnectionError", "Timeout", "TransportError")):
            raise DownloadFailed(
                f"{hub_id.id} could not be fetched: the Hugging Face hub cannot be reached "
                f"({_root(error)}); check the network, or download the model elsewhere and give "
                "its local folder"
            ) from error
        reason = (
            str(error).strip().splitlines()[0].rstrip(".")
            if str(error).strip()
            else type(error).__name__
        )
        raise DownloadFailed(
            f"{hub_id.id} could not be fetched from the Hugging Face hub ({reason}); check the "
            "name and the network, or download the model elsewhere and give its local folder"
        ) from error
    if folder is None:
        raise DownloadFailed(
            f"{hub_id.id} has no files of a transformers checkpoint on the hub; give another model"
        )
    return Snapshot(folder, info.sha)


def _network_errors(*names: str) -> tuple[type[Exception], ...]:
    """Errors of the libraries that versions of huggingface_hub speak HTTP with, those of these
    names that there are."""
    found: list[type[Exception]] = []
    for module in ("requests", "httpx", "httpx2"):
        try:
            library = import_module(module)
        except ImportError:
            continue
        found += [getattr(library, name) for name in names if hasattr(library, name)]
    return tuple(found)


def _root(error: BaseException) -> str:
    """What the system said, below all that the libraries wrapped it in."""
    inner: BaseException | None = error
    while inner is not None:
        error, inner = inner, inner.__cause__ or inner.__context__
    said = getattr(error, "strerror", None) or str(error).strip() or type(error).__name__
    return str(said).splitlines()[0].rstrip(".")
