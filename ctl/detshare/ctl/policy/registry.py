# SPDX-License-Identifier: Apache-2.0
"""Policies by name: entry points of the group `detshare.policies`, or a file such as ./mine.py or ./mine.py:Mine."""

from __future__ import annotations

import importlib.util
import inspect
import math
import os
import stat
import sys
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Final

from detshare.ctl.core.errors import ControlError
from detshare.ctl.policy.types import KICKS, Policy

__all__ = ["DEFAULT", "GROUP", "Known", "Loaded", "describe_params", "is_file", "known", "load", "require_safe"]

GROUP: Final = "detshare.policies"
DEFAULT: Final = "slo-aware"
SHIPPED: Final = {
    "slo-aware": "detshare.ctl.policy.shipped.slo_aware:SloAware",
    "tpot-first": "detshare.ctl.policy.shipped.tpot_first:TpotFirst",
    "strict": "detshare.ctl.policy.shipped.strict:Strict",
    "fair": "detshare.ctl.policy.shipped.fair:Fair",
    "cost-aware": "detshare.ctl.policy.shipped.cost_aware:CostAware",
    "token-bucket": "detshare.ctl.policy.shipped.token_bucket:TokenBucket",
    "static": "detshare.ctl.policy.shipped.static:Static",
}
"""the same as in pyproject.toml: also where the package is a tree of links that nobody installed"""
_LIST: Final = "see which there are: detshare-ctl policy list"
_PRIVATE: Final = (Path("/tmp"), Path("/var/tmp"))
"""folders of which the unit gives the daemon its own (PrivateTmp)"""
_TYPES: Final = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


@dataclass(frozen=True, slots=True)
class Known:
    """A policy that can be named. `problem`: why it cannot be loaded."""

    name: str
    where: str
    rule: str = ""
    """the first line of its docstring"""
    params: tuple[tuple[str, str, str], ...] = ()
    """name, type, default"""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A policy object, by what name, with which parameters as they were given."""

    policy: Policy
    name: str
    params: Mapping[str, str]
    rule: str


def _points() -> dict[str, EntryPoint]:
    found = {name: EntryPoint(name, where, GROUP) for name, where in SHIPPED.items()}
    for point in entry_points(group=GROUP):
        found.setdefault(point.name, point)
    return found


def known() -> list[Known]:
    """Every policy that an entry point names, the default first."""
    made = []
    for name, point in _points().items():
        try:
            kind = _of_point(name, point)
        except ControlError as error:
            made.append(Known(name, point.value, problem=error.stopped))
        else:
            made.append(Known(name, point.value, rule_of(kind), describe_params(kind)))
    return made


def is_file(spec: str) -> bool:
    """Whether a policy is named by a file rather than by a name."""
    return "/" in spec or spec.endswith(".py") or ".py:" in spec


def require_safe(spec: str) -> None:
    """ControlError where somebody else than this process's user and root may change the file that a policy is from."""
    if not is_file(spec):
        return
    path = Path(spec.rpartition(":")[0] if ".py:" in spec else spec)
    for each in (path, path.resolve(), path.resolve().parent):
        try:
            found = each.stat()
        except OSError:
            return  # what is not there is told by whoever loads it
        others = found.st_mode & 0o022
        if stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX:
            others = 0  # only an owner takes away or renames what is in there
        if others or found.st_uid not in (0, os.geteuid()):
            stopped = f"{each} can be changed by others (owner uid {found.st_uid}, mode {found.st_mode & 0o7777:04o})"
            following = f"chown it to uid {os.geteuid()} and chmod go-w, or copy it where nobody else writes"
            raise ControlError(f"policy {spec[:200]}", stopped, following)


def load(spec: str, params: Mapping[str, str] | None = None) -> Loaded:
    """The policy of that name or file, with parameters from key=value. ControlError where it cannot be had."""
    asked = f"policy {spec[:200]}"
    if is_file(spec):
        kind = _of_file(asked, spec)
    else:
        points = _points()
        if spec not in points:
            raise ControlError(
                asked, f"there is no policy {spec[:60]!r}; there are {', '.join(points)}", _LIST, usage=True
            )
        kind = _of_point(spec, points[spec])
    given = dict(params or {})
    made = _params(asked, kind, given)
    try:
        policy = kind(made) if _takes_params(kind) else kind()
    except Exception as error:
        stopped = f"{kind.__name__}() raised {type(error).__name__}: {error}"
        raise ControlError(asked, stopped[:400], "mend it, and set it again") from error
    if not hasattr(policy, "params"):
        policy.params = made  # an __init__ of its own that does not call ours
    tick = getattr(policy, "tick_us", 0.0)
    if isinstance(tick, bool) or not isinstance(tick, int | float) or not math.isfinite(tick) or tick < 0:
        raise ControlError(asked, f"its tick_us is {tick!r}", "give a number of microseconds, 0 for no ticks")
    for when in ("kicks", "looks", "ticks"):
        if (said := getattr(kind, when)) not in KICKS:
            raise ControlError(asked, f"its {when} is {said!r}"[:400], f"give one of {', '.join(KICKS)}")
    return Loaded(policy, spec, given, rule_of(kind))


def rule_of(kind: type[Policy]) -> str:
    """What it does, in its own words: the first paragraph of the docstring that says a rule."""
    text = inspect.cleandoc(kind.__doc__ or "") if kind.__doc__ else ""
    return " ".join(text.partition("\n\n")[0].split()).removeprefix("Rule: ")


def describe_params(kind: type[Policy]) -> tuple[tuple[str, str, str], ...]:
    """Name, type and default of each parameter."""
    cls = _params_class(kind)
    hints = typing.get_type_hints(cls)
    return tuple(
        (each.name, getattr(hints[each.name], "__name__", str(hints[each.name])), _shown(each.default))
        for each in fields(cls)
    )


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _params_class(kind: type[Policy]) -> type[Any]:
    cls = getattr(kind, "Params", None)
    if not isinstance(cls, type) or not is_dataclass(cls):
        asked = f"policy {kind.__name__}"
        raise ControlError(asked, "its Params is no dataclass", "write @dataclass(frozen=True) above it")
    return cls


def _takes_params(kind: type[Policy]) -> bool:
    """Whether its __init__ takes the parameters."""
    try:
        signature = inspect.signature(kind)
    except (TypeError, ValueError):
        return True
    return bool(signature.parameters)


def _params(asked: str, kind: type[Policy], given: Mapping[str, str]) -> Any:
    cls = _params_class(kind)
    hints = typing.get_type_hints(cls)
    allowed = {each.name: each for each in fields(cls)}
    takes = ", ".join(f"{name} ({word}, {default})" for name, word, default in describe_params(kind)) or "none"
    values: dict[str, object] = {}
    for name, text in given.items():
        if name not in allowed:
            stopped = f"{kind.__name__} has no parameter {name[:60]!r}; it takes {takes}"
            raise ControlError(asked, stopped, _LIST, usage=True)
        values[name] = _value(asked, name, text, hints[name])
    lacking = [
        n for n, f in allowed.items() if f.default is MISSING and f.default_factory is MISSING and n not in given
    ]
    if lacking:
        raise ControlError(asked, f"it needs {', '.join(lacking)}", f"give {lacking[0]}=VALUE", usage=True)
    try:
        return cls(**values)
    except Exception as error:  # a __post_init__ of the policy's own
        stopped = f"{type(error).__name__}: {error}" if not isinstance(error, ValueError) else str(error)
        raise ControlError(asked, stopped[:400], f"parameters are {takes}", usage=True) from error


def _value(asked: str, name: str, text: str, kind: object) -> object:
    wanted = typing.get_args(kind)[0] if isinstance(kind, types.UnionType) else kind
    try:
        if wanted is bool:
            return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}[text.lower()]
        if wanted is int:
            return int(text)
        if wanted is float:
            value = float(text)
            if math.isfinite(value):
                return value
        elif wanted is str:
            return text
    except (KeyError, ValueError):
        pass
    word = _TYPES.get(wanted, "of a type that no text can be") if isinstance(wanted, type) else "a value"
    raise ControlError(asked, f"{name}={text[:60]!r} is not {word}", f"give {name}={word}", usage=True)


def _of_point(name: str, point: EntryPoint) -> type[Policy]:
    asked = f"policy {name}"
    try:
        kind = point.load()
    except Exception as error:
        stopped = f"{point.value} cannot be loaded: {type(error).__name__}: {error}"
        raise ControlError(asked, stopped[:400], "is its package installed for this Python?") from error
    if not isinstance(kind, type) or not issubclass(kind, Policy):
        raise ControlError(asked, f"{point.value} is no subclass of Policy", "mend its package's entry point")
    return kind


def _of_file(asked: str, spec: str) -> type[Policy]:
    path_text, colon, name = spec.rpartition(":") if ".py:" in spec else (spec, "", "")
    path = Path(path_text)
    module_spec = importlib.util.spec_from_file_location(f"detshare_policy_{path.stem}", path)
    if module_spec is None or module_spec.loader is None or not path.is_file():
        stopped = f"{path} is no Python file"
        following = "name a file that defines a subclass of Policy"
        if private := next((each for each in _PRIVATE if each in path.parents), None):
            following += f"; the service has a {private} of its own: put it elsewhere, in /etc/detshare say"
        raise ControlError(asked, stopped, following, usage=True)
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[module_spec.name] = module  # dataclasses look their annotations up there
    try:
        module_spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[module_spec.name]
        stopped = f"it cannot be loaded: {type(error).__name__}: {error}"
        raise ControlError(asked, stopped[:400], "mend it, and set it again") from error
    found = {
        each.__name__: each
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, Policy) and each.__module__ == module.__name__
    }
    if colon and name not in found:
        stopped = f"it has no subclass of Policy called {name[:60]}; it has {', '.join(found) or 'none'}"
        raise ControlError(asked, stopped, "name one of them", usage=True)
    if not colon and len(found) != 1:
        stopped = f"it defines {len(found)} subclasses of Policy"
        following = f"name one: {path}:{next(iter(found))}" if found else "define one"
        raise ControlError(asked, stopped, following, usage=True)
    return found[name] if colon else next(iter(found.values()))
