"""The names of the package, which are imported when they are first asked for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import edge_sdk

ROOT = Path(__file__).parents[2]


def modules_after(code: str) -> set[str]:
    script = f"import json, sys; {code}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return set(json.loads(done.stdout))


def test_every_name_is_there() -> None:
    assert sorted(edge_sdk._MODULES) == edge_sdk.__all__
    assert set(edge_sdk.__all__) <= set(dir(edge_sdk))
    for name in edge_sdk.__all__:
        assert getattr(edge_sdk, name).__name__ == name


def test_an_unknown_name() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        edge_sdk.Nothing  # type: ignore[attr-defined]  # noqa: B018


def test_the_bare_import_loads_nothing_else() -> None:
    loaded = modules_after("import edge_sdk")
    assert {name for name in loaded if name.startswith("edge_sdk.")} == set()
    assert loaded & {"httpx", "numpy", "onnxruntime", "tokenizers"} == set()


def test_all_names_pull_nothing_heavy() -> None:
    loaded = modules_after("from edge_sdk import *")
    assert "onnxruntime" in loaded
    assert loaded & {"torch", "transformers", "pydantic", "fastapi", "typer"} == set()


def test_every_error_is_there() -> None:
    from edge_sdk import errors

    classes = {name for name in errors.__all__ if name != "error_for_code"}
    assert classes <= set(edge_sdk.__all__)
    assert {cls.__name__ for cls in errors._BY_CODE.values()} == classes


def test_every_method_is_there() -> None:
    from edge_sdk.decoding.registry import METHODS

    assert {cls.__name__ for cls in METHODS.values()} <= set(edge_sdk.__all__)


def test_the_package_is_typed() -> None:
    assert (ROOT / "edge_sdk" / "py.typed").is_file()


def test_the_client_does_not_load_onnxruntime() -> None:
    loaded = modules_after("from edge_sdk import EdgeClient, EdgeClientSync")
    # httpx loads rich for its own command where it is installed.
    assert loaded & {"onnxruntime", "tokenizers", "torch", "typer"} == set()
