# SPDX-License-Identifier: Apache-2.0
"""/metrics on a loopback address, for a Prometheus that cannot read a UNIX socket. Nothing else is answered there."""

from __future__ import annotations

from aiohttp import web

from detshare.ctl.core.errors import ControlError
from detshare.ctl.daemon.api import Service, metrics_app

__all__ = ["scrape"]

_SYSTEMD = "the systemd unit has to allow AF_INET and AF_INET6 (RestrictAddressFamilies; systemctl edit detshared)"


async def scrape(service: Service, listen: str) -> web.AppRunner:
    """Answer on `listen`, as the configuration has it. ControlError where that cannot be; the caller cleans it up."""
    host, _, port = listen.rpartition(":")
    runner = web.AppRunner(metrics_app(service), access_log=None, shutdown_timeout=2.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, host.strip("[]"), int(port)).start()
    except OSError as error:
        await runner.cleanup()
        stopped = f"metrics.listen: {listen} cannot be listened on ({error.strerror or error})"
        raise ControlError("start detshared", stopped, f"choose another port; {_SYSTEMD}") from error
    return runner
