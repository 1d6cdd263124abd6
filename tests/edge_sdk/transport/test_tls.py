"""Own authorities hold for HTTP and for the WebSocket."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from harness.serving import PROMPT, Serving, connected, greedy_ids, related_draft

from edge_sdk import EdgeClient
from edge_sdk.errors import ConnectionFailed, InvalidRequest

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the keys")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Certificate of 127.0.0.1, signed by itself, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "ca.pem", folder / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(
        [*command.split(), *names, "-keyout", key, "-out", certificate],
        check=True,
        capture_output=True,
    )
    return certificate, key


@contextlib.asynccontextmanager
async def behind_tls(server: Serving, authority: tuple[Path, Path]) -> AsyncIterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority)
    tasks = set()

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError), contextlib.closing(writer):
            while data := await reader.read(65536):
                writer.write(data)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())
        there, back = await asyncio.open_connection("127.0.0.1", server.port)
        await asyncio.gather(pipe(reader, back), pipe(there, writer))

    listener = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield f"https://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    finally:
        listener.close()
        for task in tasks:
            if task is not None:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)  # type: ignore[arg-type]


@pytest.mark.parametrize("transport", ["http", "websocket"])
@pytest.mark.parametrize("way", ["ca_file", "context", "trusting"])
async def test_own_authorities(
    server: Serving, authority: tuple[Path, Path], transport: Any, way: str
) -> None:
    options: dict[str, Any] = {
        "ca_file": {"ca_file": authority[0]},
        "context": {"verify": ssl.create_default_context(cafile=str(authority[0]))},
        "trusting": {"verify": False},
    }[way]
    async with (
        behind_tls(server, authority) as url,
        connected(url, related_draft(), transport=transport, **options) as client,
    ):
        stream = client.generate(PROMPT, method="greedy", max_tokens=8)
        async for _ in stream:
            pass
    assert [token.id for token in stream.tokens] == greedy_ids(server.target, PROMPT, 8)


async def test_a_server_that_nobody_vouches_for(
    server: Serving, authority: tuple[Path, Path]
) -> None:
    async with behind_tls(server, authority) as url:
        with pytest.raises(ConnectionFailed, match="certificate"):
            async with connected(url):
                pass


def test_files_that_are_no_authorities(tmp_path: Path) -> None:
    junk = tmp_path / "junk.pem"
    junk.write_text("junk")
    for path in (junk, tmp_path / "missing.pem", tmp_path, 5, "\0"):
        with pytest.raises(InvalidRequest, match="ca_file") as caught:
            EdgeClient("https://127.0.0.1:9", ca_file=path)  # type: ignore[arg-type]
        assert caught.value.field == "ca_file"
    with pytest.raises(InvalidRequest, match="either verify or ca_file"):
        EdgeClient("https://127.0.0.1:9", ca_file=junk, verify=False)
