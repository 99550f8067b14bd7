# SPDX-License-Identifier: Apache-2.0
"""What may be typed at the foot of the screen, and what each text becomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Prompt:
    """A line to type."""

    asks: str
    """what is asked for; {who}: the selected program's PID"""
    verb: str
    parse: Callable[[str], Mapping[str, Any]] | None = None
    """None: the text is the verb's first argument"""
    keys: str = "enter sets it, esc leaves"

    def read(self, text: str) -> Mapping[str, Any]:
        """The verb's arguments; ValueError tells what may be typed."""
        if self.parse is not None:
            return self.parse(text)
        from detshare.ctl.core.verb import Typed  # they bring much with them that a frame does not need
        from detshare.ctl.core.verbs import VERBS

        arg = VERBS[self.verb].args[0]
        assert isinstance(arg.kind, Typed)
        return {arg.name: arg.kind.typed(text)}



def _policy(text: str) -> Mapping[str, Any]:
    name, *pairs = text.split()
    params = dict(pair.partition("=")[::2] for pair in pairs)
    if any("=" not in pair or pair.startswith("=") for pair in pairs):
        raise ValueError(f"a policy is NAME or NAME key=value, not {text!r}")
    return {"name": name, "params": params}


PROMPTS: Final[Mapping[str, Prompt]] = {
    "filter": Prompt("show only", "", lambda _text: {}, "enter keeps it, esc drops it"),
    "weight": Prompt("weight of {who} (1..1000)", "set-weight"),
    "sms": Prompt("percent of the SMs for {who} (1..100)", "set-sm"),
    "memory": Prompt("memory limit of {who} (8G, 512M, max)", "set-memory"),
    "policy": Prompt("policy for all (NAME [key=value])", "policy-set", _policy),
}
