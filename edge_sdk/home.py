"""Where downloaded, prepared and cached files live."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cosd_home() -> Path:
    """`COSD_HOME`, or `cosd` in the user's cache folder. Not created here."""
    if configured := os.environ.get("COSD_HOME"):
        return Path(configured).expanduser()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "cosd"
