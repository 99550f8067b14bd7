# SPDX-License-Identifier: Apache-2.0
"""What may be typed at the foot of the screen, and what each text becomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

MAX_WEIGHT: Final = 1000


@dataclass(frozen=True, slots=True)
class Prompt:
    """A line to type."""

    asks: str
    """what is asked for; {who}: the selected program's PID"""
    verb: str
    parse: Callable[[str], Mapping[str, Any]]
    """the verb's arguments; ValueError tells what may be typed"""
    keys: str = "enter sets it, esc leaves"


def _number(text: str, name: str, most: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 9 and 1 <= int(text) <= most):
        raise ValueError(f"{name} is a whole number from 1 to {most}, not {text!r}")
    return int(text)


def _weight(text: str) -> Mapping[str, Any]:
    return {"weight": _number(text, "a weight", MAX_WEIGHT)}


def _share(text: str) -> Mapping[str, Any]:
    return {"percent": _number(text, "a share of the SMs", 100)}


def _size(text: str) -> Mapping[str, Any]:
    from detshare.ctl.core import sizes  # it brings the backends' errors with it, which a frame does not need
    from detshare.ctl.core.backend import BadRequest

    try:
        sizes.parse(text)
    except BadRequest as error:
        raise ValueError(str(error)) from error
    return {"limit": text}


def _policy(text: str) -> Mapping[str, Any]:
    name, *pairs = text.split()
    params = dict(pair.partition("=")[::2] for pair in pairs)
    if any("=" not in pair or pair.startswith("=") for pair in pairs):
        raise ValueError(f"a policy is NAME or NAME key=value, not {text!r}")
    return {"name": name, "params": params}


PROMPTS: Final[Mapping[str, Prompt]] = {
    "filter": Prompt("show only", "", lambda _text: {}, "enter keeps it, esc drops it"),
    "weight": Prompt(f"weight of {{who}} (1..{MAX_WEIGHT})", "set-weight", _weight),
    "sms": Prompt("percent of the SMs for {who} (1..100)", "set-sm", _share),
    "memory": Prompt("memory limit of {who} (8G, 512M, max)", "set-memory", _size),
    "policy": Prompt("policy for all (NAME [key=value])", "policy-set", _policy),
}
