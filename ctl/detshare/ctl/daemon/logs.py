# SPDX-License-Identifier: Apache-2.0
"""The daemon's log on standard error: lines for people, or one JSON object a line for machines.

Where standard error is systemd's journal, lines for people become entries with fields. Both hold texts of other
processes; no control character of theirs gets through, so that nobody forges a line.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Mapping
from typing import Any, Final

from detshare.ctl.core.snapshot import Event
from detshare.ctl.daemon import journald
from detshare.ctl.daemon.access import Caller, user_name

__all__ = ["FORMATS", "audit", "begin", "event", "level", "set_level"]

FORMATS: Final = ("text", "json")
_AUDIT: Final = logging.getLogger("detshared.audit")
_LONGEST: Final = 4000
"""characters of a message"""


def event(log: logging.Logger, told: Event) -> None:
    """What `detshare-ctl events` shows; an error is for those too who log warnings alone."""
    level = logging.WARNING if told.kind == "error" else logging.INFO
    log.log(level, "%s%s: %s", told.kind, f" {told.pid}" if told.pid else "", told.text)


def _clean(text: str) -> str:
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        head, *trace = super().format(record).split("\n")
        # what a traceback shows is our own source; a message with line ends in it is somebody's text
        message = record.getMessage()
        if "\n" in message:
            cut = message.count("\n")
            head, trace = "\\n".join([head, *trace[:cut]]), trace[cut:]
        return "\n".join([_clean(head), *(_clean(line) for line in trace)])


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        when = time.gmtime(record.created)
        line: dict[str, Any] = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', when)}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage()[:_LONGEST],
        }
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, separators=(",", ":"), default=str)


def begin(level: str, form: str) -> None:
    """Log to standard error from now on, or to the journal where it is that and `form` is text."""
    journal = form == "text" and journald.is_stderr()
    handler: logging.Handler = journald.Journal(_clean) if journal else logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if form == "json" else _Text("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def level() -> str:
    """How much is logged: debug, info, warning or error."""
    return logging.getLevelName(logging.getLogger().level).lower()


def set_level(name: str) -> None:
    """Log as much as that from now on."""
    logging.getLogger().setLevel(name.upper())


def audit(
    caller: Caller | None,
    verb: str,
    asked: str,
    result: str,
    *,
    reason: str = "",
    more: Mapping[str, Any] | None = None,
) -> None:
    """One line for each change that was asked for, whatever became of it.

    `result`: changed, unchanged, refused or failed. `caller` None: the daemon itself, by its policy.
    """
    who = {"uid": None, "user": "", "pid": None} if caller is None else {
        "uid": caller.uid, "user": user_name(caller.uid), "pid": caller.pid or None,
    }  # fmt: skip
    fields = {"event": "audit", **who, "verb": verb, "asked": asked, "result": result, "reason": reason, **(more or {})}
    text = "the policy" if caller is None else caller.text
    told = f": {reason}" if reason else ""
    # warning: an audit trail does not depend on how much else is logged
    _AUDIT.warning("%s: %s: %s%s", text, asked, result, told, extra={"fields": fields})
