"""A text as it settles, stopped after the second line.

`python examples/stream.py http://127.0.0.1:8077 DRAFT`
"""

from __future__ import annotations

import asyncio
import os
import sys

from edge_sdk import CosdError, EdgeClient


async def main(server: str, draft: str) -> None:
    client = EdgeClient(server, draft=draft, api_key=os.environ.get("COSD_API_KEY"))
    stream = client.generate("Once upon a time", method="auto", max_tokens=128)
    try:
        async with client, stream:
            async for piece in stream:
                print(piece.text, end="", flush=True)
                if stream.text.count("\n") >= 2:
                    break  # the rest is not generated, and the draft is free
    except CosdError as error:
        # What came before it stands.
        print(f"\n[{error.code}] {error}", file=sys.stderr)
    print(f"\n{len(stream.tokens)} tokens by {stream.stats.method}, finish: {stream.finish}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    asyncio.run(main(*sys.argv[1:]))
