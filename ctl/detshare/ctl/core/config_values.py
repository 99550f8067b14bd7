# SPDX-License-Identifier: Apache-2.0
"""What each value of the configuration may be. Every check returns the value as it is used, or raises Bad."""

from __future__ import annotations

import ipaddress
import math
import os
import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from detshare.ctl.core import sizes
from detshare.ctl.core.backend import BadRequest

BACKENDS: Final = ("auto", "kmod", "root", "model")
LEVELS: Final = ("debug", "info", "warning", "error")
FORMATS: Final = ("text", "json")
CLASSES: Final = ("high", "normal", "low", "idle")
MOST_PATTERN: Final = 4096
INTERVALS: Final = (0.02, 60.0)
MOST_TIERS: Final = 16
LONGEST_ROOM: Final = 86_400.0
LEAST_ARENA: Final = 2 << 20
"""bytes: a grain; "64" holds none, and is hardly meant"""
MOST_SMS: Final = 4096
MOST_GPUS: Final = 64
"""numbers that GPUs have; who has them says which of them there are"""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,62}")
_PARAMETER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_ACCOUNT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.@-]{0,255}\$?")
_HOST: Final = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*(?<!\.[0-9])")
_GPU: Final = re.compile(r"GPU-[0-9a-f-]{8,40}")


class Bad(ValueError):
    """A value that cannot be used; `below`: which part of it."""

    def __init__(self, reason: str, *below: str | int) -> None:
        super().__init__(reason)
        self.below = below


def shown(value: object) -> str:
    """A value as the file has it, short."""
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return str(value).lower()
    try:
        text = ascii(value) if isinstance(value, str) else str(value)
    except ValueError:  # an integer of thousands of digits
        return "a number too large to show"
    return text if len(text) <= 40 else text[:37] + "..."


def _one_of(value: object, allowed: Collection[str]) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise Bad(f"it is {shown(value)}; it is one of {', '.join(allowed)}")
    return value


def check_backend(value: object) -> str:
    """auto, kmod, root or model."""
    return _one_of(value, BACKENDS)


def check_level(value: object) -> str:
    """How much is logged."""
    return _one_of(value, LEVELS)


def check_log_format(value: object) -> str:
    """How lines are logged."""
    return _one_of(value, FORMATS)


def arena_bytes(text: str) -> int | None:
    """Bytes of a size, or of a share of the host's memory such as 50%. None where it is neither."""
    if found := re.fullmatch(r"([1-9][0-9]?)%", text):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * int(found[1]) // 100
    try:
        return sizes.parse(text)
    except BadRequest:
        return None


def check_arena(value: object) -> str:
    """How much host memory: a size, or a share of the host's such as 50%."""
    if not isinstance(value, str) or (arena_bytes(value) or 0) < LEAST_ARENA:
        sizes_are = 'a size such as "64G", 2M at least, or a share of the host\'s memory: "1%" to "99%"'
        raise Bad(f"it is {shown(value)}; it is {sizes_are}")
    return value


def check_wait(value: object) -> float:
    """Seconds; 0 for none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LONGEST_ROOM:
        raise Bad(f"it is {shown(value)}; it is a number of seconds, 0 to {LONGEST_ROOM:g}")
    return float(value)


def check_flag(value: object) -> bool:
    """Yes or no."""
    if not isinstance(value, bool):
        raise Bad(f"it is {shown(value)}; it is true or false")
    return value


def check_classes(value: object) -> dict[str, str]:
    """Command patterns and the class that each gives."""
    if not isinstance(value, dict):
        raise Bad(f"it is {shown(value)}; it is a table: classes = {{ \"*train.py*\" = \"low\" }}")
    for pattern, klass in value.items():
        if not pattern.strip() or not pattern.isprintable() or len(pattern) > MOST_PATTERN:
            raise Bad(f"no command line is like that: some text, {MOST_PATTERN} characters at most", pattern)
        if not isinstance(klass, str) or klass not in CLASSES:
            raise Bad(f"it is {shown(klass)}; it is one of {', '.join(CLASSES)}", pattern)
    return dict(value)


def check_interval(value: object) -> float:
    """Seconds between looks."""
    low, high = INTERVALS
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise Bad(f"it is {shown(value)}; it is a number of seconds from {low:g} to {high:g}")
    return float(value)


def check_policy(value: object) -> str:
    """A policy's name, or the path of its file; whether there is one is seen when it is loaded."""
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= 4096 or value != value.strip():
        raise Bad(f"it is {shown(value)}; it is a policy's name such as \"slo-aware\", or the path of a .py file")
    if not _NAME.fullmatch(value) and "/" not in value:
        raise Bad(f"{shown(value)} is no policy's name, and no path: a path has a / in it (/etc/detshare/mine.py)")
    return value


def check_parameters(value: object) -> dict[str, str]:
    """A policy's parameters, as text: the policy itself knows their types."""
    if not isinstance(value, dict):
        raise Bad(f"it is {shown(value)}; it is a table: parameters = {{ quota = 0.5 }}")
    made: dict[str, str] = {}
    for name, each in value.items():
        if not _PARAMETER.fullmatch(name):
            raise Bad("no parameter can be called so", name)
        if not isinstance(each, str | int | float) or (isinstance(each, float) and not math.isfinite(each)):
            raise Bad(f"it is {shown(each)}; it is a string, a number, true or false", name)
        if isinstance(each, str) and not each.isprintable():
            raise Bad("it holds characters that cannot be printed", name)
        try:
            made[name] = str(each).lower() if isinstance(each, bool) else str(each)
        except ValueError:
            raise Bad("it is a number too large to show", name) from None
    return made


def check_gpu_tables(value: object) -> dict[str, object]:
    """A table of tables."""
    if not isinstance(value, dict):
        raise Bad(f"it is {shown(value)}; each GPU has a table of its own: [policy.gpus.1]")
    return value


def check_gpu_policy(gpu: str, table: object) -> tuple[str, dict[str, str]]:
    """Name and parameters of the policy of one GPU; whether there is such a GPU is seen at the start."""
    known = ("name", "parameters")
    if gpu.startswith("MIG-"):
        raise Bad("a policy is of a whole GPU, not of a MIG instance: give the number of the GPU that it was cut of")
    number = gpu.isdecimal() and gpu.isascii() and len(gpu) < 3 and int(gpu) < MOST_GPUS and gpu == str(int(gpu))
    if not number and not _GPU.fullmatch(gpu):
        numbers = f"a number as in /dev/nvidia1, 0 to {MOST_GPUS - 1}"
        raise Bad(f"{shown(gpu)} is no GPU; it is {numbers}, or a UUID as nvidia-smi -L has it: GPU-...")
    if not isinstance(table, dict):
        raise Bad(f'it is {shown(table)}; it is a table: [policy.gpus.{gpu}] with name = "strict"')
    for key in table:
        if key not in known:
            raise Bad(f"there is no such key; [policy.gpus.{gpu}] takes {', '.join(known)}", key)
    if "name" not in table:
        raise Bad("name is missing")
    try:
        name = check_policy(table["name"])
    except Bad as error:
        raise Bad(str(error), "name") from None
    try:
        return name, check_parameters(table.get("parameters", {}))
    except Bad as error:
        raise Bad(str(error), "parameters", *error.below) from None


def _percent(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 100


def check_tiers(value: object) -> tuple[int, ...]:
    """Shares of the SMs in percent, ascending, 100 among them: somebody has to be able to have all."""
    if not isinstance(value, list) or not value:
        raise Bad(f"it is {shown(value)}; it is a list of percents such as [10, 25, 50, 75, 100]")
    for each in value:
        if not _percent(each):
            raise Bad(f"{shown(each)} is no share in percent: a whole number from 1 to 100")
    if len(value) > MOST_TIERS:
        raise Bad(f"{len(value)} tiers are more than a program's board has room for: {MOST_TIERS} at most")
    if len(set(value)) != len(value):
        raise Bad("a tier occurs twice")
    if 100 not in value:
        raise Bad("100 is missing: a program that nobody confines has the whole GPU")
    return tuple(sorted(value))


def check_tables(value: object) -> list[dict[str, Any]]:
    """A list of tables."""
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise Bad(f"it is {shown(value)}; each exclusive pCtx is a table of its own: [[pool.exclusive]]")
    return value


def check_exclusive(table: Mapping[str, object], taken: Collection[str]) -> tuple[str, int, str]:
    """Name, SMs and GPU of an exclusive pCtx."""
    known = ("name", "sms", "gpu")
    for key in table:
        if key not in known:
            raise Bad(f"there is no such key; [[pool.exclusive]] takes {', '.join(known)}", key)
    for key in ("name", "sms"):
        if key not in table:
            raise Bad(f"{key} is missing")
    name, sms, gpu = table["name"], table["sms"], table.get("gpu", "")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise Bad(f"it is {shown(name)}; it is a letter or _, then letters, digits, _ . -, 63 at most", "name")
    if name in taken:
        raise Bad(f"two exclusive pCtxs are called {name}", "name")
    if isinstance(sms, bool) or not isinstance(sms, int) or not 0 < sms <= MOST_SMS:
        raise Bad(f"it is {shown(sms)}; it is a number of SMs from 1 to {MOST_SMS}", "sms")
    if not isinstance(gpu, str) or (gpu and not _GPU.fullmatch(gpu)):
        raise Bad(f"it is {shown(gpu)}; it is a GPU's UUID as nvidia-smi -L has it: GPU-...", "gpu")
    return name, sms, gpu


def check_group(value: object) -> str:
    """A group's name; whether there is one is seen at the start. Empty: no group."""
    if not isinstance(value, str) or (value and not _ACCOUNT.fullmatch(value)):
        raise Bad(f"it is {shown(value)}; it is a group's name, or \"\" for none")
    return value


def check_users(value: object) -> tuple[str, ...]:
    """Names of users."""
    if not isinstance(value, list):
        raise Bad(f"it is {shown(value)}; it is a list of users such as [\"ann\", \"bob\"]")
    for each in value:
        if not isinstance(each, str) or not _ACCOUNT.fullmatch(each):
            raise Bad(f"{shown(each)} is no user's name")
    return tuple(dict.fromkeys(value))


def _address(value: object, wanted: str) -> tuple[str, int, bool]:
    """Host, port, and whether that is loopback, of an address such as 127.0.0.1:9835 or [::1]:9835."""
    host, colon, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    if not colon or not (port.isdecimal() and port.isascii() and len(port) < 6 and 0 < int(port) < 65536):
        raise Bad(f"it is {shown(value)}; {wanted}")
    try:
        address = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        raise Bad(f"it is {shown(value)}; {wanted}") from None
    if (address.version == 6) is not host.startswith("["):
        raise Bad(f"it is {shown(value)}; {wanted}")
    return host, int(port), address.is_loopback


def check_listen(value: object) -> str:
    """A loopback address and a port: figures name programs and users of this machine."""
    wanted = 'it is "127.0.0.1:9835" or "[::1]:9835", or "" for none'
    if value == "":
        return ""
    host, port, loopback = _address(value, wanted)
    if not loopback:
        raise Bad(f"{host} is not this machine's loopback: {wanted}; to be read from elsewhere, put a proxy before it")
    return f"{host}:{port}"


def check_page(value: object) -> str:
    """An address and a port."""
    wanted = 'it is "127.0.0.1:9836", "[::1]:9836", with TLS any address of this machine, or "" for none'
    if value == "":
        return ""
    host, port, _ = _address(value, wanted)
    return f"{host}:{port}"


def check_file(value: object) -> str:
    """The path of a file; whether it can be used is seen when it is read."""
    if not isinstance(value, str) or (value and (not value.startswith("/") or not value.isprintable())):
        raise Bad(f'it is {shown(value)}; it is a path that begins with /, or "" for none')
    return value


def check_hosts(value: object) -> tuple[str, ...]:
    """Names of this machine."""
    if not isinstance(value, list):
        raise Bad(f'it is {shown(value)}; it is a list of names such as ["gpu1.example.org"]')
    for each in value:
        if not isinstance(each, str) or not _HOST.fullmatch(each):
            raise Bad(f"{shown(each)} is no machine's name; it has no port and no address")
    return tuple(dict.fromkeys(value))
