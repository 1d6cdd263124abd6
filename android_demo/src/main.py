"""What Flet runs: on a phone, on a desktop, or in a browser (`make android-demo`)."""

from __future__ import annotations

import flet as ft

from view.app import open_app

if __name__ == "__main__":
    ft.run(open_app)
