from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

RUN = "from edge_sdk.cli.main import main; raise SystemExit(main())"
ROOT = Path(__file__).parents[3]

ROOM = '''
"""The whole room."""
import asyncio
import sys
import time
from typing import Annotated

import typer

from edge_sdk.errors import InvalidRequest, SessionLost

print("room was imported", file=sys.stderr)


def greet(name: str, times: Annotated[int, typer.Option(help="How [often].")] = 1) -> None:
    """Greet a person
    by name.

    More about greeting.
    """
    for _ in range(times):
        print(f"hello {name}")


def fail() -> None:
    """Fail."""
    raise SessionLost("the session is gone;\\n\\x1b[31mopen it again")


def refuse() -> None:
    raise InvalidRequest("temperature -1 is below 0", field="temperature")


def wait() -> None:
    """Wait."""
    print("ready", flush=True)
    time.sleep(60)


def tidy() -> None:
    """Wait for the event loop, and tidy."""

    async def work() -> None:
        try:
            print("ready", flush=True)
            await asyncio.sleep(60)
        finally:
            print("tidied", flush=True)

    asyncio.run(work())


def late() -> None:
    """Import late."""
    import package_that_nobody_has


def broken() -> None:
    """A defect."""
    raise ZeroDivisionError("a defect")


many = typer.Typer(help="Several things.", no_args_is_help=True)
number = 3


@many.command()
def one() -> None:
    """The first."""
    print("one")


@many.command()
def two() -> None:
    """The second."""
    raise SessionLost("gone")
'''

ENTRIES = """
[cosd.commands]
greet = fake_room:greet
fail = fake_room:fail
refuse = fake_room:refuse
wait = fake_room:wait
tidy = fake_room:tidy
late = fake_room:late [heavy]
broken = fake_room:broken
many = fake_room:many
number = fake_room:number
lost = fake_room:lost
absent = fake_room.nowhere:absent
away = fake_heavy:away [nested]
"""

METADATA = """\
Metadata-Version: 2.4
Name: fake-room
Version: 1.0
Requires-Dist: numpy
Requires-Dist: package-that-nobody-has>=2; python_version >= "3" and extra == "heavy"
Requires-Dist: numpy; extra == "heavy"
Requires-Dist: fake-room[heavy]; extra == "nested"
Provides-Extra: heavy
Provides-Extra: nested
"""

HEAVY = '''
import package_that_nobody_has


def away() -> None:
    """Go away."""
'''


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that looks like an installed distribution with commands."""
    folder = tmp_path_factory.mktemp("site")
    info = folder / "fake_room-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(METADATA)
    (info / "entry_points.txt").write_text(ENTRIES)
    (folder / "fake_room.py").write_text(dedent(ROOM))
    (folder / "fake_heavy.py").write_text(dedent(HEAVY))
    return folder


def command(*arguments: str, code: str = RUN) -> list[str]:
    return [sys.executable, "-c", code, *arguments]


def environment(room: Path) -> dict[str, str]:
    path = os.pathsep.join([str(room), str(ROOT)])
    return {**os.environ, "PYTHONPATH": path, "COLUMNS": "200", "NO_COLOR": "1"}


def cosd(room: Path, *arguments: str, code: str = RUN) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments, code=code),
        env=environment(room),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def line_of(output: str, name: str) -> str:
    return next(line for line in output.splitlines() if f" {name} " in line)


def test_help_lists_commands_without_importing_them(room: Path) -> None:
    result = cosd(room, "--help")
    assert result.returncode == 0
    assert result.stderr == ""
    assert "Greet a person by name." in line_of(result.stdout, "greet")
    assert "More about" not in result.stdout
    assert "Several things." in line_of(result.stdout, "many")
    assert "The whole room." in line_of(result.stdout, "refuse")


def test_help_is_quick(room: Path) -> None:
    """Under 1 s of processor time: elapsed time says nothing on a busy machine."""
    cosd(room, "--help")
    times = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        cosd(room, "--help")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    assert min(times) < 1.0


@pytest.mark.parametrize(("name", "extra"), [("late", "heavy"), ("away", "nested")])
def test_help_names_the_missing_extra(room: Path, name: str, extra: str) -> None:
    result = cosd(room, "--help")
    assert f"needs pip install fake-room[{extra}]" in line_of(result.stdout, name)
    assert "needs" not in line_of(result.stdout, "greet")


def test_no_arguments_shows_help(room: Path) -> None:
    result = cosd(room)
    assert result.returncode == 2
    assert "greet" in result.stdout + result.stderr


def test_a_function_runs(room: Path) -> None:
    result = cosd(room, "greet", "Ada", "--times", "2")
    assert (result.returncode, result.stdout) == (0, "hello Ada\nhello Ada\n")


def test_help_of_a_command(room: Path) -> None:
    result = cosd(room, "greet", "-h")
    assert result.returncode == 0
    assert "cosd greet" in result.stdout
    assert "More about greeting." in result.stdout
    assert "How [often]." in result.stdout


def test_a_typer_runs(room: Path) -> None:
    assert cosd(room, "many", "one").stdout == "one\n"
    failed = cosd(room, "many", "two")
    assert failed.returncode == 1
    assert failed.stderr.splitlines()[-1] == "error: gone (session_lost)"


def test_an_error_is_one_line(room: Path) -> None:
    result = cosd(room, "fail")
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        "room was imported",
        "error: the session is gone; [31mopen it again (session_lost)",
    ]


def test_an_invalid_argument_is_one_line(room: Path) -> None:
    result = cosd(room, "refuse")
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == "error: temperature -1 is below 0 (invalid_request)"


@pytest.mark.parametrize(
    "arguments", [["greet"], ["greet", "Ada", "--times", "many"], ["greet", "Ada", "--loud"]]
)
def test_wrong_usage_exits_2(room: Path, arguments: list[str]) -> None:
    result = cosd(room, *arguments)
    assert result.returncode == 2
    assert "Usage: cosd greet" in result.stderr
    assert "Traceback" not in result.stderr


def test_unknown_command_suggests_one(room: Path) -> None:
    result = cosd(room, "gret")
    assert result.returncode == 2
    assert "Did you mean 'greet'" in result.stderr


@pytest.mark.parametrize(("name", "extra"), [("late", "heavy"), ("away", "nested")])
def test_a_missing_extra_is_named_when_run(room: Path, name: str, extra: str) -> None:
    result = cosd(room, name)
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1] == (
        f"error: cosd {name} needs packages that are not installed (package-that-nobody-has); "
        f"install them with: pip install 'fake-room[{extra}]'"
    )


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("absent", "fake_room"),
        ("lost", "no attribute 'lost'"),
        ("number", "neither a function nor a typer"),
    ],
)
def test_an_unusable_entry_is_explained(room: Path, name: str, reason: str) -> None:
    result = cosd(room, name)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert f"error: cosd {name} cannot be loaded" in result.stderr
    assert reason in result.stderr


def test_a_defect_keeps_its_traceback(room: Path) -> None:
    result = cosd(room, "broken")
    assert result.returncode == 1
    assert "ZeroDivisionError: a defect" in result.stderr


def signalled(room: Path, name: str, number: signal.Signals) -> tuple[int, str, str]:
    """Exit code and the rest of stdout and stderr of a command that is sent a signal once it
    says that it is ready."""
    with subprocess.Popen(
        command(name),
        env=environment(room),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        output, errors = process.communicate(timeout=30)
    return process.returncode, output, errors


def test_interruption_exits_130(room: Path) -> None:
    code, _, errors = signalled(room, "wait", signal.SIGINT)
    assert code == 130
    assert errors.splitlines()[-1] == "interrupted"
    assert "Traceback" not in errors


def test_sigterm_cleans_up_and_exits_143(room: Path) -> None:
    code, rest, errors = signalled(room, "tidy", signal.SIGTERM)
    assert code == 143
    assert rest == "tidied\n"
    assert errors.splitlines() == ["room was imported", "terminated"]


@pytest.mark.parametrize("package", ["typer", "rich"])
def test_without_the_extra_one_sentence(room: Path, package: str) -> None:
    result = cosd(room, "--help", code=f"import sys; sys.modules[{package!r}] = None; {RUN}")
    assert result.returncode == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert "pip install 'edge-cosd[cli]'" in line


def test_version(room: Path) -> None:
    result = cosd(room, "--version")
    assert result.returncode == 0
    assert result.stdout.startswith("cosd ")
