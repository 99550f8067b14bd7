# SPDX-License-Identifier: Apache-2.0
"""What tests in a browser look at."""

from __future__ import annotations

from typing import Any, Final

from detshare.ctl.client import Client
from detshare.tools.browser.chromium import Tab

ROWS: Final = "document.querySelectorAll('#rows tr').length"


def opened(tab: Tab, client: Client, rows: int = 8) -> Tab:
    """The page, with all its programs."""
    tab.go(client.page()["address"])
    tab.until(f"{ROWS} >= {rows} && document.querySelector('#link').dataset.state === 'ok'")
    return tab


def program(client: Client, pid: int) -> dict[str, Any]:
    return next(each for each in client.programs()["programs"] if each["pid"] == pid)


def row(pid: int, rest: str = "") -> str:
    return f"#rows tr[data-key^='{pid}:']{rest}"


def cell(pid: int, column: str) -> str:
    return f"document.querySelector(\"{row(pid)} .c-{column}\").textContent"
