# SPDX-License-Identifier: Apache-2.0
"""A small synchronous client of detshared: HTTP over its UNIX socket, with the standard library only."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NoReturn

from detshare.ctl.core import sockets
from detshare.ctl.core.errors import ClientError
from detshare.ctl.core.patience import Patience
from detshare.ctl.core.rundir import SOCKET_NAME, default_run_dir

__all__ = ["Answer", "Client", "ClientError"]

ANSWER_SECONDS: Final = 75.0
"""how long a daemon may do nothing instead of answering; longer than its own limit on a verb"""
_MAX_ANSWER: Final = 256 << 20


class Answer(dict[str, Any]):
    """An object of an answer. ClientError for a name that it lacks."""

    def __missing__(self, name: str) -> NoReturn:
        stopped = f"the daemon is of another build: its answer lacks {name!r}"
        raise ClientError("read the answer", stopped, "restart it: systemctl restart detshared")


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout: float | None) -> None:
        super().__init__("detshared", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            sockets.connect(sock, self._path, self.timeout)
        except OSError:
            sock.close()
            raise
        self.sock = sock

    def wait(self) -> None:
        """Until an answer begins to come, however slow the daemon is. TimeoutError where it hangs."""
        if self.timeout is None:
            return
        credentials = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        patience = Patience(self.timeout, struct.unpack("3i", credentials)[0])
        asked = select.poll()
        asked.register(self.sock, select.POLLIN)
        while not asked.poll(250):
            if patience.spent():
                raise TimeoutError


class Client:
    """Talks to the daemon of one run directory. Every method but `alive` raises ClientError."""

    def __init__(self, run_dir: Path | str | None = None, answer_s: float = ANSWER_SECONDS) -> None:
        """`answer_s`: how long the daemon may do nothing instead of answering."""
        self._answer_s = answer_s
        self.run_dir = Path(run_dir) if run_dir is not None else default_run_dir()
        self.socket = self.run_dir / SOCKET_NAME

    def alive(self) -> bool:
        """Whether a daemon accepts connections now. ClientError where one may be there but we may not ask."""
        probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        with probe:
            try:
                sockets.connect(probe, self.socket, 2.0)
            except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
                return False
            except OSError as error:
                raise self._unreachable("reach the daemon", error) from error
        return True

    def version(self) -> dict[str, Any]:
        """{"version": the daemon's build, "api": the number in the addresses that it answers, /v1/...}"""
        return self._json("GET", "/v1/version", "ask for the version")

    def programs(self) -> dict[str, Any]:
        """The last look: programs, gpus, backend, proof, ..."""
        return self._json("GET", "/v1/programs", "list programs")

    def pool(self) -> dict[str, Any]:
        """{"pool": [members of each GPU's pool, with who is bound], "bindings": [which pCtx each program is on]}"""
        return self._json("GET", "/v1/pool", "list the pool")

    def doctor(self) -> dict[str, Any]:
        """{"checks": [{name, ok, detail, advice}]}"""
        return self._json("GET", "/v1/doctor", "check the installation")

    def metrics(self) -> str:
        """The page of metrics, as Prometheus reads it."""
        return self._body("GET", "/metrics", "read the metrics").decode()

    def readings(self) -> dict[str, Any]:
        """What the simulated programs of the model backend measure; ClientError with any other backend."""
        return self._json("GET", "/v1/readings", "read the simulation")

    def verb(self, name: str, who: str, **args: object) -> dict[str, Any]:
        """Do a changing verb; the answer is {"verb", "changed", "skipped", "seconds"}.

        The class of set-priority may be given as `klass`, since `class` is a word of Python.
        """
        body = {("class" if key == "klass" else key): value for key, value in args.items() if value is not None}
        asked = " ".join([name, str(who), *(str(value) for value in body.values())])
        try:
            payload = json.dumps({"who": who, **body}, allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise ClientError(asked, str(error), "give numbers and strings only", usage=True) from error
        return self._json("POST", f"/v1/verbs/{name}", asked, payload)

    def policy(self) -> dict[str, Any]:
        """{"policy": the one that decides, "known": [...]}"""
        return self._json("GET", "/v1/policy", "see the policy")

    def policy_set(self, name: str, params: dict[str, str] | None = None, gpu: str | int = "") -> dict[str, Any]:
        """Let another policy decide, for one GPU or for all that have none of their own; how they stand."""
        body = {"name": name, "params": params or {}} | ({} if gpu == "" else {"gpu": str(gpu)})
        asked = f"policy set {name}" + (f" --gpu {gpu}" if gpu != "" else "")
        return self._json("POST", "/v1/policy/set", asked, json.dumps(body).encode())

    def policy_unset(self, gpu: str | int) -> dict[str, Any]:
        """A GPU has the policy of the others again; how they stand."""
        body = json.dumps({"gpu": str(gpu)}).encode()
        return self._json("POST", "/v1/policy/unset", f"policy unset --gpu {gpu}", body)

    def policy_resume(self, who: str) -> dict[str, Any]:
        """Give programs, or a class, back to the policy: {"resumed": [PID], "class"}."""
        return self._json("POST", "/v1/policy/resume", f"policy resume {who}", json.dumps({"who": who}).encode())

    def policy_deadline(self, who: str, deadline_us: float | None) -> dict[str, Any]:
        """Say in what time requests of programs are to be done; None: no goal. {"pids", "deadline_us"}."""
        body = json.dumps({"who": who, "us": deadline_us}).encode()
        return self._json("POST", "/v1/policy/deadline", f"policy deadline {who}", body)

    def config_reload(self) -> dict[str, Any]:
        """Let the daemon read its configuration again: {"path", "changed": keys, "restart": keys that wait for one}."""
        return self._json("POST", "/v1/config/reload", "config reload", b"{}")

    def log(self, level: str | None = None) -> dict[str, Any]:
        """{"level", "configured"} of the daemon's log; with a level, after it was set until the next reload."""
        if level is None:
            return self._json("GET", "/v1/log", "see the log's level")
        return self._json("POST", "/v1/log", f"log-level {level}", json.dumps({"level": level}).encode())

    def dirty(self, pid: int, after: int = -1) -> dict[str, Any]:
        """{"watching": False, "why"}, or with True {"interval", "epochs", "partial"}: what a program wrote lately."""
        return self._json("GET", f"/v1/dirty/{pid}?after={after}", f"dirty {pid}")

    def why(self, pid: int, since_s: float = 600.0) -> dict[str, Any]:
        """Why a program stands as it does: {"now", "policy", "decisions", ...}."""
        return self._json("GET", f"/v1/why/{pid}?since={since_s:g}", f"why {pid}")

    def decisions(self, since_s: float = 600.0, most: int = 100) -> dict[str, Any]:
        """{"decisions": [{"when", "what", "text", ...}]}, the newest, oldest first."""
        return self._json("GET", f"/v1/decisions?since={since_s:g}&most={most}", "read decisions")

    def page(self) -> dict[str, Any]:
        """An address that a browser may open once: {"address", "expires_s", "changes": whether it may change things}"""
        return self._json("POST", "/v1/page/link", "page", b"{}")

    def page_revoke(self) -> dict[str, Any]:
        """End every page that was opened over TCP: {"revoked": True}."""
        return self._json("POST", "/v1/page/revoke", "page --revoke", b"{}")

    def events(self, follow: bool = False) -> Iterator[dict[str, Any]]:
        """Events that the daemon remembers, oldest first; with `follow`, those to come too, without end."""
        path = "/v1/events?follow=1" if follow else "/v1/events"
        asked = "read events"
        connection = _Connection(self.socket, None if follow else ANSWER_SECONDS)
        with contextlib.closing(connection):
            try:
                connection.request("GET", path)
                connection.wait()
                response = connection.getresponse()
                if response.status != 200:
                    raise self._refusal(asked, response.status, response.read(_MAX_ANSWER))
                for line in response:
                    if line.strip():
                        yield json.loads(line, object_hook=Answer)
            except (OSError, http.client.HTTPException, ValueError) as error:
                raise self._unreachable(asked, error) from error

    def _body(self, method: str, path: str, asked: str, body: bytes | None = None) -> bytes:
        connection = _Connection(self.socket, self._answer_s)
        headers = {"Content-Type": "application/json"} if body is not None else {}
        with contextlib.closing(connection):
            try:
                connection.request(method, path, body, headers)
                connection.wait()
                response = connection.getresponse()
                data = response.read(_MAX_ANSWER)
            except (OSError, http.client.HTTPException, ValueError) as error:
                raise self._unreachable(asked, error) from error
        if response.status != 200:
            raise self._refusal(asked, response.status, data)
        return data

    def _json(self, method: str, path: str, asked: str, body: bytes | None = None) -> dict[str, Any]:
        try:
            answer = json.loads(self._body(method, path, asked, body), object_hook=Answer)
        except ValueError as error:
            raise self._unreachable(asked, error) from error
        if not isinstance(answer, dict):
            raise ClientError(asked, "the answer is no JSON object", "is it detshared that owns the socket?")
        return answer

    def _unreachable(self, asked: str, error: Exception) -> ClientError:
        start = f"start it: detshared --run-dir {self.run_dir}"
        match error:
            case FileNotFoundError() | ConnectionRefusedError() | NotADirectoryError():
                return ClientError(asked, f"no daemon answers on {self.socket}", start)
            case PermissionError():
                stopped = f"{self.socket} belongs to another user (you are uid {os.geteuid()})"
                following = "run it as root, as the user who started detshared, or as a member of the socket's group"
                return ClientError(asked, stopped, following)
            case TimeoutError():
                stopped = f"the daemon did not answer, and did nothing else for {self._answer_s:.0f} s"
                return ClientError(asked, stopped, "see its log; a driver call may hang: dmesg | grep NVRM")
            case OSError() if "too long" in str(error):
                stopped = f"{self.socket} is longer than a socket's path may be (107 bytes)"
                return ClientError(asked, stopped, "use a shorter --run-dir")
            case OSError() | http.client.HTTPException():
                return ClientError(asked, f"the daemon went away ({str(error) or type(error).__name__})", start)
            case _:
                return ClientError(asked, f"no usable answer: {error}", "is it detshared that owns the socket?")

    def _refusal(self, asked: str, status: int, data: bytes) -> ClientError:
        try:
            told = json.loads(data)["error"]
            asked, stopped, following = str(told["asked"]), str(told["stopped"]), str(told["next"])
        except (ValueError, KeyError, TypeError):
            stopped = f"HTTP status {status}: {data[:200].decode(errors='replace').strip()}"
            following = "does the daemon's version fit this command's? detshare-ctl version"
        return ClientError(asked, stopped, following, usage=status == 400, status=status)
