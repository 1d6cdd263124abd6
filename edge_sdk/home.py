"""Where downloaded, prepared and cached files live."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from edge_sdk.errors import InvalidRequest


def cosd_home() -> Path:
    """`COSD_HOME`, or `cosd` in the user's cache folder. Not created here.

    Raises:
        InvalidRequest: `COSD_HOME` begins with `~` and a user that is not known, or the home
            folder of this user is not known.
    """
    configured = os.environ.get("COSD_HOME")
    try:
        if configured:
            return Path(configured).expanduser()
        if sys.platform == "win32":
            base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
        elif sys.platform == "darwin":
            base = Path.home() / "Library" / "Caches"
        else:
            base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError as error:
        raise InvalidRequest(
            f"COSD_HOME is {configured!r}, and a home folder that it needs is not known; "
            "set it to a whole path",
            field="COSD_HOME",
        ) from error
    return base / "cosd"
