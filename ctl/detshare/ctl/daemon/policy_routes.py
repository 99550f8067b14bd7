# SPDX-License-Identifier: Apache-2.0
"""The API about policies: GET /v1/policy, /v1/decisions, /v1/why/PID; POST /v1/policy/set, /v1/policy/unset,
/v1/policy/resume, /v1/policy/deadline.
"""

from __future__ import annotations

import os
from typing import Any, Final

from aiohttp import web

from detshare.ctl.core.errors import ControlError
from detshare.ctl.daemon import logs
from detshare.ctl.daemon.access import Caller, Denied
from detshare.ctl.daemon.api import SERVICE, HttpError, body_of, require_change
from detshare.ctl.policy import registry

__all__ = ["add", "add_reading"]

_MOST: Final = 1000
DEADLINES_US: Final = (1.0, 3_600_000_000.0)
_MOST_PARAMS: Final = 64


def add(app: web.Application) -> None:
    """Routes of this module."""
    add_reading(app)
    app.router.add_get("/v1/policy", _show)
    app.router.add_post("/v1/policy/set", _set)
    app.router.add_post("/v1/policy/unset", _unset)
    app.router.add_post("/v1/policy/resume", _resume)
    app.router.add_post("/v1/policy/deadline", _deadline)


def add_reading(app: web.Application) -> None:
    """Those that tell what was decided, and why."""
    app.router.add_get("/v1/decisions", _decisions)
    app.router.add_get("/v1/why/{pid}", _why)


def _number(request: web.Request, asked: str, name: str, default: float, most: float) -> float:
    text = request.query.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= most:
        raise HttpError(400, asked, f"{name}={ascii(text)[:40]} is no number from 0 to {most:g}")
    return value


async def _show(request: web.Request) -> web.Response:
    return web.json_response(request.app[SERVICE].policy.show())


async def _decisions(request: web.Request) -> web.Response:
    asked = "read decisions"
    since = _number(request, asked, "since", 600.0, 7 * 86400.0)
    most = int(_number(request, asked, "most", 100.0, _MOST))
    return web.json_response({"decisions": await request.app[SERVICE].policy.recent(since, most)})


async def _why(request: web.Request) -> web.Response:
    text = request.match_info["pid"]
    asked = f"why {text[:20]}"
    if not (text.isdecimal() and text.isascii() and 0 < len(text) <= 10):
        raise HttpError(400, asked, f"{ascii(text)[:40]} is no PID")
    since = _number(request, asked, "since", 600.0, 7 * 86400.0)
    service = request.app[SERVICE]
    return web.json_response(await service.policy.why(int(text), since, service.snapshot()))


def runs_files(caller: Caller) -> bool:
    """Whether he may have this process run a file: only who is in it already, whoever else may change everything."""
    return caller.uid in (0, os.geteuid())


async def _set(request: web.Request) -> web.Response:
    caller = require_change(request, "policy set")
    body = await body_of(request, "policy set")
    name, params, gpu = body.pop("name", None), body.pop("params", None), _gpu(body, "policy set")
    if body:
        raise HttpError(400, "policy set", f"it takes name, params and gpu, not {ascii(next(iter(body)))[:40]}")
    if not isinstance(name, str) or not name or len(name) > 4096 or not name.isprintable():
        raise HttpError(400, "policy set", "name is no policy's name or file", "see: detshare-ctl policy list")
    given = {} if params is None else params
    if (
        not isinstance(given, dict)
        or len(given) > _MOST_PARAMS
        or not all(isinstance(value, str) and len(value) < 1000 and value.isprintable() for value in given.values())
    ):
        raise HttpError(400, "policy set", 'params is no object of strings such as {"margin": "0.5"}')
    asked = " ".join([f"policy set {name}", *(f"{key}={value}" for key, value in given.items())])
    asked += f" --gpu {gpu}" if gpu else ""
    try:
        if registry.is_file(name) and not runs_files(caller):
            stopped = f"{caller.text}, may not have the daemon run a file"
            raise Denied(asked, stopped, "run it as root, or install it as a package with an entry point")
        status = await request.app[SERVICE].policy.choose(name, given, caller.text, gpu)
    except ControlError as error:
        logs.audit(caller, "policy set", asked, "refused", reason=error.stopped)
        raise
    logs.audit(caller, "policy set", asked, "changed")
    return web.json_response(status)


def _gpu(body: dict[str, Any], asked: str) -> str:
    """Which GPU; empty where none is named."""
    gpu = body.pop("gpu", None)
    if gpu is None:
        return ""
    if isinstance(gpu, int) and not isinstance(gpu, bool) and 0 <= gpu < 1 << 16:
        return str(gpu)
    if not isinstance(gpu, str) or not 0 < len(gpu) <= 64 or not gpu.isascii() or not gpu.isprintable():
        raise HttpError(400, asked, f"gpu is {ascii(gpu)[:40]}; it is a GPU's number, or the beginning of its UUID")
    return gpu


async def _unset(request: web.Request) -> web.Response:
    caller = require_change(request, "policy unset")
    body = await body_of(request, "policy unset")
    gpu = _gpu(body, "policy unset")
    if not gpu or body:
        raise HttpError(400, "policy unset", 'it takes {"gpu": 1}: a GPU\'s number, or the beginning of its UUID')
    asked = f"policy unset --gpu {gpu}"
    try:
        status = await request.app[SERVICE].policy.unset(gpu, caller.text)
    except ControlError as error:
        logs.audit(caller, "policy unset", asked, "refused", reason=error.stopped)
        raise
    logs.audit(caller, "policy unset", asked, "changed")
    return web.json_response(status)


async def _resume(request: web.Request) -> web.Response:
    caller = require_change(request, "policy resume")
    body = await body_of(request, "policy resume")
    who = body.pop("who", None)
    if not isinstance(who, str) or body or not who.isprintable():
        raise HttpError(400, "policy resume", 'it takes {"who": "4242"}: a PID, a container id, a pattern or a class')
    service = request.app[SERVICE]
    asked = f"policy resume {who[:80]}"
    try:
        given = await service.policy.give_back(who, service.snapshot())
    except ControlError as error:
        logs.audit(caller, "policy resume", asked, "refused", reason=error.stopped)
        raise
    logs.audit(caller, "policy resume", asked, "changed")
    return web.json_response(given)


async def _deadline(request: web.Request) -> web.Response:
    caller = require_change(request, "policy deadline")
    body = await body_of(request, "policy deadline")
    who, us = body.pop("who", None), body.pop("us", None)
    if not isinstance(who, str) or body or not who.isprintable():
        raise HttpError(400, "policy deadline", 'it takes {"who": "4242", "us": 20000}')
    asked = f"policy deadline {who[:80]}"
    least, most = DEADLINES_US
    if us is not None and (isinstance(us, bool) or not isinstance(us, int | float) or not least <= us <= most):
        raise HttpError(400, asked, f"us is {ascii(us)[:40]}; it is {least:g} to {most:g} microseconds, or null")
    service = request.app[SERVICE]
    try:
        made = await service.policy.set_deadline(who, us, service.snapshot())
    except ControlError as error:
        logs.audit(caller, "policy deadline", asked, "refused", reason=error.stopped)
        raise
    logs.audit(caller, "policy deadline", asked, "changed", more={"us": us})
    return web.json_response(made)
