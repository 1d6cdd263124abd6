"""A server for the phone app's browser tests, as a process that can be killed:
`python -m harness.phone_server FOLDER PORT KEY`."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from harness.draft_folder import write_draft
from harness.serving import WORDS, Serving

from edge_sdk.draft.toy_table import ToyTable
from edge_sdk.draft.toy_text import toy_byte_vocabulary
from server_app.target.toy import ToyTarget


def phone_target(seconds_per_pass: float) -> ToyTarget:
    """Texts of printable characters that do not end by themselves."""
    vocabulary = toy_byte_vocabulary(WORDS)
    bias = {i: -6.0 for i in range(256) if not 32 <= i < 127}
    bias |= dict.fromkeys(vocabulary.end_ids, -30.0)
    table = ToyTable.random(1, len(vocabulary), order=1).biased(bias)
    return ToyTarget.from_table(vocabulary, table, seconds_per_pass=seconds_per_pass)


def main(folder: Path, port: int, key: str) -> None:
    """Serve until a signal; the draft `tiny` is made in `folder` if it is not there."""
    draft = folder / "tiny"
    if not draft.exists():
        write_draft(draft, phone_target(0))
    server = Serving(lambda: phone_target(0.04), keys=[key], drafts=(("tiny", draft),))
    server.port = port
    with server:
        print(server.port, flush=True)
        signal.sigwait({signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
