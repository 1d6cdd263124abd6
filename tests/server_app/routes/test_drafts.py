"""Drafts for devices: what is offered, what is not, and how a download goes on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from harness.draft_folder import write_draft
from harness.raw import KEY, Raw, in_process

from edge_sdk.errors import InvalidRequest, ModelFolderInvalid
from server_app.routes.drafts import DraftFolders
from server_app.settings import Settings

SECRET = "not for devices"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A draft with a file beside it, and one in it, that the manifest does not list."""
    draft = write_draft(tmp_path / "exports" / "tiny")
    (draft.parent / "secret").write_text(SECRET)
    (draft / "prepared.json").write_text(SECRET)
    return draft


@pytest.fixture
async def raw(folder: Path) -> AsyncIterator[Raw]:
    async with in_process(settings={"drafts": (("tiny", folder),)}) as server:
        yield server


async def get(raw: Raw, path: str, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await raw.client.get(path, headers={"authorization": f"Bearer {KEY}", **named})


async def test_a_device_can_check_every_byte(raw: Raw, folder: Path) -> None:
    listed = (await get(raw, "/v1/drafts")).json()
    card = (await get(raw, "/v1/drafts/tiny")).json()
    assert listed == {"drafts": [card]}
    manifest = json.loads((folder / "manifest.json").read_text())
    assert {f["name"] for f in card["files"]} == {"manifest.json", *manifest["files"]}
    assert card["model"] == "tiny"
    assert card["sha256"] == hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest()
    assert card["bytes"] == sum(f["bytes"] for f in card["files"])
    for file in card["files"]:
        reply = await get(raw, f"/v1/drafts/tiny/{file['name']}")
        assert reply.status_code == 200
        assert len(reply.content) == file["bytes"]
        assert hashlib.sha256(reply.content).hexdigest() == file["sha256"]
        assert reply.headers["etag"] == f'"{file["sha256"]}"'
        assert reply.headers["cache-control"].startswith("private")


async def test_a_download_goes_on_where_it_stopped(raw: Raw, folder: Path) -> None:
    path, whole = "/v1/drafts/tiny/model.onnx.data", (folder / "model.onnx.data").read_bytes()
    first = await get(raw, path, range="bytes=0-999")
    assert first.status_code == 206
    assert first.content == whole[:1000]
    tag = first.headers["etag"]
    rest = await get(raw, path, range="bytes=1000-", if_range=tag)
    assert rest.status_code == 206
    assert rest.headers["content-range"] == f"bytes 1000-{len(whole) - 1}/{len(whole)}"
    assert first.content + rest.content == whole


@pytest.mark.parametrize(
    "headers",
    [
        {"range": "bytes=1000-", "if_range": '"' + "0" * 64 + '"'},  # of another export
        {"range": "bytes=9-5"},
        {"range": "bytes=0-1,5-6"},
        {"range": "lines=1-2"},
        {"range": "bytes=-"},
    ],
)
async def test_other_ranges_get_the_whole_file(
    raw: Raw, folder: Path, headers: dict[str, str]
) -> None:
    reply = await get(raw, "/v1/drafts/tiny/tokenizer.json", **headers)
    assert reply.status_code == 200
    assert reply.content == (folder / "tokenizer.json").read_bytes()


async def test_a_range_behind_the_end(raw: Raw, folder: Path) -> None:
    size = (folder / "tokenizer.json").stat().st_size
    reply = await get(raw, "/v1/drafts/tiny/tokenizer.json", range=f"bytes={size}-")
    assert reply.status_code == 416
    assert reply.headers["content-range"] == f"bytes */{size}"
    assert f"{size} bytes" in reply.json()["error"]["message"]


@pytest.mark.parametrize("key", [None, "wrong"])
@pytest.mark.parametrize(
    "path", ["/v1/drafts", "/v1/drafts/tiny", "/v1/drafts/tiny/model.onnx", "/v1/drafts/no/no"]
)
async def test_without_a_key_nothing_is_told(raw: Raw, path: str, key: str | None) -> None:
    reply = await raw.send("GET", path, key=key)
    assert reply.status_code == 401


@pytest.mark.parametrize(
    "path",
    [
        "other",
        "tiny/prepared.json",
        "tiny/secret",
        "tiny/..%2fsecret",
        "tiny/../secret",
        "tiny/..%5csecret",
        "..%2fsecret",
        "%2e%2e/secret",
        "tiny/%2e%2e%2fsecret",
        "tiny/model.onnx%00",
        "tiny//etc/passwd",
        "tiny/%2fetc%2fpasswd",
        "tiny/" + "a" * 5000,
    ],
)
async def test_no_path_leads_anywhere_else(raw: Raw, path: str) -> None:
    request = raw.client.build_request(
        "GET", "http://cosd/", headers={"authorization": f"Bearer {KEY}"}
    )
    # Not through a URL, which would clean the path up.
    request.url = httpx.URL("http://cosd/").copy_with(raw_path=f"/v1/drafts/{path}".encode())
    reply = await raw.client.send(request)
    assert reply.status_code == 404
    assert SECRET not in reply.text
    assert len(reply.content) < 1000


async def test_nothing_is_offered_by_default() -> None:
    async with in_process() as server:
        assert (await server.send("GET", "/v1/drafts")).json() == {"drafts": []}
        assert (await server.send("GET", "/v1/drafts/tiny")).status_code == 404


async def test_a_folder_that_goes_away(raw: Raw, folder: Path) -> None:
    (folder / "model.onnx").unlink()
    assert (await get(raw, "/v1/drafts")).json() == {"drafts": []}
    for path in ("/v1/drafts/tiny", "/v1/drafts/tiny/tokenizer.json"):
        reply = await get(raw, path)
        assert reply.status_code == 503
        assert str(folder) not in reply.text


async def test_a_new_export_is_another_draft(raw: Raw, folder: Path) -> None:
    before = (await get(raw, "/v1/drafts/tiny")).json()
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "source": "elsewhere"}))
    after = (await get(raw, "/v1/drafts/tiny")).json()
    assert after["source"] == "elsewhere"
    assert after["sha256"] != before["sha256"]


def test_a_link_out_of_the_folder_is_refused(folder: Path) -> None:
    kept = folder.parent / "elsewhere"
    (folder / "tokenizer.json").rename(kept)
    (folder / "tokenizer.json").symlink_to(kept)
    with pytest.raises(ModelFolderInvalid, match="leads out of the folder"):
        DraftFolders([("tiny", folder)])


def test_what_is_no_draft_is_known_at_the_start(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(ModelFolderInvalid, match="does not exist"):
        DraftFolders([("a", tmp_path / "no")])
    with pytest.raises(InvalidRequest, match="twice"):
        DraftFolders([("tiny", folder), ("tiny", folder)])


def test_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSD_DRAFTS", " a=/x/y , b-2=z=1,")
    assert Settings().drafts == (("a", Path("/x/y")), ("b-2", Path("z=1")))
    for wrong in ("/x/y", "a=", "../a=/x", "a b=/x", "=/x", "a" * 65 + "=/x"):
        with pytest.raises(ValueError, match="is not NAME=FOLDER"):
            Settings(drafts=wrong)
