# SPDX-License-Identifier: Apache-2.0
"""The changing verbs: their arguments, checked once for daemon and one-shot commands, and the call they make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from detshare.ctl.abi.versions import UnknownBranch
from detshare.ctl.core import accounts, classes, select, sizes
from detshare.ctl.core.backend import Backend, BadRequest, NeedsModule, NoSpatialLane
from detshare.ctl.core.driver import DriverAbsent, DriverError, NotAllowed, ProcessGone
from detshare.ctl.core.errors import ControlError
from detshare.ctl.core.snapshot import Level, Outcome
from detshare.ctl.rm.client import RmError

VERBS: Final[Mapping[str, tuple[str, ...]]] = {
    "set-priority": ("class", "weight", "floor", "tenant"),
    "set-weight": ("weight",),
    "set-slice": ("slice_us", "level"),
    "pause": (),
    "resume": (),
    "preempt": (),
    "release": (),
    "set-memory": ("limit", "gpu"),
    "tenant-add": (),
    "tenant-attach": ("tenant",),
    "tenant-del": (),
    "set-sm": ("percent", "timeout"),
    "bind": ("pctx", "timeout"),
    "hold": ("lease",),
    "set-bucket": ("rate_us", "burst_us"),
    "set-class": ("weight", "slice_us", "level", "floor_permille", "turn_us", "gpu", "reset"),
    "set-ceiling": ("percent",),
    "set-reserve": ("sms",),
    "set-busy": ("sms",),
    "set-reflex": ("idle", "busy", "linger_us", "floor_permille"),
}
"""Verb -> names of its arguments besides `who`."""

LOAD_MODULE: Final = "load it (insmod detshare.ko, see README.md), restart detshared, then: detshare-ctl doctor"

LEVELS: Final = tuple(level.name.lower() for level in Level)


def check_who(who: object) -> str:
    """`who` as a selector that can be meant. BadRequest otherwise."""
    if not isinstance(who, str):
        raise BadRequest(f"who is {_say(who)}; it is a string: a PID, a container id or a command pattern")
    if not who.isprintable():
        raise BadRequest(f"who {_say(who)} holds characters that cannot be printed; a command pattern may use * or ?")
    select.parse(who)
    return who


def run_verb(backend: Backend, verb: str, who: object, args: Mapping[str, object]) -> Outcome:
    """Check the arguments and call the backend. BadRequest where they cannot be meant; DriverError from the driver."""
    if verb not in VERBS:
        raise BadRequest(f"there is no verb {_say(verb)}; verbs are {', '.join(VERBS)}")
    known = VERBS[verb]
    for name in args:
        if name not in known:
            takes = ", ".join(("who", *known))
            raise BadRequest(f"{verb} has no argument {_say(name)}; it takes {takes}")
    who = check_who(who)
    match verb:
        case "set-priority":
            weight = None if args.get("weight") is None else _integer(verb, "weight", args)
            tenant = _string(verb, "tenant", args) if args.get("tenant") else ""
            return backend.set_priority(who, _string(verb, "class", args), weight, _floor(args), tenant)
        case "set-weight":
            return backend.set_weight(who, _integer(verb, "weight", args))
        case "set-slice":
            return backend.set_slice(who, _integer(verb, "slice_us", args), _level(args))
        case "pause":
            return backend.pause(who)
        case "resume":
            return backend.resume(who)
        case "preempt":
            return backend.preempt(who)
        case "release":
            return backend.release(who)
        case "set-memory":
            return backend.set_memory(who, _limit(args), _gpu(args))
        case "tenant-add":
            return backend.tenant_add(accounts.check_tenant(who))
        case "tenant-attach":
            return backend.tenant_attach(who, accounts.check_tenant(args.get("tenant")))
        case "set-sm":
            return backend.set_sm(who, _integer(verb, "percent", args), _timeout(args))
        case "bind":
            return backend.bind(who, _string(verb, "pctx", args), _timeout(args))
        case "hold":
            return backend.hold(who, _lease(args))
        case "set-bucket":
            burst = None if args.get("burst_us") is None else _integer(verb, "burst_us", args)
            rate = None if args.get("rate_us") is None else _integer(verb, "rate_us", args)
            return backend.set_bucket(who, rate, burst)
        case "set-class":
            return backend.set_class(classes.check_name(who), _class(args))
        case "set-ceiling":
            return backend.set_ceiling(who, _integer(verb, "percent", args))
        case "set-reflex":
            return backend.set_reflex(who, _reflex(verb, args))
        case "set-busy":
            return backend.set_busy(who, None if args.get("sms") is None else _integer(verb, "sms", args))
        case "set-reserve":
            return backend.set_reserve(None if args.get("sms") is None else _integer(verb, "sms", args))
        case _:
            return backend.tenant_del(accounts.check_tenant(who))


def _floor(args: Mapping[str, object]) -> float | None:
    """A floor in percent, as a share of time."""
    value = args.get("floor")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadRequest(f"floor is {_say(value)}; it is a percentage, 0 to {100 * classes.MOST_FLOOR:g}")
    return classes.check_floor(value / 100)


_OPTIONS: Final = frozenset({"floor", "tenant","level", "gpu", "timeout", "lease", "reset"})
"""arguments that are options on the command line too"""

EXPECTED: Final = (BadRequest, DriverError, RmError, UnknownBranch, OSError)
"""what a backend may raise"""


def describe(verb: str, who: object, args: Mapping[str, object]) -> str:
    """The request in one short line, as it would be typed."""
    words = [verb, _say(who) if not isinstance(who, str) or not who.isprintable() else who[:80]]
    for name, value in args.items():
        if value is not None:
            text = value if isinstance(value, str) and value.isprintable() else _say(value)
            words += [f"--{name}", text[:40]] if name in _OPTIONS else [text[:40]]
    return " ".join(words)


def explain(error: Exception, asked: str) -> ControlError:
    """What a backend raised, as an error with a next step."""
    if isinstance(error, ControlError):
        return error
    if isinstance(error, BadRequest):
        return ControlError(asked, str(error), "correct it; see detshare-ctl --help", usage=True)
    if isinstance(error, NeedsModule):
        return ControlError(asked, str(error), LOAD_MODULE)
    if isinstance(error, NoSpatialLane):
        return ControlError(asked, str(error), "start detshared; where it runs, see: detshare-ctl doctor")
    if isinstance(error, NotAllowed):
        return ControlError(asked, str(error), "run it as root (with CAP_SYS_PTRACE), then: detshare-ctl doctor")
    if isinstance(error, DriverAbsent):
        return ControlError(asked, str(error), "load the NVIDIA driver (nvidia-smi must answer), then try again")
    if isinstance(error, ProcessGone):
        return ControlError(asked, str(error), "see which programs are there: detshare-ctl ps")
    if isinstance(error, DriverError | RmError | UnknownBranch | OSError):
        return ControlError(asked, str(error), "see what is wrong with this machine: detshare-ctl doctor")
    stopped = f"an error in DetShare itself ({type(error).__name__}: {error})"
    return ControlError(asked, stopped, "report it with the output of: detshare-ctl doctor --json")


def _say(value: object) -> str:
    try:
        text = ascii(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, or nesting without end
        return f"a {type(value).__name__} too large to show"
    return text if len(text) <= 60 else text[:57] + "..."


def _string(verb: str, name: str, args: Mapping[str, object]) -> str:
    value = args.get(name)
    if not isinstance(value, str):
        raise BadRequest(f"{verb} needs {name}, a string; it got {_say(value)}")
    return value


def _integer(verb: str, name: str, args: Mapping[str, object]) -> int:
    value: Any = args.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadRequest(f"{verb} needs {name}, a whole number; it got {_say(value)}")
    if not -(2**63) <= value < 2**64:
        raise BadRequest(f"{verb}: {name} is far out of range: {_say(value)}")
    return value


MOST_GPUS: Final = 64
"""numbers that --gpu takes; the kernel says which of them there are"""


def _limit(args: Mapping[str, object]) -> int | None:
    value = args.get("limit")
    if isinstance(value, int) and not isinstance(value, bool):
        return sizes.check(value)
    return sizes.parse(_string("set-memory", "limit", args))


def _gpu(args: Mapping[str, object]) -> int | None:
    if args.get("gpu") is None:
        return None
    gpu = _integer("set-memory", "gpu", args)
    if gpu not in range(MOST_GPUS):
        raise BadRequest(f"there is no GPU {gpu}; the header of detshare-top lists them")
    return gpu


LONGEST_WAIT: Final = 30.0
"""seconds that set-sm may wait"""


def _timeout(args: Mapping[str, object]) -> float | None:
    value = args.get("timeout")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LONGEST_WAIT:
        raise BadRequest(f"timeout is {_say(value)}; it is a number of seconds, 0 to {LONGEST_WAIT:g}")
    return float(value)


def _lease(args: Mapping[str, object]) -> int | None:
    if args.get("lease") is None:
        return None
    return classes.check_range("lease", _integer("hold", "lease", args), classes.LEASES_S)


def _class(args: Mapping[str, object]) -> dict[str, object] | None:
    """The part of a row that was named; None: the row is to be as by default."""
    named = {name: value for name, value in args.items() if value is not None and name != "reset"}
    if args.get("reset"):
        if named:
            raise BadRequest("reset takes nothing besides: the whole row is set back")
        return None
    if not set(named) - {"gpu"}:
        raise BadRequest("nothing is to be changed: name weight, slice, level, floor, turn or reset")
    made: dict[str, object] = {name: _integer("set-class", name, named) for name in named if name != "level"}
    if "level" in named:
        made["level"] = _level(named)
    return made


def _reflex(verb: str, args: Mapping[str, object]) -> dict[str, str | int | None]:
    made: dict[str, str | int | None] = {}
    for name in args:
        if args[name] is not None:
            made[name] = _string(verb, name, args) if name in ("idle", "busy") else _integer(verb, name, args)
    return made


def _level(args: Mapping[str, object]) -> Level | None:
    value = args.get("level")
    if value is None:
        return None
    if not isinstance(value, str) or value not in LEVELS:
        raise BadRequest(f"level is {_say(value)}; it is one of {', '.join(LEVELS)}")
    return Level[value.upper()]
