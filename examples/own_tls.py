"""A server behind TLS with an authority of one's own, and a key that changes.

`python examples/own_tls.py https://127.0.0.1:8077 DRAFT authority.pem`
"""

from __future__ import annotations

import asyncio
import os
import ssl
import sys

from edge_sdk import CosdError, EdgeClient, Retry, Timeouts


async def fresh_key() -> str:
    """Asked before every request; here a token service would be called."""
    return os.environ.get("COSD_API_KEY", "")


async def main(server: str, draft: str, authority: str) -> None:
    # ca_file=authority is enough where nothing else about TLS is special.
    context = ssl.create_default_context(cafile=authority)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    async with EdgeClient(
        server,
        draft=draft,
        verify=context,
        api_key=fresh_key,
        timeouts=Timeouts(connect=3, reply=60),
        retry=Retry(attempts=8, first=0.1),
    ) as client:
        print((await client.complete("The sea is", max_tokens=32)).text)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    try:
        asyncio.run(main(*sys.argv[1:]))
    except CosdError as error:
        sys.exit(str(error))
