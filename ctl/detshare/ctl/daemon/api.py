# SPDX-License-Identifier: Apache-2.0
"""HTTP API of detshared, spoken on a UNIX socket; see detshare.ctl.daemon.access for who may do what.

Whatever comes in, the answer is JSON (NDJSON for events, text for /metrics), and an error has the one form
{"error": {"asked", "stopped", "next"}}: 4xx where the request is at fault and nothing was changed.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, cast

from aiohttp import web
from prometheus_client import CollectorRegistry

from detshare.ctl.core import version
from detshare.ctl.core.errors import ControlError
from detshare.ctl.core.snapshot import Check, Event, Outcome, Snapshot
from detshare.ctl.core.verbs import VERBS, describe
from detshare.ctl.daemon import logs, metrics
from detshare.ctl.daemon.access import Access, Caller, Denied, caller_of
from detshare.ctl.policy.service import PolicyService

if TYPE_CHECKING:
    from detshare.ctl.daemon.dirty import Dirty

log = logging.getLogger("detshared.api")

BODY_LIMIT: Final = 64 << 10
"""bytes of a request's body"""
REQUEST_SECONDS: Final = 10.0
"""time in which a whole request has to arrive"""
_NEXT: Final = (
    "there are GET /v1/version, /v1/programs, /v1/pool, /v1/events, /v1/doctor, /v1/policy, /v1/decisions, "
    "/v1/why/PID, /v1/dirty/PID, /v1/log, /metrics and POST /v1/verbs/VERB, /v1/policy/set, /v1/policy/resume, "
    "/v1/policy/unset, /v1/policy/deadline, /v1/config/reload, /v1/log; people use detshare-ctl"
)


class Service(Protocol):
    """What the API needs of the daemon. Errors are ControlError."""

    @property
    def registry(self) -> CollectorRegistry: ...
    @property
    def access(self) -> Access: ...
    def snapshot(self) -> Snapshot: ...
    @property
    def policy(self) -> PolicyService:
        """The policy's. ControlError while there is none."""
        ...

    @property
    def dirty(self) -> Dirty: ...
    def pool(self) -> dict[str, Any]: ...
    async def verb(
        self, name: str, who: object, args: dict[str, object], caller: Caller | None = None
    ) -> Outcome: ...
    async def doctor(self) -> list[Check]: ...
    async def readings(self) -> dict[str, Any]: ...
    def remembered(self) -> Sequence[Event]: ...
    @property
    def told(self) -> int:
        """Events so far; the last of them are remembered."""
        ...

    def subscribe(self) -> asyncio.Queue[Event | None]:
        """A queue of events to come, closed by None."""
        ...

    def unsubscribe(self, queue: asyncio.Queue[Event | None]) -> None: ...



def app_key(name: str) -> Any:
    """aiohttp 3.8, which Debian 12 has, keys what an application holds by plain strings."""
    return web.AppKey(name) if hasattr(web, "AppKey") else name


SERVICE: Final[web.AppKey[Service]] = app_key("service")
BUILD: Final[web.AppKey[str]] = app_key("build")
"""of this process: what is installed may be another one by the time somebody asks"""
CALLER: Final[Any] = web.RequestKey("caller", Caller) if hasattr(web, "RequestKey") else "caller"  # aiohttp 3.14
"""of a request: who sent it, where the kernel does not say"""


class HttpError(ControlError):
    """An error with a status of its own."""

    def __init__(self, status: int, asked: str, stopped: str, next_step: str = _NEXT) -> None:
        super().__init__(asked, stopped, next_step, usage=status == 400)
        self.status = status


def error_response(error: ControlError) -> web.Response:
    """409: this machine or program does not allow it; 403: the caller may not; 400: it cannot be meant."""
    if isinstance(error, HttpError):
        status = error.status
    else:
        status = 403 if isinstance(error, Denied) else 400 if error.usage else 409
    return web.json_response(error.to_json(), status=status)


class Connection(web.RequestHandler):
    """aiohttp's connection with two additions: its errors are ours in form, and what never becomes a request is
    answered too (408 when it takes too long, 400 when it ends in the middle) instead of being held or dropped."""

    on_end: Callable[[], None] | None = None
    """set while events are followed: then the client's end is the end; otherwise it may still read its answer"""
    _timer: asyncio.TimerHandle | None = None
    _got_bytes = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._timer = asyncio.get_running_loop().call_later(REQUEST_SECONDS, self._too_slow)

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self.on_end is not None:
            self.on_end()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._got_bytes = True
        super().data_received(data)

    def eof_received(self) -> bool | None:  # type: ignore[override]  # asyncio takes both; aiohttp narrows to None
        if self._request_count == 0:
            if self._got_bytes:
                self._refuse(400, "what came is no HTTP request")
            return None
        return self.on_end is None

    def _too_slow(self) -> None:
        if self._request_count == 0 and self.transport is not None:
            self._refuse(408, f"no complete request came within {REQUEST_SECONDS:.0f} s")

    def _refuse(self, status: int, stopped: str) -> None:
        if self.transport is not None and not self.transport.is_closing():
            body = json.dumps(HttpError(status, "a request", stopped).to_json()).encode()
            reason = {400: "Bad Request", 408: "Request Timeout"}[status]
            head = (
                f"HTTP/1.1 {status} {reason}\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + body)
            self.transport.close()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if status >= 500:
            log.error("request %s %s failed", request.method, request.path, exc_info=exc)
            stopped = f"an error in DetShare itself ({type(exc).__name__})"
            response = error_response(HttpError(status, "a request", stopped, "see the daemon's log"))
        else:
            stopped = " ".join((message or str(exc) or "what came is no HTTP request").split())[:200]
            response = error_response(HttpError(status, "a request", f"no HTTP that can be read: {stopped}"))
        response.force_close()
        return response


def make_app(service: Service) -> web.Application:
    """Routes of the API over a service."""
    app = bare_app(service)
    app[BUILD] = version.build()
    app.router.add_get("/v1/version", _version)
    app.router.add_get("/v1/programs", _programs)
    app.router.add_get("/v1/pool", _pool)
    app.router.add_get("/v1/events", _events)
    app.router.add_get("/v1/doctor", _doctor)
    app.router.add_get("/v1/readings", _readings)
    add_verbs(app)
    app.router.add_get("/metrics", _metrics)
    from detshare.ctl.daemon import dirty  # both need what is defined here
    from detshare.ctl.daemon import policy_routes as routes

    routes.add(app)
    dirty.add(app)
    return app


def bare_app(service: Service) -> web.Application:
    """Nothing but the form of errors."""
    app = web.Application(client_max_size=BODY_LIMIT, middlewares=[_errors])
    app[SERVICE] = service
    return app


def add_verbs(app: web.Application, names: Sequence[str] = ()) -> None:
    """POST /v1/verbs/VERB; of these names alone, where any are given."""
    pattern = f":{'|'.join(names)}" if names else ""
    app.router.add_post(f"/v1/verbs/{{verb{pattern}}}", _verb)


def metrics_app(service: Service) -> web.Application:
    """/metrics alone, for who is not asked who he is."""
    app = bare_app(service)
    app.router.add_get("/metrics", _metrics)
    return app


@web.middleware
async def _errors(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    asked = f"{request.method[:16]} {request.path[:80]}"
    try:
        response = await handler(request)
    except ControlError as error:
        response = error_response(error)
    except web.HTTPException as error:
        stopped = {
            404: "there is no such address",
            405: f"only {error.headers.get('Allow', 'another method')} works there",
            413: f"the body is longer than {BODY_LIMIT} bytes",
        }.get(error.status, error.reason)
        response = error_response(HttpError(error.status, asked, stopped))
    if response.status >= 400 and not request.content.at_eof():
        response.force_close()  # the rest of a body that was not read is no next request
    return response


async def _version(request: web.Request) -> web.Response:
    return web.json_response({"version": request.app[BUILD], "api": version.API})


async def _programs(request: web.Request) -> web.Response:
    return web.json_response(request.app[SERVICE].snapshot().to_json())


async def _pool(request: web.Request) -> web.Response:
    return web.json_response(request.app[SERVICE].pool())


async def _doctor(request: web.Request) -> web.Response:
    checks = await request.app[SERVICE].doctor()
    return web.json_response({"checks": [check.to_json() for check in checks]})


async def _readings(request: web.Request) -> web.Response:
    return web.json_response(await request.app[SERVICE].readings())


async def _metrics(request: web.Request) -> web.Response:
    body, kind = metrics.render(request.app[SERVICE].registry, request.headers.get("Accept", ""))
    return web.Response(body=body, headers={"Content-Type": kind})


async def _events(request: web.Request) -> web.StreamResponse:
    service = request.app[SERVICE]
    follow = request.query.get("follow", "0")
    if follow not in ("0", "1"):
        raise HttpError(400, "read events", "follow is 0 or 1")
    response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
    queue = service.subscribe()
    try:
        if follow == "1" and isinstance(request.protocol, Connection):
            request.protocol.on_end = lambda: queue.put_nowait(None)
        remembered = service.remembered()  # no await since subscribe(): none is missed, none comes twice
        await response.prepare(request)
        await response.write(b"".join(map(_line, remembered)))
        while follow == "1" and (event := await queue.get()) is not None:
            await response.write(_line(event))
        await response.write_eof()
    except ConnectionError:
        log.debug("a reader of events went away")
    finally:
        service.unsubscribe(queue)
    return response


def _line(event: Event) -> bytes:
    return json.dumps(event.to_json()).encode() + b"\n"


async def _verb(request: web.Request) -> web.Response:
    name = request.match_info["verb"]
    if name not in VERBS:
        stopped = f"there is no such verb; verbs are {', '.join(VERBS)}"
        raise HttpError(400, describe(name, "...", {}), stopped)
    caller = caller_at(request, name)
    body = await body_of(request, name)
    who = body.pop("who", None)
    asked = describe(name, who, body)
    try:
        outcome = await request.app[SERVICE].verb(name, who, body, caller)
    except ControlError as error:
        failed = isinstance(error, HttpError) and error.status >= 500
        logs.audit(caller, name, asked, "failed" if failed else "refused", reason=error.stopped)
        raise
    skipped = "; ".join(skip.reason for skip in outcome.skipped[:3])
    pids = [change.pid for change in outcome.changed]
    logs.audit(caller, name, asked, "changed" if pids else "unchanged", reason=skipped, more={"changed": pids})
    return web.json_response(outcome.to_json())


def caller_at(request: web.Request, asked: str) -> Caller:
    """Who sent a request, as its door found out, else as the kernel knows it. HttpError where he has gone."""
    if (known := request.get(CALLER)) is not None:
        return cast(Caller, known)
    connection = request.transport.get_extra_info("socket") if request.transport is not None else None
    if connection is None:
        raise HttpError(400, asked, "the connection is gone")
    return caller_of(connection)


def require_change(request: web.Request, asked: str) -> Caller:
    """Who sent a request, which may change everything. Denied, with an audit line, where that is not allowed."""
    caller = caller_at(request, asked)
    try:
        request.app[SERVICE].access.require_change(caller, asked)
    except Denied as error:
        logs.audit(caller, asked.partition(" ")[0], asked, "refused", reason=error.stopped)
        raise
    return caller


async def body_of(request: web.Request, verb: str) -> dict[str, object]:
    """The JSON object that was sent. HttpError where there is none."""
    try:
        async with asyncio.timeout(REQUEST_SECONDS):
            data = await request.read()
    except TimeoutError:
        raise HttpError(408, verb, f"the body did not come within {REQUEST_SECONDS:.0f} s") from None
    except (web.RequestPayloadError, ConnectionError) as error:
        raise HttpError(400, verb, f"the body cannot be read: {error}") from error
    try:
        body = json.loads(data, parse_constant=_no_constant, object_pairs_hook=_no_duplicates)
    except RecursionError:
        raise HttpError(400, verb, "the body is nested too deeply") from None
    except ValueError as error:  # bad UTF-8, bad JSON, numbers with thousands of digits
        raise HttpError(400, verb, f"the body is no JSON: {str(error)[:120]}") from error
    if not isinstance(body, dict):
        raise HttpError(400, verb, 'the body is no JSON object such as {"who": "4242"}')
    return body


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _no_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a name occurs twice in one object")
    return made
