# SPDX-License-Identifier: Apache-2.0
"""The files of the page, as they are packed. They hold nothing of this machine, so whoever comes may have them."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Final

from aiohttp import web

__all__ = ["HEADERS", "INDEX", "answer", "names"]

FOLDER: Final = Path(__file__).parent / "static"
INDEX: Final = "index.html"
_KINDS: Final = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
        "trusted-types 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Server": "detshared",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""of every answer of the page, data too"""


@cache
def names() -> frozenset[str]:
    """What there is."""
    return frozenset(path.name for path in FOLDER.iterdir() if path.suffix in _KINDS)


@cache
def _read(name: str) -> tuple[bytes, str]:
    body = (FOLDER / name).read_bytes()
    return body, f'"{hashlib.sha256(body).hexdigest()[:20]}"'


def answer(request: web.Request, name: str) -> web.Response:
    """One file; 404 for what is none of them. A browser asks each time whether its copy is the newest."""
    if name not in names():
        raise web.HTTPNotFound
    body, tag = _read(name)
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if request.headers.get("If-None-Match") == tag:
        return web.Response(status=304, headers=headers)
    return web.Response(body=body, content_type=_KINDS[Path(name).suffix], charset="utf-8", headers=headers)
