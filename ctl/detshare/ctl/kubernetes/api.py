# SPDX-License-Identifier: Apache-2.0
"""The API server, asked as a pod's service account: get, create, update, watch."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
from yarl import URL

from detshare.ctl.core.errors import ControlError

__all__ = ["ACCOUNT", "GROUP", "Api", "ApiError", "server_address"]

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""where kubelet puts a pod's token and the server's certificate"""
GROUP: Final = "apis/resource.k8s.io/v1"
_SECONDS: Final = 15.0
"""for an answer"""
_WATCH_S: Final = 240
"""after which the server ends a watch, and it begins anew"""
_LINE: Final = 4 << 20
"""bytes of an event; etcd takes no object above 1.5 MiB"""
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


class ApiError(ControlError):
    """What the server answered instead. `status` 0: it did not answer."""

    def __init__(self, asked: str, stopped: str, status: int) -> None:
        following = {
            0: "it is asked again",
            401: "is the service account's token mounted?",
            403: "is the ClusterRole of packaging/kubernetes applied?",
            404: "is resource.k8s.io/v1 served? Kubernetes 1.34 is the first that does",
        }.get(status, "see the API server's log")
        super().__init__(asked, stopped, following)
        self.status = status


def server_address() -> str:
    """Of the cluster that this pod is in. ControlError where it is in none."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        following = "run it in a pod, or give --api-server"
        raise ControlError("find the API server", "KUBERNETES_SERVICE_HOST or _PORT is not set", following)
    return f"https://{f'[{host}]' if ':' in host else host}:{port}"


class Api:
    """One session. Methods raise ApiError."""

    def __init__(self, server: str, account: Path = ACCOUNT) -> None:
        self._server = URL(server)
        self._account = account
        if self._server.scheme != "https" and self._server.host not in _LOOPBACK:
            stopped = f"{server} is not https, and the token would be sent for all to read"
            raise ControlError("reach the API server", stopped, "give an https address", usage=True)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        context: ssl.SSLContext | bool = True
        if self._server.scheme == "https":
            try:
                context = await asyncio.to_thread(ssl.create_default_context, cafile=str(self._account / "ca.crt"))
            except OSError as error:
                stopped = f"{self._account}/ca.crt cannot be read ({error.strerror})"
                raise ControlError("reach the API server", stopped, "is the service account mounted?") from error
            # clusters' own authorities lack extensions that Python 3.13 asks for; chain, name and time are checked
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        # no limit: each prepared claim has a watch, which keeps a connection; the hundredth would keep all others out
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context, limit=0), read_bufsize=_LINE, trust_env=False
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._session is not None
        await self._session.close()

    async def get(self, path: str) -> dict[str, Any]:
        """An object, by its path below the server."""
        return await self._ask("GET", path)

    async def create(self, path: str, made: Mapping[str, Any]) -> dict[str, Any]:
        """A new object of a collection, as the server has it then."""
        return await self._ask("POST", path, made)

    async def update(self, path: str, made: Mapping[str, Any]) -> dict[str, Any]:
        """An object anew. 409 where somebody changed it since the version that `made` names."""
        return await self._ask("PUT", path, made)

    async def watch(self, path: str, version: str, **selectors: str) -> AsyncIterator[dict[str, Any]]:
        """Events {"type", "object"} after a version, until the server ends it. ApiError 410: the version is too old."""
        asked = f"watch {path}"
        params = {**selectors, "watch": "1", "resourceVersion": version, "timeoutSeconds": str(_WATCH_S)}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_SECONDS, sock_read=2 * _WATCH_S)
        assert self._session is not None
        try:
            async with self._session.get(
                self._server / path, params=params, headers=await self._headers(), timeout=timeout
            ) as answer:
                await self._check(asked, answer)
                async for line in answer.content:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        status = event["object"]
                        raise ApiError(asked, str(status.get("message", ""))[:200], int(status.get("code", 500)))
                    yield event
        except (aiohttp.ClientError, TimeoutError, ValueError, KeyError) as error:
            raise ApiError(asked, _said(error), 0) from error

    async def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        asked = f"{method} {path}"
        assert self._session is not None
        try:
            async with self._session.request(
                method,
                self._server / path,
                json=body,
                headers=await self._headers(),
                timeout=aiohttp.ClientTimeout(total=_SECONDS),
            ) as answer:
                await self._check(asked, answer)
                found = await answer.json()
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise ApiError(asked, _said(error), 0) from error
        if not isinstance(found, dict):
            raise ApiError(asked, "its answer is no object", 0)
        return found

    async def _headers(self) -> dict[str, str]:
        """With the token of now: kubelet renews it."""
        try:
            token = (await asyncio.to_thread((self._account / "token").read_text, encoding="ascii")).strip()
        except (OSError, ValueError) as error:
            raise ApiError("read the token", f"{self._account}/token cannot be read ({error})", 401) from error
        return {"Authorization": f"Bearer {token}", "Accept": "application/json"}

    async def _check(self, asked: str, answer: aiohttp.ClientResponse) -> None:
        if answer.status >= 300:
            text = (await answer.content.read(64 << 10)).decode(errors="replace")
            with contextlib.suppress(ValueError, KeyError, TypeError):
                text = str(json.loads(text)["message"])
            raise ApiError(asked, f"{answer.status}: {text[:300]}", answer.status)


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:200] if str(error) else type(error).__name__
