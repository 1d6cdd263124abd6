"""Two replicas of a toy target on this machine, as `cosd cluster` runs them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from edge_sdk import EdgeClient, Retry, Stream
from edge_sdk.draft.toy import ToyDraft
from edge_sdk.draft.toy_table import ToyTable
from server_app.target.toy import ToyTarget

pytest.importorskip("ray", reason="`make test-cluster` has Ray")
pytestmark = pytest.mark.timeout(180)

KEY = "sesame"
PROMPT = "a toy of the sea"
PATIENT = Retry(attempts=12, first=0.05, longest=1.0)
START_SECONDS = 120
TARGET = ToyTarget.random(1)
# (method, transport) of texts that are under way when a replica is killed.
KINDS = (
    ("coupled", "http"),
    ("coupled", "auto"),
    ("hybrid", "http"),
    ("hybrid", "websocket"),
    ("autoregressive", "http"),
)


class Cluster:
    """A `cosd cluster` process."""

    def __init__(self, folder: Path, *, haproxy: bool) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = folder / "log"
        options = {
            "replicas": "2",
            "cpus-per-replica": "0.1",
            "threads": "1",
            "port": str(self.port),
            "drain-seconds": "30",
        }
        command = [sys.executable, "-m", "edge_sdk.cli.main", "cluster", "toy:1"]
        command += ["--haproxy"] if haproxy else []
        for name, value in options.items():
            command += [f"--{name}", value]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                env={
                    **os.environ,
                    "COSD_API_KEYS": KEY,
                    "OMP_NUM_THREADS": "1",
                    # Otherwise a replica that ends waits for half a minute first.
                    "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "1",
                },
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._http = httpx.Client(base_url=self.url, trust_env=False, timeout=20)

    def get(self, path: str, *, key: str | None = KEY, **headers: str) -> httpx.Response:
        if key is not None:
            headers["authorization"] = f"Bearer {key}"
        return self._http.get(path, headers=headers)

    def wait_for(self, words: str, seconds: float = START_SECONDS) -> None:
        end = time.monotonic() + seconds
        while words not in self.told():
            assert time.monotonic() < end, self.told()
            assert self.process.poll() is None, self.told()
            time.sleep(0.1)

    def told(self) -> str:
        return self.log.read_text(errors="replace")

    def replicas(self) -> dict[str, dict[str, Any]]:
        """State by name of those that answer."""
        reply = self.get("/cluster")
        return {one["replica"]: one for one in reply.json()["replicas"]}

    def replica_of(self, session_id: str) -> str:
        reply = self.get("/cluster/replica", **{"x-session-id": session_id})
        return str(reply.json()["replica"])

    def whole(self) -> None:
        """Wait until there are two, and the proxy has found both."""
        end = time.monotonic() + START_SECONDS
        reached: set[str] = set()
        while len(self.replicas()) < 2 or reached != set(self.replicas()):
            assert time.monotonic() < end, self.told()
            reached = {self.replica_of(secrets.token_hex(16)) for _ in range(16)}
            time.sleep(0.2)

    def close(self) -> None:
        self._http.close()
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
        # Ray's own processes end after ours.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)


@pytest.fixture(scope="module", params=["ray", "haproxy"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """One of each kind of proxy."""
    with tempfile.TemporaryDirectory() as folder:
        running = Cluster(Path(folder), haproxy=request.param == "haproxy")
        try:
            running.wait_for("listening on")
            running.whole()
            yield running
        finally:
            running.close()


def draft() -> ToyDraft:
    """One that often agrees with the target."""
    table = TARGET._logits.__self__  # type: ignore[attr-defined]
    other = ToyTable.random(6, len(TARGET.vocabulary))
    return ToyDraft.from_table(TARGET.vocabulary, table.blended(other, 0.7))


@contextlib.asynccontextmanager
async def connected(cluster: Cluster, transport: Any = "auto") -> AsyncIterator[EdgeClient]:
    async with EdgeClient(
        cluster.url, draft=draft(), api_key=KEY, transport=transport, cache=None, retry=PATIENT
    ) as client:
        yield client


def begun(client: EdgeClient, method: str, seed: int, tokens: int = 48) -> Stream:
    drafted = {} if method == "autoregressive" else {"gamma": 2}
    return client.generate(PROMPT, method=method, seed=seed, max_tokens=tokens, **drafted)


async def ids_of(stream: Stream) -> list[int]:
    async for _ in stream:
        pass
    return [token.id for token in stream.tokens]


@pytest.mark.parametrize("transport", ["http", "auto"])
async def test_a_session_stays_where_it_was_opened(cluster: Cluster, transport: str) -> None:
    seen: set[str] = set()
    async with connected(cluster, transport) as client:
        for seed in range(40):
            stream = begun(client, "coupled", seed, 16)
            async for _ in stream:
                session_id = stream._session.session_id
            where = cluster.replica_of(session_id)
            assert {cluster.replica_of(session_id) for _ in range(3)} == {where}
            # Another replica would not know the session, and V_C at most at the first opening.
            assert stream.stats.rounds > 1
            assert stream.stats.reopened == stream.stats.retries == 0
            seen.add(where)
            if seed > 4 and len(seen) == 2:
                break
    assert seen == set(cluster.replicas())


async def test_a_killed_replica_costs_no_token(cluster: Cluster) -> None:
    async with contextlib.AsyncExitStack() as stack:
        texts = []
        whole = []
        for method, by in KINDS:
            for seed in itertools.count():
                client = await stack.enter_async_context(connected(cluster, by))
                ids = await ids_of(begun(client, method, seed))
                # Some texts reach an end token early.
                if len(ids) > 24:
                    texts.append((method, client, seed))
                    whole.append(ids)
                if len(texts) % 3 == 0 and texts[-1:] and texts[-1][0] == method:
                    break
        streams = [begun(client, method, seed) for method, client, seed in texts]
        under_way = []
        for stream in streams:
            tokens = aiter(stream)
            while len(stream.tokens) < 8:
                await anext(tokens)
            under_way.append(tokens)
        where = [cluster.replica_of(stream._session.session_id) for stream in streams]
        states = cluster.replicas()
        gone = max(states, key=where.count)
        os.kill(states[gone]["process"], signal.SIGKILL)

        async def finished(tokens: AsyncIterator[Any]) -> None:
            async for _ in tokens:
                pass

        # Sessions of a client take turns, so the texts are read to their ends together.
        await asyncio.gather(*map(finished, under_way))

    assert where.count(gone) >= len(streams) // 2
    for (method, _, _), stream, expected, at in zip(texts, streams, whole, where, strict=True):
        assert stream.finish is not None
        assert len(stream.tokens) == len(expected)
        if method in ("coupled", "autoregressive"):
            assert [token.id for token in stream.tokens] == expected
        if at != gone:
            assert stream.stats.reopened == 0
        elif method != "autoregressive":  # which may be read to its end by then
            assert stream.stats.reopened >= 1
    cluster.whole()
    assert gone not in cluster.replicas()


async def test_every_replica_tells_its_figures_to_who_has_the_key(cluster: Cluster) -> None:
    cluster.whole()
    page = cluster.get("/cluster/metrics").text
    for name in cluster.replicas():
        assert f'cosd_ready{{replica="{name}"}} 1.0' in page
    for path in ("/cluster", "/cluster/metrics", "/cluster/replica", "/metrics"):
        assert cluster.get(path, key=None).status_code == 401
    assert cluster.get("/ready").json()["status"] == "ready"
    assert cluster.get("/health").json()["status"] == "ok"
    # The key is nowhere in what Ray logs.
    assert KEY not in cluster.told()


async def test_sigterm_drains(cluster: Cluster) -> None:
    """The last one, since the cluster is gone after it."""
    cluster.whole()
    async with connected(cluster, "http") as client:
        whole = await ids_of(begun(client, "coupled", 9))
        assert len(whole) > 24
        stream = begun(client, "coupled", 9)
        tokens = aiter(stream)
        while len(stream.tokens) < 8:
            await anext(tokens)
        cluster.process.send_signal(signal.SIGTERM)
        await until_all_drain(cluster)
        ready = cluster.get("/ready")
        assert (ready.status_code, ready.json()["status"]) == (503, "draining")
        async for _ in tokens:
            pass
        assert stream.stats.reopened == stream.stats.retries == 0
        assert [token.id for token in stream.tokens] == whole
    assert await asyncio.to_thread(cluster.process.wait, 60) == 0
    assert "Traceback" not in cluster.told()


async def until_all_drain(cluster: Cluster) -> None:
    end = time.monotonic() + 20
    while not all(state["draining"] for state in cluster.replicas().values()):
        assert time.monotonic() < end, cluster.told()
        await asyncio.sleep(0.1)
