# SPDX-License-Identifier: Apache-2.0
"""Requests that a browser sends for another site than ours are refused: cross-site requests and DNS rebinding.

The socket is looked after too: who forwards it to a port of his machine lets his browser reach it.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass

from aiohttp import web

from detshare.ctl.daemon.api import HttpError

__all__ = ["Door", "by_browser"]

_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")
_NEXT = "open the address that this prints: detshare-ctl page"


def by_browser(request: web.Request) -> bool:
    """Whether a browser's script may have sent it: they cannot leave these out of what changes something."""
    return "Origin" in request.headers or "Sec-Fetch-Site" in request.headers


@dataclass(frozen=True, slots=True)
class Door:
    """One place where requests come in."""

    socket: bool = True
    """a UNIX socket, which has no name: only names that no site of the internet can have are taken"""
    secure: bool = False
    """TLS"""
    loopback: bool = True
    names: frozenset[str] = frozenset()
    """by which the page may be asked for, in small letters, besides addresses"""

    @classmethod
    def tcp(cls, host: str, names: Iterable[str], secure: bool) -> Door:
        """That of a listening address."""
        loopback = ipaddress.ip_address(host).is_loopback
        ours = () if loopback else (socket.gethostname(),)
        return cls(False, secure, loopback, frozenset(each.lower() for each in (*names, *ours)))

    def admits(self, host: str) -> bool:
        """Whether that is a name of ours (the request's Host). A site that an attacker has is none."""
        if not host:
            return self.socket  # HTTP/1.0; no browser speaks that
        found = _HOST.fullmatch(host)
        if found is None:
            return False
        name = found[1].lower()
        if name in self.names:
            return True
        try:
            address = ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            # a name without a dot is nobody's in the internet; scripts call the socket so
            return (self.socket and "." not in name) or (self.loopback and name == "localhost")
        # whoever answers at an address is who has it: only names can be led astray
        return address.is_loopback or not self.loopback

    def check(self, request: web.Request) -> None:
        """HttpError where the request is not meant for us, or comes from another site."""
        asked = f"{request.method[:16]} {request.path[:80]}"
        host = request.headers.get("Host", "")
        if not self.admits(host):
            following = f"ask for it by its address, or name it in page.hosts of the configuration; {_NEXT}"
            raise HttpError(403, asked, f"{ascii(host)[:80]} is no name of this page", following)
        origin = request.headers.get("Origin")
        if origin is not None and origin.lower() not in self._origins(host.lower()):
            raise HttpError(403, asked, f"another site asks for it ({ascii(origin)[:80]})", _NEXT)
        site = request.headers.get("Sec-Fetch-Site", "none")
        # a link to the page may be followed from anywhere: it brings no rights with it
        followed = request.method == "GET" and request.path == "/"
        if site not in ("same-origin", "none") and not followed:
            raise HttpError(403, asked, "another site asks for it", _NEXT)

    def _origins(self, host: str) -> tuple[str, ...]:
        # without TLS of ours a proxy before us may have its own
        return (f"https://{host}",) if self.secure else (f"http://{host}", f"https://{host}")
