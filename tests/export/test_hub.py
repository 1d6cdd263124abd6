from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from edge_sdk.errors import DownloadFailed
from export.hub import HubId, fetch_from_hub
from export.progress import NoProgress
from export.sources import resolve_source

COMMIT = "c" * 40


@pytest.fixture
def hub(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[str]]:
    """A hub on this machine with the model owner/tiny; gives the paths that were asked for."""
    from huggingface_hub import constants

    files = {path.name: path.read_bytes() for path in tiny_checkpoint.iterdir()}
    files |= {"pytorch_model.bin": b"pickle", "README.md": b"read me", "onnx/model.json": b"{}"}
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(body=True)

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def _answer(self, *, body: bool) -> None:
            path = self.path.split("?")[0]
            name = path.rpartition("/")[2]
            if path.startswith("/api/models/owner/tiny"):
                siblings = [{"rfilename": n, "size": len(d)} for n, d in files.items()]
                self._send(
                    json.dumps({"id": "owner/tiny", "sha": COMMIT, "siblings": siblings}), body
                )
            elif path.startswith(f"/owner/tiny/resolve/{COMMIT}/") and name in files:
                asked.append(name)
                self._send(files[name], body)
            else:
                self.send_response(404)
                self.send_header("X-Error-Code", "RepoNotFound")
                self.send_header("Content-Length", "0")
                self.end_headers()

        def _send(self, data: str | bytes, body: bool) -> None:
            raw = data.encode() if isinstance(data, str) else data
            self.send_response(200)
            self.send_header("Content-Length", str(len(raw)))
            self.send_header("ETag", f'"{hashlib.sha256(raw).hexdigest()}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.end_headers()
            if body:
                self.wfile.write(raw)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    monkeypatch.setattr(constants, "ENDPOINT", url)
    template = url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    # Before version 1 that module keeps a copy.
    copy = "huggingface_hub.file_download.HUGGINGFACE_CO_URL_TEMPLATE"
    monkeypatch.setattr(copy, template, raising=False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    yield asked
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_model_of_the_hub(hub: list[str], tiny_checkpoint: Path, recorder: Any) -> None:
    found = resolve_source("owner/tiny@main", progress=recorder)
    assert found.name == "tiny"
    assert found.source == "owner/tiny"
    assert found.revision == COMMIT
    weights = (tiny_checkpoint / "model.safetensors").read_bytes()
    assert (found.path / "model.safetensors").read_bytes() == weights
    assert {"pytorch_model.bin", "README.md", "model.json"}.isdisjoint(hub)
    (name, total), amount = recorder.stages[0], recorder.amounts[0]
    assert name == "download owner/tiny"
    assert total == amount > len(weights)


def test_a_model_that_the_hub_does_not_have(hub: list[str]) -> None:
    with pytest.raises(DownloadFailed, match=r"owner/none could not be fetched.*local folder"):
        resolve_source("owner/none")


def test_an_unreachable_hub(hub: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(DownloadFailed) as caught:
        fetch_from_hub(HubId("owner/tiny", None), progress=NoProgress())
    assert caught.value.message == (
        "owner/tiny could not be fetched: the Hugging Face hub cannot be reached (Connection "
        "refused); check the network, or download the model elsewhere and give its local folder"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("owner/name", HubId("owner/name", None)),
        ("Owner-1/na.me_2@refs/pr/1", HubId("Owner-1/na.me_2", "refs/pr/1")),
        ("./name", None),
        ("../name", None),
        ("/owner/name", None),
        ("name", None),
        ("owner/name@", None),
        ("a/b/c", None),
    ],
)
def test_spelling_of_hub_ids(text: str, expected: HubId | None) -> None:
    assert HubId.parse(text) == expected
