"""What happens beside the text: every round, and the link going down and coming back.

`python examples/callbacks.py http://127.0.0.1:8077 DRAFT`
"""

from __future__ import annotations

import asyncio
import os
import sys

from edge_sdk import CosdError, EdgeClient, Round


def on_round(done: Round) -> None:
    print(f"{done.accepted} of {done.gamma} drafted tokens kept, {done.up_bytes} bytes up")


def on_link(up: bool) -> None:
    print("the link is back" if up else "the link is down", file=sys.stderr)


async def main(server: str, draft: str) -> None:
    async with EdgeClient(
        server, draft=draft, api_key=os.environ.get("COSD_API_KEY"), on_link=on_link
    ) as client:
        result = await client.complete("The sea is", max_tokens=32, on_round=on_round)
    print(result.text)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        asyncio.run(main(*sys.argv[1:]))
    except CosdError as error:
        sys.exit(str(error))
