"""The app without a screen: for Termux, desktops and tests of a server.

cosd-phone server https://host:8077     # asks for the key
cosd-phone drafts
cosd-phone download smollm2
cosd-phone generate "The sea is" --method coupled --seed 7
"""

from __future__ import annotations

import argparse
import asyncio
import getpass
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cosd_app.controller import Controller
from cosd_app.keys import FileKeyStore
from cosd_app.marks import MARKS
from cosd_app.state import Problem, Span, State
from cosd_app.storage import Storage, data_folder
from edge_sdk.decoding.registry import METHODS
from edge_sdk.text.tokens import Origin

_KEY: Final = "COSD_API_KEY"
_STYLE: Final = {
    Origin.ACCEPTED: "\x1b[32m",
    Origin.SETTLED: "\x1b[1;33m",
    Origin.SERVER: "\x1b[36m",
    Origin.UNVERIFIED: "\x1b[4;35m",
}
_PLAIN: Final = "\x1b[0m"


class Printer:
    """Prints what is new in each state.

    Args:
        style: "color", "marks" or "plain".
    """

    def __init__(self, style: str) -> None:
        self._style = style
        self._span = -1
        self._last = Span("", Origin.SERVER)
        self._printed = 0
        self._percent = -1

    def __call__(self, state: State) -> None:
        if state.progress is not None:
            percent = int(100 * state.progress.share)
            if percent != self._percent:
                self._percent = percent
                told = f"\r{percent:3d} % of {state.progress.total / 1e6:.1f} MB"
                print(told, end="", file=sys.stderr, flush=True)
        self._text(state.spans)

    def end(self) -> None:
        """Close what is open."""
        if self._span >= 0:
            self._write(self._after(self._last) + "\n")
            self._span = -1
        if self._percent >= 0:
            print(file=sys.stderr)
            self._percent = -1

    def _text(self, spans: Sequence[Span]) -> None:
        for index in range(max(self._span, 0), len(spans)):
            span = spans[index]
            if index > self._span:
                before = self._after(self._last) if self._span >= 0 else ""
                self._write(before + self._before(span))
                self._span, self._printed = index, 0
            self._last = span
            self._write(span.text[self._printed :])
            self._printed = len(span.text)

    def _before(self, span: Span) -> str:
        if self._style == "color":
            return _STYLE[span.origin]
        return MARKS[span.origin].before if self._style == "marks" else ""

    def _after(self, span: Span) -> str:
        if self._style == "color":
            return _PLAIN
        return MARKS[span.origin].after if self._style == "marks" else ""

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status: 0 done, 1 an error, 130 interrupted."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(encoding="utf-8", errors="replace")
    given = _parser().parse_args(arguments)
    try:
        return asyncio.run(_run(given))
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cosd-phone",
        description="Write with a draft on this device and a server that checks it.",
    )
    parser.add_argument("--data", type=Path, help="folder of settings, key and drafts")
    commands = parser.add_subparsers(dest="command", required=True)
    server = commands.add_parser("server", help="use a server; its key is asked for")
    server.add_argument("address", help="e.g. https://host:8077")
    server.add_argument(
        "--no-key",
        action="store_true",
        help=f"the server wants none (otherwise {_KEY}, or a question)",
    )
    commands.add_parser("drafts", help="list what the server offers")
    download = commands.add_parser("download", help="fetch a draft; goes on where it stopped")
    download.add_argument("name")
    remove = commands.add_parser("remove", help="delete a draft from this device")
    remove.add_argument("name")
    generate = commands.add_parser("generate", help="write a text")
    generate.add_argument("prompt")
    generate.add_argument("--method", choices=list(METHODS))
    generate.add_argument("--temperature", type=float)
    generate.add_argument("--max-tokens", type=int)
    generate.add_argument("--seed", type=int, help="the same seed repeats a text of coupled")
    generate.add_argument("--chat", action="store_true", help="send the prompt as a chat message")
    generate.add_argument(
        "--style",
        choices=("color", "marks", "plain"),
        default="color" if sys.stdout.isatty() else "plain",
        help="how drafted, settled and other text is told apart",
    )
    return parser


async def _run(given: argparse.Namespace) -> int:
    storage = Storage(given.data or data_folder())
    printer = Printer(getattr(given, "style", "plain"))
    controller = Controller(storage, FileKeyStore(storage.key_file))
    await controller.start()
    # What the start found is told by the action itself, if it matters to it.
    controller.listen(printer)
    try:
        await _act(controller, given)
    except asyncio.CancelledError:
        await controller.stop()
        printer.end()
        raise
    finally:
        await controller.aclose()
    printer.end()
    state = controller.state
    if state.problem is not None:
        _complain(state.problem)
        return 1
    _report(given.command, state)
    return 0


async def _act(controller: Controller, given: argparse.Namespace) -> None:
    if given.command == "server":
        key = "" if given.no_key else os.environ.get(_KEY)
        if key is None and sys.stdin.isatty():
            key = await asyncio.to_thread(getpass.getpass, "Key (not shown; empty for none): ")
        await controller.set_server(given.address, key)
    elif given.command == "drafts":
        await controller.refresh()
    elif given.command == "download":
        await controller.download(given.name)
    elif given.command == "remove":
        await controller.remove(given.name)
    else:
        changes = {
            name: getattr(given, name)
            for name in ("method", "temperature", "max_tokens")
            if getattr(given, name) is not None
        }
        await controller.new_text()
        controller.choose(chat=given.chat, **changes)
        if controller.state.problem is None:
            await controller.generate(given.prompt, seed=given.seed)


def _complain(problem: Problem) -> None:
    print(f"{problem.title}. {problem.advice}", file=sys.stderr)
    if problem.detail:
        print(f"({problem.detail})", file=sys.stderr)


def _report(command: str, state: State) -> None:
    if command in ("server", "drafts"):
        for offer in state.offers:
            here = "  on this device" if offer.installed else ""
            print(f"{offer.name}  {offer.model}  {offer.bytes / 1e6:.1f} MB{here}")
        if not state.offers:
            print("the server offers no drafts (its setting drafts)")
    elif command == "generate":
        figures = state.figures
        acceptance = "-" if figures.acceptance is None else f"{100 * figures.acceptance:.0f} %"
        print(
            f"{figures.tokens} tokens, {figures.tokens_per_second:.1f} a second, acceptance "
            f"{acceptance}, {figures.up_bytes} bytes up, {figures.down_bytes} down, seed "
            f"{state.seed}",
            file=sys.stderr,
        )


if __name__ == "__main__":
    sys.exit(main())
