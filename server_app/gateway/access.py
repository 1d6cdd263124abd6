"""Who may use a gateway."""

from __future__ import annotations

import hmac

from fastapi import Request

from edge_sdk.errors import Unauthorized


class Access:
    """With a key, whoever shows it. Without one every program of this machine, but no web page:
    a page of any site may send requests to its visitor's own machine, and its browser then
    names the page's origin.

    Args:
        key: the key, None for none.
    """

    def __init__(self, key: str | None = None) -> None:
        self._key = None if key is None else key.encode()

    def check(self, request: Request) -> None:
        """Raises:
        Unauthorized: no key or a wrong one, or a web page asks where there is no key.
        """
        if self._key is None:
            if "origin" in request.headers:
                raise Unauthorized(
                    "a web page asks, and this gateway has no key; start it with "
                    "COSD_GATEWAY_KEY set and give the page that key"
                )
            return
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(
            given.strip().encode("utf-8", "surrogateescape"), self._key
        ):
            raise Unauthorized(
                "this gateway wants its key (COSD_GATEWAY_KEY of whoever started it); send it "
                "as 'Authorization: Bearer KEY'"
            )


async def let_in(request: Request) -> None:
    """FastAPI dependency: refuses who may not use the gateway."""
    access: Access = request.app.state.access
    access.check(request)
