# SPDX-License-Identifier: Apache-2.0
"""The line or lines above the keys: who decides, and what was decided last."""

from __future__ import annotations

import time
from collections.abc import Container, Mapping
from typing import Any

from detshare.ctl.top.values import clean, items, number


def ticker(snapshot: Mapping[str, Any], living: Container[int | None], most: int) -> list[tuple[str, str]]:
    """At most `most` lines of (text, style), the newest first; decisions about programs that ended are dim."""
    policy = snapshot.get("policy")
    name = clean(policy.get("name")) if isinstance(policy, Mapping) else ""
    failed = clean(policy.get("failed")) if isinstance(policy, Mapping) else ""
    if not name:
        return []
    lines = []
    for each in reversed(items(snapshot.get("decisions"))[-most:]):
        when = number(each.get("when"))
        known = when is not None and 0 <= when < 1 << 40
        clock = time.strftime("%H:%M:%S", time.localtime(when)) if known else "--:--:--"
        tenant = clean(each.get("tenant"))
        style = "cyan" if not tenant.isdecimal() or int(tenant[:10]) in living else "dim"
        lines.append((f"{clock} {clean(each.get('text'))}", style))
    if failed:
        head, style = f"policy {name} FAILED: {failed}", "bold red"
    else:
        head, style = f"policy {name}", "cyan"
    if not lines:
        return [(f"{head}: nothing decided yet" if not failed else head, style)]
    if failed:
        return [(head, style), *lines[: most - 1]]
    return [(f"{head}: {lines[0][0]}", lines[0][1]), *lines[1:]]
