"""A whole text at once.

`python examples/complete.py http://127.0.0.1:8077 DRAFT`

The server's key, if it wants one, comes from COSD_API_KEY. DRAFT is the folder that
`cosd prepare smollm2-135m --draft` prints.
"""

from __future__ import annotations

import asyncio
import os
import sys

from edge_sdk import CosdError, EdgeClient, Sampling


async def main(server: str, draft: str) -> None:
    async with EdgeClient(server, draft=draft, api_key=os.environ.get("COSD_API_KEY")) as client:
        result = await client.complete(
            "The sea is", sampling=Sampling(temperature=0.7, top_p=0.95), max_tokens=64
        )
    print(result.text)
    stats = result.stats
    print(f"{stats.tokens_per_second:.1f} tokens/s, acceptance {stats.acceptance:.2f}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        asyncio.run(main(*sys.argv[1:]))
    except CosdError as error:
        sys.exit(str(error))
