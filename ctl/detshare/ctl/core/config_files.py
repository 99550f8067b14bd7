# SPDX-License-Identifier: Apache-2.0
"""What a configuration names on this machine: whether a daemon's start would fail for it, and what it leaves without
effect."""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Callable
from typing import TYPE_CHECKING

from detshare.ctl.core import sizes
from detshare.ctl.core.config import DEFAULT_PATH, Access, Config, ConfigError, Page, Problem
from detshare.ctl.core.config_lines import Lines
from detshare.ctl.core.config_values import shown

if TYPE_CHECKING:
    from ssl import SSLContext  # most commands of who imports this never need it

__all__ = ["certificate", "check_certificate", "doubts"]


def check_certificate(found: Config) -> None:
    """ConfigError where page.listen cannot speak TLS with page.certificate and page.key."""
    if not found.page.listen or not found.page.certificate:
        return
    try:
        certificate(found.page)
    except PermissionError as error:
        if os.geteuid() == 0:
            raise _refused(found, error) from error
        # a key is for root's eyes: who is not root cannot tell
    except OSError as error:
        raise _refused(found, error) from error


def certificate(page: Page) -> SSLContext:
    """TLS 1.2 or newer with page.certificate and page.key. OSError (ssl.SSLError is one) where they cannot be used."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(page.certificate, page.key or None, password=lambda: "")
    return context


def _refused(found: Config, error: OSError) -> ConfigError:
    key = "page.certificate"
    reason = f"{found.page.certificate} and its key cannot be used ({error.strerror or error})"
    line = 0
    if found.path is not None:
        line = Lines(found.path.read_text(encoding="utf-8")).of(("page", "certificate"))
    return ConfigError(
        found.path or DEFAULT_PATH, [Problem(line, key, f"{reason}; both are PEM files, the key without a passphrase")]
    )


def doubts(found: Config) -> list[Problem]:
    """What a daemon would start with, and what is not meant so on this machine: a group or a user that it lacks, more
    host memory than it has. Users of a directory that does not answer are missing, too; the usual group is the
    package's to make."""
    if found.path is None:
        return []
    lines, access = Lines(found.path.read_text(encoding="utf-8")), found.access
    said: list[tuple[str, str, str]] = []
    if access.group not in ("", Access().group) and not _known(grp.getgrnam, access.group):
        reason = f"there is no group {shown(access.group)} here: the socket would be root's alone"
        said.append(("access", "group", reason))
    said += [
        ("access", "users", f"there is no user {shown(user)} here")
        for user in access.users
        if not _known(pwd.getpwnam, user)
    ]
    host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if (arena := found.park.bytes) > host:
        reason = f"it is {sizes.text(arena)}, and this host has {sizes.text(host)}"
        said.append(("park", "arena", reason))
    return [Problem(line, f"{section}.{key}", why) for section, key, why in said if (line := lines.of((section, key)))]


def _known(find: Callable[[str], object], name: str) -> bool:
    try:
        find(name)
    except KeyError:
        return False
    return True
