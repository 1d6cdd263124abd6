"""Without `await`, from several threads.

`python examples/sync.py http://127.0.0.1:8077 DRAFT`
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor

from edge_sdk import CosdError, EdgeClientSync


def main(server: str, draft: str) -> None:
    with EdgeClientSync(server, draft=draft, api_key=os.environ.get("COSD_API_KEY")) as client:
        for piece in client.generate("The sea is", max_tokens=32):
            print(piece.text, end="", flush=True)
        print()
        with ThreadPoolExecutor() as pool:
            prompts = ["The moon is", "The sun is"]
            for result in pool.map(lambda prompt: client.complete(prompt, max_tokens=16), prompts):
                print(result.text)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except CosdError as error:
        sys.exit(str(error))
