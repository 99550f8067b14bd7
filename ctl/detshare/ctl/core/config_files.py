# SPDX-License-Identifier: Apache-2.0
"""What a configuration names and a daemon reads at its start: whether that start would fail for it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from detshare.ctl.core.config import DEFAULT_PATH, Config, ConfigError, Page, Problem
from detshare.ctl.core.config_lines import Lines

if TYPE_CHECKING:
    from ssl import SSLContext  # most commands of who imports this never need it

__all__ = ["certificate", "check_certificate"]


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
