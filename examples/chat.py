"""A chat in the terminal; an empty line ends it, `/undo` takes the last turn back.

`python examples/chat.py http://127.0.0.1:8077 DRAFT`

The target needs a chat template; for one without, the server is started with
`cosd serve --chat-template plain`.
"""

from __future__ import annotations

import asyncio
import os
import sys

from edge_sdk import CosdError, EdgeClient, InvalidRequest, Sampling


def read_line() -> str:
    """The next line; an empty one where there are no more."""
    try:
        return input("> ")
    except EOFError:
        return ""


async def main(server: str, draft: str) -> None:
    async with (
        EdgeClient(server, draft=draft, api_key=os.environ.get("COSD_API_KEY")) as client,
        client.conversation(
            system="You answer in one sentence.",
            sampling=Sampling(temperature=0.7),
            max_tokens=64,
            stop=["\nUser:"],
        ) as chat,
    ):
        while said := (await asyncio.to_thread(read_line)).strip():
            if said == "/undo":
                try:
                    chat.undo()
                except InvalidRequest as error:
                    print(error)
                continue
            answer = chat.say(said)
            async for piece in answer:
                print(piece.text, end="", flush=True)
            stats = answer.stats
            print(f"\n({stats.reused_tokens} of {stats.prompt_tokens} prompt tokens were warm)")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        asyncio.run(main(*sys.argv[1:]))
    except CosdError as error:
        sys.exit(str(error))
