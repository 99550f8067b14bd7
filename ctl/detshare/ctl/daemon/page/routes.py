# SPDX-License-Identifier: Apache-2.0
"""The page's addresses: on the daemon's socket, and on one of TCP where the configuration has one.

GET / and /page/FILE give the page itself, GET /page/view and /page/programs/PID what it shows, POST /page/session a
token for a code. Who asks over TCP says who he is by the token; on the socket the kernel does. Verbs are the API's own,
with its rules; a browser may change nothing where page.changes is not set.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from detshare.ctl.core import config
from detshare.ctl.daemon import api, logs, policy_routes
from detshare.ctl.daemon.access import LOWERS, Caller, Denied
from detshare.ctl.daemon.api import CALLER, HttpError, Service, body_of, caller_at, require_change
from detshare.ctl.daemon.page import files
from detshare.ctl.daemon.page.origin import Door, by_browser
from detshare.ctl.daemon.page.sessions import CODE_S, Sessions
from detshare.ctl.daemon.page.view import View

__all__ = ["VERBS", "Page"]

VERBS: Final = ("set-priority", "set-weight", "set-memory", "pause", "resume", "park", "release")
"""what may be asked for over TCP"""
_SESSION: Final = "/page/session"
_LINK: Final = "/v1/page/link"
_REVOKE: Final = "/v1/page/revoke"
_BIG: Final = 16 << 10
"""bytes of an answer from which it is compressed"""


class Page:
    """The page of one daemon, behind all its doors."""

    def __init__(self, service: Service, settings: config.Page, run_dir: Path) -> None:
        self._service, self._settings = service, settings
        self._view = View(service)
        self._sessions = Sessions(run_dir)

    def add(self, app: web.Application) -> None:
        """To the API's application, on the socket."""
        self._add(app, Door())
        app.router.add_post(_LINK, self._link)
        app.router.add_post(_REVOKE, self._revoke)

    def app(self, door: Door) -> web.Application:
        """An application of its own, for TCP."""
        made = api.bare_app(self._service)
        self._add(made, door)
        made.router.add_post(_SESSION, self._session)
        policy_routes.add_reading(made)
        api.add_verbs(made, VERBS)
        return made

    def _add(self, app: web.Application, door: Door) -> None:
        async def protect(request: web.Request, response: web.StreamResponse) -> None:
            if not door.socket or request.path == "/" or request.path.startswith("/page/"):
                response.headers.update(files.HEADERS)

        app.middlewares.append(self._guard(door))
        app.on_response_prepare.append(protect)
        app.router.add_get("/", self._index)
        app.router.add_get("/page/view", self._look)
        app.router.add_get("/page/programs/{pid}", self._program)
        app.router.add_get("/page/{name}", self._file)

    def _guard(self, door: Door) -> Any:
        @web.middleware
        async def guard(request: web.Request, handler: Callable[..., Awaitable[web.StreamResponse]]) -> Any:
            door.check(request)
            if not door.socket and not _open_to_all(request):
                request[CALLER] = self._whose(request)
            if request.method not in ("GET", "HEAD") and request.path != _SESSION:
                self._check_change(request, door)
                try:
                    return await handler(request)
                finally:
                    self._view.stir()
            return await handler(request)

        return guard

    def _whose(self, request: web.Request) -> Caller:
        """Who has the token. HttpError without a good one."""
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        uid = self._sessions.uid_of(token.strip()) if kind.lower() == "bearer" else None
        if uid is None:
            asked = f"{request.method[:16]} {request.path[:80]}"
            stopped = "the page needs a token, and there is none that is good still"
            raise HttpError(401, asked, stopped, "open the address that this prints: detshare-ctl page")
        return Caller(0, uid, f"page at {request.remote or 'an address that is gone'}")

    def _check_change(self, request: web.Request, door: Door) -> None:
        """Denied, with an audit line, where a browser may change nothing."""
        if self._settings.changes or (door.socket and not by_browser(request)):
            return
        asked = f"{request.method[:16]} {request.path[:80]}"
        stopped = "the page may only be looked at: page.changes of the configuration is not set"
        logs.audit(caller_at(request, asked), request.path.rpartition("/")[2][:40], asked, "refused", reason=stopped)
        raise Denied(asked, stopped, "set it, and restart detshared; or use detshare-ctl")

    async def _index(self, request: web.Request) -> web.Response:
        return files.answer(request, files.INDEX)

    async def _file(self, request: web.Request) -> web.Response:
        return files.answer(request, request.match_info["name"])

    async def _session(self, request: web.Request) -> web.Response:
        body = await body_of(request, "see the page")
        code = body.get("code")
        made = self._sessions.begin(code) if isinstance(code, str) else None
        if made is None:
            stopped = f"that address was used before, or is older than {CODE_S / 60:.0f} minutes"
            raise HttpError(403, "see the page", stopped, "print another one: detshare-ctl page")
        return _json({"token": made[0], "expires": made[1]})

    async def _look(self, request: web.Request) -> web.Response:
        asked = "see the page"
        caller = caller_at(request, asked)
        boot = request.query.get("boot", "")
        since, events = (_count(request, asked, name) for name in ("since", "events"))
        answer = self._view.answer(boot, since, events)
        return _json(answer | {"may": self._may(caller)})

    def _may(self, caller: Caller) -> dict[str, Any]:
        """What the caller may change, and why not more."""
        user = caller.text.partition(",")[0]
        if not self._settings.changes:
            why = "Read-only: page.changes of the daemon's configuration is not set."
            return {"change": [], "lower": False, "why": why, "user": user}
        if self._service.access.may_change(caller):
            return {"change": list(VERBS), "lower": False, "why": "", "user": user}
        why = f"{user} may lower the class of programs of its own, and change nothing else."
        return {"change": [LOWERS], "lower": True, "why": why, "user": user}

    async def _program(self, request: web.Request) -> web.Response:
        pid = request.match_info["pid"]
        if not (pid.isdecimal() and pid.isascii() and len(pid) <= 10):
            raise HttpError(400, "show a program", f"{ascii(pid)[:40]} is no PID")
        return _json(self._view.detail(int(pid)))

    async def _link(self, request: web.Request) -> web.Response:
        asked = "page"
        caller = caller_at(request, asked)
        if by_browser(request):
            raise Denied(asked, "a browser asks for it", "on a terminal: detshare-ctl page")
        if not self._settings.listen:
            stopped = "it is served on the daemon's socket only: page.listen of the configuration is not set"
            following = "set it and restart detshared, or forward the socket by ssh: docs/use/page.md"
            raise HttpError(409, asked, stopped, following)
        code = self._sessions.code(caller.uid)
        logs.audit(caller, "page", asked, "changed")
        return _json(
            {
                "address": f"{self._settings.address}#{code}",
                "expires_s": CODE_S,
                "changes": bool(self._may(caller)["change"]),
            }
        )

    async def _revoke(self, request: web.Request) -> web.Response:
        caller = require_change(request, "page --revoke")
        self._sessions.revoke()
        logs.audit(caller, "page", "page --revoke", "changed")
        return _json({"revoked": True})


def _open_to_all(request: web.Request) -> bool:
    """The files of the page, and where a token comes from."""
    if request.method == "POST":
        return request.path == _SESSION
    return request.path == "/" or request.path.removeprefix("/page/") in files.names()


def _count(request: web.Request, asked: str, name: str) -> int:
    given = request.query.get(name, "-1")
    if given != "-1" and not (given.isdecimal() and given.isascii() and len(given) < 16):
        raise HttpError(400, asked, f"{name}={ascii(given)[:40]} is no number")
    return int(given)


def _json(data: dict[str, Any]) -> web.Response:
    body = json.dumps(data, separators=(",", ":")).encode()
    response = web.Response(body=body, content_type="application/json", headers={"Cache-Control": "no-store"})
    if len(body) >= _BIG:
        response.enable_compression()
    return response
