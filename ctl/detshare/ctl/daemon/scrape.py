# SPDX-License-Identifier: Apache-2.0
"""/metrics on a loopback address, for a Prometheus that cannot read a UNIX socket. Nothing else is answered there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from detshare.ctl.core.errors import ControlError
from detshare.ctl.daemon.api import HttpError, Service, metrics_app
from detshare.ctl.daemon.page.origin import Door

__all__ = ["scrape"]

_SYSTEMD = "the systemd unit has to allow AF_INET and AF_INET6 (RestrictAddressFamilies; systemctl edit detshared)"


@web.middleware
async def _ours(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """A site whose name an attacker lets point here is refused: command lines are in what a browser would read."""
    host = request.headers.get("Host", "")
    if not Door(socket=False).admits(host):
        asked = f"{request.method[:16]} {request.path[:80]}"
        stopped = f"{ascii(host)[:80]} is no name of this machine's loopback"
        raise HttpError(403, asked, stopped, "ask for it as 127.0.0.1, [::1] or localhost")
    return await handler(request)


async def scrape(service: Service, listen: str) -> web.AppRunner:
    """Answer on `listen`, as the configuration has it. ControlError where that cannot be; the caller cleans it up."""
    host, _, port = listen.rpartition(":")
    app = metrics_app(service)
    app.middlewares.append(_ours)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=2.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, host.strip("[]"), int(port)).start()
    except OSError as error:
        await runner.cleanup()
        stopped = f"metrics.listen: {listen} cannot be listened on ({error.strerror or error})"
        raise ControlError("start detshared", stopped, f"choose another port; {_SYSTEMD}") from error
    return runner
