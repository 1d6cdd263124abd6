"""What may import what, and what the base install holds (docs/structure.md)."""

from __future__ import annotations

import ast
import importlib.metadata
import json
import os
import re
import resource
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("edge_sdk", "server_app", "export", "bench", "android_demo")
HEAVY = frozenset(
    {"fastapi", "pydantic", "pydantic_settings", "starlette", "torch", "transformers"}
)
DEVICE = frozenset(
    {"httpx", "msgpack", "numpy", "onnxruntime", "sniffio", "tokenizers", "websockets"}
)
CLI = frozenset({"rich", "typer"})
# Modules of the server's room that run on a device, with the extra `gateway` alone.
GATEWAY_PARTS = (
    "field_words.py",
    "gateway",
    "openai/interface",
    "listening.py",
    "observability/facts.py",
    "observability/logs.py",
    "own_signals.py",
)
GATEWAY = CLI | {"fastapi", "pydantic", "pydantic_core", "starlette", "uvicorn"}
EMPTY_NAMES = frozenset({"common", "helper", "helpers", "misc", "util", "utils"})


def modules(room: str) -> list[Path]:
    return sorted((ROOT / room).rglob("*.py"))


def imports(source: str) -> Iterator[tuple[int, str]]:
    """Line and top-level name of every absolute import, also of those inside functions
    and under TYPE_CHECKING."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.lineno, node.module.partition(".")[0]


def allowed(path: Path) -> frozenset[str]:
    """Top-level names that a module of the project may import; empty for any third party."""
    room = path.relative_to(ROOT).parts[0]
    if room != "edge_sdk":
        return frozenset()
    further: frozenset[str] = frozenset()
    if path.is_relative_to(ROOT / "edge_sdk" / "cli"):
        further = CLI
    return DEVICE | further | {"edge_sdk"}


def on_the_device(path: Path) -> bool:
    """A module of the server's room that a gateway runs on the device."""
    return any(path.is_relative_to(ROOT / "server_app" / part) for part in GATEWAY_PARTS)


def too_much_for_a_gateway(path: Path, source: str) -> list[str]:
    """Imports in a gateway's modules of what its extra does not bring."""
    light = tuple(
        "server_app." + part.removesuffix(".py").replace("/", ".") for part in GATEWAY_PARTS
    )
    wrong = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            top = name.partition(".")[0]
            known = top in GATEWAY | DEVICE | {"edge_sdk"} or top in sys.stdlib_module_names
            if not known and not any(name == part or name.startswith(part + ".") for part in light):
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    return wrong


def wrong_arrows(path: Path, source: str) -> list[str]:
    room = path.relative_to(ROOT).parts[0]
    permitted = allowed(path)
    wrong = []
    for line, name in imports(source):
        other_room = name in ROOMS and name not in (room, "edge_sdk")
        foreign = permitted and name not in permitted and name not in sys.stdlib_module_names
        if other_room and not (room == "bench" and name in ("server_app", "export")):
            wrong.append(f"{path.relative_to(ROOT)}:{line} imports the room {name}")
        elif foreign and not other_room:
            wrong.append(f"{path.relative_to(ROOT)}:{line} imports {name}")
    return wrong


@pytest.mark.parametrize("room", ROOMS)
def test_arrows(room: str) -> None:
    wrong = [w for path in modules(room) for w in wrong_arrows(path, path.read_text("utf-8"))]
    assert wrong == []


@pytest.mark.parametrize(
    ("path", "source", "count"),
    [
        ("edge_sdk/x.py", "def f():\n    import torch", 1),
        ("edge_sdk/x.py", "from server_app.engine import y", 1),
        ("edge_sdk/x.py", "import typer", 1),
        ("edge_sdk/cli/x.py", "import typer, rich.table", 0),
        ("edge_sdk/cli/x.py", "import fastapi", 1),
        ("edge_sdk/gateway/x.py", "import fastapi", 1),
        ("edge_sdk/x.py", "import numpy as np\nimport json\nfrom edge_sdk.errors import X", 0),
        ("server_app/x.py", "import torch\nfrom edge_sdk.wire import y", 0),
        ("server_app/x.py", "from export.gguf import y", 1),
        ("export/x.py", "import server_app", 1),
        ("bench/x.py", "from server_app.app import y", 0),
        ("android_demo/x.py", "from bench import y", 1),
    ],
)
def test_the_arrow_check_sees(path: str, source: str, count: int) -> None:
    assert len(wrong_arrows(ROOT / path, source)) == count


def test_a_gateway_needs_no_more_than_its_extra() -> None:
    paths = [path for path in modules("server_app") if on_the_device(path)]
    assert len(paths) > 10
    wrong = [w for path in paths for w in too_much_for_a_gateway(path, path.read_text("utf-8"))]
    assert wrong == []


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("import fastapi, pydantic, typer\nfrom edge_sdk.client import EdgeClient", 0),
        ("from server_app.gateway.pool import Pool\nfrom server_app.listening import bound", 0),
        ("import torch", 1),
        ("def f():\n    from server_app.host import Host", 1),
        ("from server_app.openai.served_text import ServedText", 1),
    ],
)
def test_the_gateway_check_sees(source: str, count: int) -> None:
    path = ROOT / "server_app" / "gateway" / "x.py"
    assert len(too_much_for_a_gateway(path, source)) == count


def test_no_module_is_named_after_nothing() -> None:
    named = [p for room in ROOMS for p in modules(room)]
    assert [p for p in named if EMPTY_NAMES & {p.stem, *p.relative_to(ROOT).parent.parts}] == []


def project() -> dict[str, object]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def test_every_command_is_defined() -> None:
    groups = project()["entry-points"]
    assert isinstance(groups, dict)
    lost = []
    for name, value in groups["cosd.commands"].items():
        entry = importlib.metadata.EntryPoint(name, value, "cosd.commands")
        path = ROOT / Path(*entry.module.split(".")).with_suffix(".py")
        source = path.read_text("utf-8") if path.exists() else ""
        if not re.search(rf"^(async )?(def )?{entry.attr}\b", source, re.MULTILINE):
            lost.append(f"{name}: {value}")
    assert lost == []


def test_base_dependencies_are_the_device_ones() -> None:
    dependencies = project()["dependencies"]
    assert isinstance(dependencies, list)
    assert {re.split(r"[<>=~!;\[ ]", line)[0] for line in dependencies} == DEVICE


def test_exact_versions_name_no_address_or_folder() -> None:
    files = sorted((ROOT / "constraints").glob("*.txt"))
    assert files
    for file in files:
        for line in file.read_text("utf-8").splitlines():
            assert re.fullmatch(r"#.*|[A-Za-z0-9._-]+==[0-9A-Za-z.]+", line), f"{file.name}: {line}"


IMPORT = "import json, sys; import edge_sdk; print(json.dumps(sorted(sys.modules)))"


def loaded(python: Path, folder: Path) -> set[str]:
    result = subprocess.run(
        [python, "-c", IMPORT], cwd=folder, capture_output=True, text=True, check=False, timeout=60
    )
    assert result.returncode == 0, result.stderr
    return set(json.loads(result.stdout))


def test_import_pulls_nothing_heavy() -> None:
    # httpx imports rich for its own command wherever rich is installed.
    assert loaded(Path(sys.executable), ROOT) & (HEAVY | {"typer"}) == set()


def test_import_is_quick() -> None:
    """Under 0.5 s of processor time, the interpreter's start included. Elapsed time is the same
    on an idle machine, and says nothing on one that is busy with other tests."""
    loaded(Path(sys.executable), ROOT)
    times = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        loaded(Path(sys.executable), ROOT)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    assert min(times) < 0.5


@pytest.mark.packaging
@pytest.mark.timeout(600)
def test_base_install(tmp_path: Path) -> None:
    """`pip install .` into a fresh environment: the rooms, their types, and no heavy package."""
    folder = tmp_path / "venv"
    venv.create(folder, with_pip=True)
    programs = folder / ("Scripts" if os.name == "nt" else "bin")
    python = programs / "python"
    constraints = ROOT / "constraints" / "base.txt"
    install = subprocess.run(
        [python, "-m", "pip", "install", "--no-input", "-c", constraints, ROOT],
        capture_output=True,
        text=True,
        check=False,
    )
    assert install.returncode == 0, install.stdout + install.stderr

    listing = subprocess.run(
        [python, "-m", "pip", "list", "--format=json"], capture_output=True, text=True, check=True
    )
    installed = {entry["name"].lower() for entry in json.loads(listing.stdout)}
    assert "edge-cosd" in installed
    assert installed & {name.replace("_", "-") for name in HEAVY | CLI} == set()

    names = loaded(python, tmp_path)
    assert names & (HEAVY | CLI) == set()
    site = next(folder.rglob("edge_sdk/__init__.py")).parents[1]
    for room in ROOMS[:-1]:
        copied = {p.relative_to(site) for p in (site / room).rglob("*.py")}
        assert copied == {p.relative_to(ROOT) for p in modules(room)}
    assert (site / "edge_sdk" / "py.typed").exists()

    command = subprocess.run(
        [programs / "cosd", "--help"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert command.returncode == 2
    assert command.stdout == ""
    (sentence,) = command.stderr.splitlines()
    assert "pip install 'edge-cosd[cli]'" in sentence
