from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from edge_sdk.errors import InvalidRequest, ModelFolderInvalid, OutOfSpace, PreparationError
from export.home import (
    check_makeable,
    check_prepared,
    disk_errors,
    locked,
    model_home,
    new_folder,
    prepared_folder,
    require_space,
)
from export.progress import NoProgress

KEY = {"source": "1"}


def build(work: Path) -> None:
    (work / "a").write_text("aaa")
    (work / "b").write_text("bb")


def leftovers(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if "partial" in path.name]


def test_the_home_is_where_the_user_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COSD_HOME", str(tmp_path))
    assert model_home() == tmp_path
    monkeypatch.delenv("COSD_HOME")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert model_home() == tmp_path / "x" / "cosd"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert model_home() == Path.home() / ".cache" / "cosd"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert model_home() == Path.home() / "Library" / "Caches" / "cosd"


def test_built_once_and_again_when_something_changed(home: Path) -> None:
    built: list[Path] = []

    def counted(work: Path) -> None:
        built.append(work)
        build(work)

    final = home / "models" / "x"
    for _ in range(3):
        assert prepared_folder(final, KEY, counted, progress=NoProgress()) == final
    assert len(built) == 1
    (final / "b").write_text("b")  # truncated
    prepared_folder(final, KEY, counted, progress=NoProgress())
    assert len(built) == 2
    assert (final / "b").read_text() == "bb"
    (final / "a").unlink()
    prepared_folder(final, KEY, counted, progress=NoProgress())
    prepared_folder(final, {"source": "2"}, counted, progress=NoProgress())
    assert len(built) == 4
    (final / "prepared.json").write_text("{")
    prepared_folder(final, {"source": "2"}, counted, progress=NoProgress())
    assert len(built) == 5
    assert leftovers(home) == []


def test_a_damaged_folder_is_reported(home: Path) -> None:
    final = prepared_folder(home / "x", KEY, build, progress=NoProgress())
    check_prepared(final)
    (final / "a").write_text("")
    with pytest.raises(ModelFolderInvalid, match="missing or truncated"):
        check_prepared(final)
    (final / "prepared.json").unlink()
    with pytest.raises(ModelFolderInvalid, match=r"prepared\.json"):
        check_prepared(final)


@pytest.mark.parametrize("failure", [ValueError("x"), KeyboardInterrupt()])
def test_a_failed_build_leaves_nothing(home: Path, failure: BaseException) -> None:
    def fails(work: Path) -> None:
        build(work)
        raise failure

    with pytest.raises(type(failure)):
        prepared_folder(home / "x", KEY, fails, progress=NoProgress())
    assert not (home / "x").exists()
    assert leftovers(home) == []


def test_a_failed_rebuild_keeps_what_was_there(home: Path) -> None:
    final = prepared_folder(home / "x", KEY, build, progress=NoProgress())

    def fails(work: Path) -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        prepared_folder(final, {"source": "2"}, fails, progress=NoProgress())
    assert (final / "a").read_text() == "aaa"


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        RuntimeError("I/O error: No space left on device (os error 28)"),
    ],
    ids=["disk", "quota", "safetensors"],
)
def test_a_full_disk_is_named_and_the_next_run_succeeds(home: Path, error: Exception) -> None:
    def full(work: Path) -> None:
        build(work)
        raise error

    with pytest.raises(OutOfSpace, match="free some space"):
        prepared_folder(home / "x", KEY, full, progress=NoProgress())
    assert leftovers(home) == []
    assert prepared_folder(home / "x", KEY, build, progress=NoProgress()).is_dir()


def test_a_full_disk_behind_another_error(tmp_path: Path) -> None:
    wrapped = RuntimeError("cannot write the graph")
    wrapped.__cause__ = OSError(errno.ENOSPC, "full")
    with pytest.raises(OutOfSpace), disk_errors(tmp_path):
        raise wrapped
    with pytest.raises(RuntimeError, match="graph"), disk_errors(tmp_path):
        raise RuntimeError("graph")


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(PreparationError, match="cannot be made"),
        new_folder(tmp_path / "file" / "x"),
    ):
        pass


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")
def test_a_place_where_no_folder_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in (Path("/proc/x"), Path("/proc/x/y"), tmp_path / ("x" * 250)):
        said = rf"the folder {place} cannot be made \(.*\); choose another folder$"
        with pytest.raises(PreparationError, match=said), new_folder(place):
            pass
        with pytest.raises(PreparationError, match=said):
            check_makeable(place)
    monkeypatch.setenv("COSD_HOME", "/proc/x")
    said = r"cannot be made \(.*\); set COSD_HOME to another folder$"
    with pytest.raises(PreparationError, match=said), locked(tmp_path / "a"):
        pass


def test_looking_at_a_place_leaves_nothing(tmp_path: Path) -> None:
    check_makeable(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []


def test_a_home_of_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSD_HOME", "~nobody-of-that-name/x")
    with pytest.raises(InvalidRequest, match="COSD_HOME is '~nobody-of-that-name/x'"):
        model_home()


def test_space_is_asked_for_beforehand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_space(tmp_path / "not" / "yet", 1, "a byte")
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=10**6))
    with pytest.raises(OutOfSpace, match=r"a model needs 5 MB in .*, only 1 MB are free"):
        require_space(tmp_path / "not" / "yet", 5 * 10**6, "a model")


KILLED = """
import os, signal, sys
from pathlib import Path
from export.home import prepared_folder, _write_marker
import export.home
from export.progress import NoProgress
stop = sys.argv[2]
def die(): os.kill(os.getpid(), signal.SIGKILL)
def build(work):
    if stop == "empty": die()
    (work / "a").write_text("aaa")
    if stop == "half": die()
    (work / "b").write_text("bb")
    if stop == "before the marker": die()
if stop == "after the marker":
    def marked(*args):
        _write_marker(*args)
        die()
    export.home._write_marker = marked
prepared_folder(Path(sys.argv[1]), {"source": "1"}, build, progress=NoProgress())
"""


@pytest.mark.parametrize("stop", ["empty", "half", "before the marker", "after the marker"])
@pytest.mark.parametrize("existing", [False, True])
def test_kill_9_never_leaves_a_folder_that_is_used(home: Path, stop: str, existing: bool) -> None:
    final = home / "models" / "x"
    if existing:
        prepared_folder(final, {"source": "0"}, build, progress=NoProgress())
    run = subprocess.run([sys.executable, "-c", KILLED, str(final), stop], check=False)
    assert run.returncode == -signal.SIGKILL
    assert len(leftovers(home)) == 1, "the test must have interrupted something"
    assert final.exists() == existing
    built: list[Path] = []

    def counted(work: Path) -> None:
        built.append(work)
        build(work)

    prepared_folder(final, KEY, counted, progress=NoProgress())
    assert len(built) == 1
    assert leftovers(home) == []
    check_prepared(final)


def test_two_at_once_build_once(home: Path) -> None:
    final = home / "x"
    built = []

    def slow(work: Path) -> None:
        built.append(os.getpid())
        time.sleep(0.3)
        build(work)

    threads = [
        threading.Thread(
            target=prepared_folder, args=(final, KEY, slow), kwargs={"progress": NoProgress()}
        )
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(built) == 1


def test_the_waiting_one_says_what_it_waits_for(home: Path, recorder: object) -> None:
    from threading import Event

    held, done = Event(), Event()

    def holder() -> None:
        with locked(home / "x"):
            held.set()
            done.wait(5)

    thread = threading.Thread(target=holder)
    thread.start()
    held.wait(5)
    threading.Timer(0.3, done.set).start()
    with locked(home / "x", progress=recorder):  # type: ignore[arg-type]
        assert done.is_set()
    thread.join()
    assert recorder.stages == [("wait for another process that prepares x", None)]  # type: ignore[attr-defined]
