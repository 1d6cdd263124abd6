"""JSON files without indentation."""

from __future__ import annotations

import json
import re
from pathlib import Path


def copy_compact(source: Path, out: Path) -> None:
    """Copy a JSON file without its indentation, which is half of a tokenizer's bytes.

    Args:
        source: a file that is known to hold JSON.
        out: where the same document goes.
    """
    document = json.loads(source.read_bytes())
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    # Half of a surrogate pair stays as the file spelled it: it is no character of UTF-8.
    text = re.sub("[\ud800-\udfff]", lambda found: f"\\u{ord(found[0]):04x}", text)
    out.write_text(text, encoding="utf-8")
