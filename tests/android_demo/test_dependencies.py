"""What the app needs has builds for Android: resolved by pip as on a phone with Python 3.12.

The compiled packages come from an index of Flet's own that not every machine reaches. Wheels
without content stand for them here, with the metadata of the same versions on PyPI.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any, Final

import pytest

pytestmark = pytest.mark.packaging

ROOT: Final = Path(__file__).parents[2]
PLATFORM: Final = "android_24_arm64_v8a"
# What Flet's index offers for Android and this app uses (recipes of flet-dev/mobile-forge).
COMPILED: Final = {
    "msgpack": "1.1.2",
    "numpy": "2.4.6",
    "onnxruntime": "1.27.0",
    "PyYAML": "6.0.2",
    "tokenizers": "0.23.1",
}
LINUX: Final = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux2014_x86_64")


def report(target: Path, platforms: tuple[str, ...], *arguments: str) -> dict[str, Any] | str:
    """What pip would install for Python 3.12; what it says if it cannot."""
    path = target / "report.json"
    path.unlink(missing_ok=True)
    options = [part for platform in platforms for part in ("--platform", platform)]
    fixed = (
        "install --dry-run --quiet --ignore-installed --no-input --only-binary :all: "
        "--python-version 3.12 --implementation cp --abi cp312"
    )
    where = ["--target", str(target / "none"), "--report", str(path)]
    done = subprocess.run(
        [sys.executable, "-m", "pip", *fixed.split(), *where, *options, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return done.stderr
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel for Android of each compiled package."""
    folder = tmp_path_factory.mktemp("wheels")
    pins = [f"{name}=={version}" for name, version in COMPILED.items()]
    real = report(folder, LINUX, "--no-deps", *pins)
    assert isinstance(real, dict), real
    for entry in real["install"]:
        facts = entry["metadata"]
        name, version = facts["name"].replace("-", "_"), facts["version"]
        needs = [f"Requires-Dist: {need}" for need in facts.get("requires_dist") or ()]
        inside = f"{name}-{version}.dist-info"
        tag = f"cp312-cp312-{PLATFORM}"
        with zipfile.ZipFile(folder / f"{name}-{version}-{tag}.whl", "w") as wheel:
            header = ["Metadata-Version: 2.1", f"Name: {facts['name']}", f"Version: {version}"]
            wheel.writestr(f"{inside}/METADATA", "\n".join([*header, *needs, "", ""]))
            wheel.writestr(f"{inside}/WHEEL", f"Wheel-Version: 1.0\nTag: {tag}\n")
            wheel.writestr(f"{inside}/RECORD", "")
    return folder


def app() -> dict[str, Any]:
    document: dict[str, Any] = tomllib.loads(
        (ROOT / "android_demo" / "pyproject.toml").read_text("utf-8")
    )
    return document


def requirements() -> list[str]:
    """Of the app, with the SDK from this repository as the build takes it."""
    return [
        f"edge-cosd @ {ROOT.as_uri()}" if need == "edge-cosd" else need
        for need in app()["project"]["dependencies"]
    ]


def resolved(wheels: Path, tmp_path: Path, *needs: str) -> dict[str, str] | str:
    """Versions by name."""
    found = report(tmp_path, (PLATFORM,), "--find-links", str(wheels), *needs)
    if isinstance(found, str):
        return found
    return {
        entry["metadata"]["name"].lower().replace("_", "-"): entry["metadata"]["version"]
        for entry in found["install"]
    }


@pytest.mark.timeout(600)
def test_the_app_resolves_for_android(wheels: Path, tmp_path: Path) -> None:
    pins = ROOT / "constraints" / "phone.txt"
    found = resolved(wheels, tmp_path, *requirements(), "-c", str(pins))
    assert isinstance(found, dict), found
    for name, version in COMPILED.items():
        assert found[name.lower()] == version
    assert {"edge-cosd", "flet", "flet-secure-storage", "websockets", "httpx"} <= found.keys()
    assert "hf-xet" not in found
    assert not {"pydantic", "torch", "transformers"} & found.keys()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("need", ["orjson", "huggingface-hub>=0.34"])
def test_a_dependency_without_a_build_for_android_is_found(
    wheels: Path, tmp_path: Path, need: str
) -> None:
    """A compiled package of its own, and one that another package brings."""
    fine = resolved(wheels, tmp_path, "huggingface-hub<0.32", "numpy==2.4.6")
    assert isinstance(fine, dict), fine
    found = resolved(wheels, tmp_path, "numpy==2.4.6", need)
    assert isinstance(found, str)
    assert "No matching distribution found for" in found or "ResolutionImpossible" in found


def test_the_architectures_are_those_with_onnxruntime() -> None:
    flet = app()["tool"]["flet"]
    assert set(flet["android"]["target_arch"]) == {"arm64-v8a", "x86_64"}
    assert (ROOT / "android_demo" / flet["app"]["path"] / "main.py").is_file()
    assert (ROOT / "android_demo" / flet["dev_packages"]["edge-cosd"] / "edge_sdk").is_dir()


def test_the_pins_agree() -> None:
    pins = (ROOT / "constraints" / "phone.txt").read_text("utf-8").lower().splitlines()
    demo = (ROOT / "constraints" / "android-demo.txt").read_text("utf-8").lower().splitlines()
    for name, version in COMPILED.items():
        pin = f"{name}=={version}".lower()
        assert pin in pins
        assert pin in demo
        assert pin in map(str.lower, app()["project"]["dependencies"])
    shared = {line.partition("==")[0]: line for line in pins if "==" in line}
    for line in demo:
        name = line.partition("==")[0]
        assert shared.get(name, line) == line
