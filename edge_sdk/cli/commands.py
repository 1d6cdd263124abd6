"""Which commands are installed, read from package metadata and source text only.

A room offers a command with an entry point of the group `cosd.commands`: a function or a
`typer.Typer`, with the extra it needs in brackets. Nothing of the room is imported to list
it, so `cosd --help` stays quick and works where a room's packages are missing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.machinery import PathFinder
from importlib.metadata import Distribution, EntryPoint, PackageNotFoundError, entry_points
from importlib.util import find_spec
from pathlib import Path

__all__ = ["GROUP", "InstalledCommand", "discover", "missing_packages", "summary"]

GROUP = "cosd.commands"

_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[([^\]]*)\])?")
_EXTRA_MARKER = re.compile(r"""extra\s*==\s*["']([^"']+)["']""")


@dataclass(frozen=True, slots=True)
class InstalledCommand:
    """A command of an installed distribution.

    Attributes:
        name: what follows `cosd`.
        entry: where it is.
        distribution: the name that pip knows.
        extra: the extra it needs, "" for none.
        missing: packages of that extra that are not installed.
    """

    name: str
    entry: EntryPoint
    distribution: str
    extra: str
    missing: tuple[str, ...]

    @property
    def install(self) -> str:
        """The line that installs what the command needs."""
        return f"pip install '{self.distribution}" + (f"[{self.extra}]'" if self.extra else "'")


def discover() -> list[InstalledCommand]:
    """Commands by name; where two distributions offer one name, the first found wins."""
    found: dict[str, InstalledCommand] = {}
    for entry in entry_points(group=GROUP):
        distribution = entry.dist
        extra = entry.extras[0] if entry.extras else ""
        command = InstalledCommand(
            name=entry.name,
            entry=entry,
            distribution=distribution.name if distribution else entry.module.partition(".")[0],
            extra=extra,
            missing=missing_packages(distribution, extra) if distribution and extra else (),
        )
        found.setdefault(entry.name, command)
    return [found[name] for name in sorted(found)]


def missing_packages(distribution: Distribution, extra: str) -> tuple[str, ...]:
    """Names that `distribution[extra]` requires and that are not installed, by name."""
    missing = set()
    for name in _required(distribution, extra, frozenset()):
        try:
            Distribution.from_name(name)
        except PackageNotFoundError:
            missing.add(name)
    return tuple(sorted(missing))


def _required(distribution: Distribution, extra: str, seen: frozenset[str]) -> Iterator[str]:
    for line in distribution.requires or ():
        text, _, marker = line.partition(";")
        named = _EXTRA_MARKER.search(marker)
        head = _REQUIREMENT.match(text)
        if head is None or named is None or _normal(named[1]) != _normal(extra):
            continue
        if _normal(head[1]) != _normal(distribution.name):
            yield head[1]
            continue
        for inner in (head[2] or "").split(","):
            if inner.strip() and inner not in seen:
                yield from _required(distribution, inner.strip(), seen | {extra})


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def summary(entry: EntryPoint) -> str:
    """First line of the command's docstring (or of `help=` of its Typer), else of its
    module's, read from the source text; "" where there is no source to read."""
    try:
        source = _source(entry.module)
        tree = ast.parse(source.read_bytes()) if source else None
    except (OSError, SyntaxError, ValueError):
        return ""
    if tree is None:
        return ""
    for node in tree.body:
        text = _help_of(node, entry.attr)
        if text:
            return _first_line(text)
    return _first_line(ast.get_docstring(tree) or "")


def _source(module: str) -> Path | None:
    """Source file of a module, found without importing the packages above it."""
    top, *inner = module.split(".")
    spec = find_spec(top)
    name = top
    for part in inner:
        if spec is None or spec.submodule_search_locations is None:
            return None
        name = f"{name}.{part}"
        spec = PathFinder.find_spec(name, list(spec.submodule_search_locations))
    return Path(spec.origin) if spec and spec.origin and spec.origin.endswith(".py") else None


def _help_of(node: ast.stmt, name: str) -> str | None:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
        return ast.get_docstring(node)
    if isinstance(node, ast.AnnAssign):
        targets: list[ast.expr] = [node.target]
    elif isinstance(node, ast.Assign):
        targets = node.targets
    else:
        return None
    if not any(isinstance(target, ast.Name) and target.id == name for target in targets):
        return None
    for keyword in node.value.keywords if isinstance(node.value, ast.Call) else ():
        if keyword.arg == "help" and isinstance(keyword.value, ast.Constant):
            return str(keyword.value.value)
    return None


def _first_line(text: str) -> str:
    """The first paragraph as one line."""
    return " ".join(text.strip().partition("\n\n")[0].split())
