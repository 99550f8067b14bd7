# SPDX-License-Identifier: Apache-2.0
"""What can be set while the daemon runs: POST /v1/config/reload reads the configuration again, /v1/log sets its level.

A file in which anything is wrong changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any, Final, Protocol

from aiohttp import web

from detshare.ctl.core.config import Config
from detshare.ctl.core.config_files import check_certificate
from detshare.ctl.core.config_values import LEVELS
from detshare.ctl.core.errors import ControlError
from detshare.ctl.daemon import logs
from detshare.ctl.daemon.access import Access
from detshare.ctl.daemon.api import HttpError, app_key, body_of, require_change

__all__ = ["LIVE", "Settings", "Target", "add"]

log = logging.getLogger("detshared")

LIVE: Final = ("daemon.log_level", "daemon.log_format", "daemon.interval", "daemon.classes", "access.users")
"""keys that a reload puts in force; all others wait for a restart"""


class Target(Protocol):
    """What a reload changes of the daemon."""

    config: Config
    access: Access
    interval: float
    unread: Callable[[], Sequence[str]]

    async def stand(self, rules: Any) -> None: ...


def _keys(config: Config) -> dict[str, object]:
    # of [containers] the daemon reads nothing: it is for who writes specifications
    return {f"{section}.{key}": value for section, made in asdict(config).items() if isinstance(made, dict)
            and section != "containers" for key, value in made.items()}  # fmt: skip


def _differing(old: Config, new: Config) -> Iterator[str]:
    before = _keys(old)
    return (key for key, value in _keys(new).items() if before[key] != value)


class Settings:
    """Of one daemon. `load` reads its configuration, with what its command line says; ConfigError where it is wrong."""

    def __init__(self, daemon: Target, load: Callable[[], Config]) -> None:
        self._daemon = daemon
        self._load = load
        daemon.unread = self.unread

    async def reload(self) -> dict[str, Any]:
        """{"path", "changed": keys in force now, "restart": keys that wait}. ConfigError: the old one stays."""
        new, old = self._load(), self._daemon.config
        if new.page != old.page:  # the next start reads it
            check_certificate(new)
        differing = list(_differing(old, new))
        changed = [key for key in differing if key in LIVE]
        if "daemon.classes" in changed:
            await self._daemon.stand(new.daemon.classes)
        # what waits for a restart is the old one's still, so that the next reload says so again
        daemon = replace(
            old.daemon,
            log_level=new.daemon.log_level,
            log_format=new.daemon.log_format,
            interval=new.daemon.interval,
            classes=new.daemon.classes,
        )
        access = replace(old.access, users=new.access.users)
        self._daemon.config = replace(old, daemon=daemon, access=access, path=new.path)
        self._daemon.access.use(access)
        self._daemon.interval = daemon.interval
        if "daemon.log_format" in changed:
            logs.begin(daemon.log_level, daemon.log_format)
        logs.set_level(daemon.log_level)
        waits = [key for key in differing if key not in LIVE]
        return {"path": None if new.path is None else str(new.path), "changed": changed, "restart": waits}

    def unread(self) -> list[str]:
        """Keys of the file that are not in force: it was changed since the daemon read it. ConfigError."""
        return list(_differing(self._daemon.config, self._load()))

    def log(self) -> dict[str, Any]:
        """{"level": what is logged now, "configured": what a reload sets}."""
        return {"level": logs.level(), "configured": self._daemon.config.daemon.log_level}


_SETTINGS: Final[web.AppKey[Settings]] = app_key("settings")


def add(app: web.Application, settings: Settings) -> None:
    """Routes of this module."""
    app[_SETTINGS] = settings
    app.router.add_get("/v1/log", _show_log)
    app.router.add_post("/v1/log", _set_log)
    app.router.add_post("/v1/config/reload", _reload)


async def _show_log(request: web.Request) -> web.Response:
    return web.json_response(request.app[_SETTINGS].log())


async def _set_log(request: web.Request) -> web.Response:
    caller = require_change(request, "log-level")
    level = (await body_of(request, "log-level")).get("level")
    if level not in LEVELS:
        raise HttpError(400, "log-level", f"level is {ascii(level)[:40]}; it is one of {', '.join(LEVELS)}")
    logs.set_level(str(level))
    logs.audit(caller, "log-level", f"log-level {level}", "changed")
    return web.json_response(request.app[_SETTINGS].log())


async def _reload(request: web.Request) -> web.Response:
    asked = "config reload"
    caller = require_change(request, asked)
    try:
        told = await request.app[_SETTINGS].reload()
    except ControlError as error:
        logs.audit(caller, asked, asked, "refused", reason=error.stopped)
        raise
    reason = f"restart for {', '.join(told['restart'])}" if told["restart"] else ""
    logs.audit(caller, asked, asked, "changed" if told["changed"] else "unchanged", reason=reason)
    return web.json_response(told)
