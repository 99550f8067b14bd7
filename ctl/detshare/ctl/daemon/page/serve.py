# SPDX-License-Identifier: Apache-2.0
"""The page on an address of TCP: loopback, or with TLS any other."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable

from aiohttp import web

from detshare.ctl.core import config, config_files
from detshare.ctl.core.errors import ControlError
from detshare.ctl.daemon.api import Connection
from detshare.ctl.daemon.page.origin import Door
from detshare.ctl.daemon.page.routes import Page

__all__ = ["serve"]

_SYSTEMD = "the systemd unit has to allow AF_INET and AF_INET6 (RestrictAddressFamilies; systemctl edit detshared)"


class _Connection(Connection):
    """asyncio's TLS knows no half of a connection."""

    def eof_received(self) -> bool | None:  # type: ignore[override]
        answer = super().eof_received()
        return answer if self.transport is None or self.transport.get_extra_info("sslcontext") is None else None


async def serve(page: Page, settings: config.Page) -> Callable[[], Awaitable[None]]:
    """Answer on `settings.listen` until what is returned is called. ControlError where that cannot be."""
    asked = "start detshared"
    host, _, port = settings.listen.rpartition(":")
    host = host.strip("[]")
    context = _context(settings) if settings.certificate else None
    if context is None and not settings.loopback:
        stopped = f"page.listen: {settings.listen} is not this machine's loopback, and there is no TLS"
        raise ControlError(asked, stopped, "set page.certificate and page.key, or listen on loopback", usage=True)
    app = page.app(Door.tcp(host, settings.hosts, context is not None))
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=2.0)
    await runner.setup()
    made = runner.server
    assert made is not None
    loop = asyncio.get_running_loop()
    try:
        listening = await loop.create_server(
            lambda: _Connection(made, loop=loop, access_log=None, keepalive_timeout=30.0, lingering_time=1.0),  # type: ignore[arg-type]  # as aiohttp passes it for "no access log"
            host,
            int(port),
            ssl=context,
            reuse_address=True,
        )
    except OSError as error:
        await runner.cleanup()
        stopped = f"page.listen: {settings.listen} cannot be listened on ({error.strerror or error})"
        raise ControlError(asked, stopped, f"choose another port; {_SYSTEMD}") from error

    async def end() -> None:
        listening.close()
        await runner.cleanup()

    return end


def _context(settings: config.Page) -> ssl.SSLContext:
    try:
        return config_files.certificate(settings)
    except OSError as error:
        stopped = f"page.certificate: {settings.certificate} and its key cannot be used ({error.strerror or error})"
        raise ControlError("start detshared", stopped, "both are PEM files, the key without a passphrase") from error
