"""Where a server says that it listens."""

from __future__ import annotations

import socket

import pytest

from server_app.listening import address_of, bound, only_this_machine, places_of


def test_one_address() -> None:
    with bound("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        assert address_of(listener) == f"http://127.0.0.1:{port}"
        assert places_of(listener, "/v1") == f"http://127.0.0.1:{port}/v1"
        assert only_this_machine(listener)


@pytest.mark.parametrize(("host", "here"), [("0.0.0.0", "127.0.0.1"), ("::", "[::1]")])
def test_every_address_is_told_as_ones_that_a_client_can_use(host: str, here: str) -> None:
    if ":" in host and not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    with bound(host, 0) as listener:
        port = listener.getsockname()[1]
        assert address_of(listener) == f"http://{here}:{port}"
        said = places_of(listener, "/v1")
        assert said.startswith(f"http://{here}:{port}/v1 and on every other address")
        assert said.endswith(f" http://{socket.gethostname()}:{port}/v1")
        assert host not in said.replace(here, "")
        assert not only_this_machine(listener)
