# SPDX-License-Identifier: Apache-2.0
"""Lines of JSON that programs under measurement print: each an object that says by `event` what it is."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

__all__ = ["Line", "events"]

Line = dict[str, Any]


def events(output: Iterable[str]) -> Iterator[Line]:
    """Those of a program's output, as they come; a library's chatter between them is passed over."""
    for text in output:
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict) and "event" in line:
            yield line
