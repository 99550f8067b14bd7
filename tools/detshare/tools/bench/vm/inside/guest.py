# SPDX-License-Identifier: Apache-2.0
"""The guest as its programs see it: detshare.ko in and out, what the simulated GPU says is true, leaks, clients."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from detshare.tools.bench.vm.inside.kernel_log import KernelLog

__all__ = [
    "GuestError",
    "account_used",
    "attack_tenant",
    "client",
    "is_loaded",
    "leaks",
    "load",
    "load_driver",
    "main",
    "peak",
    "references",
    "reset_peak",
    "say",
    "settled",
    "start",
    "stop",
    "unload",
    "used",
]

_MODULE = Path("/sys/module/detshare")
_COUNTERS = Path("/sys/kernel/debug/detshare")
_GPU = Path("/sys/kernel/debug/nvsim/gpu0")


class GuestError(RuntimeError):
    """Something in the guest did not do what the experiment needs; the text is for the user."""


def say(**line: Any) -> None:
    """One JSON line to the host."""
    print(json.dumps(line, separators=(",", ":")), flush=True)


def _number(path: Path) -> int:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError) as error:
        raise GuestError(f"read {path}: {error}") from error


# -- modules ------------------------------------------------------------------------------------------------------


def is_loaded() -> bool:
    """Whether detshare.ko is in."""
    return _MODULE.exists()


def _vm_load(*words: str) -> None:
    done = subprocess.run(["vm-load", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise GuestError(f"vm-load {' '.join(words)}: {(done.stderr or done.stdout).strip()}")


def load(*options: str) -> None:
    """Insert detshare.ko where it is not in."""
    if not is_loaded():
        _vm_load("module", *options)


def unload(what: str = "module") -> None:
    """Remove detshare.ko where it is in, or the driver."""
    if what == "driver" or is_loaded():
        _vm_load("-r", what)


def load_driver() -> None:
    """Insert the driver that this guest was started with."""
    _vm_load("driver")


def references(module: str) -> int:
    """Who holds a module."""
    return _number(Path("/sys/module") / module / "refcnt")


def leaks(*, every: bool = False) -> dict[str, int]:
    """What detshare.ko still keeps of clients: all 0 when none is open. `every`: by all of its counters."""
    names = ["objects", "clients", "shadows"]
    if every:
        names = sorted(file.name for file in _COUNTERS.iterdir() if file.read_text().strip().isdecimal())
    return {name: _number(_COUNTERS / name) for name in names}


# -- the simulated GPU --------------------------------------------------------------------------------------------


def used() -> int:
    """Bytes that the GPU has handed out."""
    return _number(_GPU / "used")


def peak() -> int:
    """The most that it had handed out at any moment since `reset_peak`."""
    return _number(_GPU / "peak")


def reset_peak() -> None:
    """Begin anew from what is handed out now."""
    (_GPU / "peak").write_text("0", encoding="ascii")


# -- accounts -----------------------------------------------------------------------------------------------------


@contextmanager
def attack_tenant(name: str, limit: int) -> Iterator[Any]:
    """This process and the children it starts meanwhile are a tenant with a limit; gives the link."""
    from detshare.ctl.core.accounts import Target
    from detshare.ctl.core.snapshot import AccountKind
    from detshare.ctl.netlink.link import Link

    link = Link()
    link.set_tenant(name)
    link.set_limit(Target(AccountKind.TENANT, name), limit, None)
    link.set_tenant(name, os.getpid())
    try:
        yield link
    finally:
        link.del_tenant(name)
        link.close()


def account_used(link: Any, name: str) -> tuple[int, int, int]:
    """(used, peak, refused) of a tenant's account."""
    for row in link.limits():
        if row.tenant == name:
            return row.used, row.peak, row.refused
    raise GuestError(f"detshare.ko lists no limit of tenant {name}")


# -- clients ------------------------------------------------------------------------------------------------------


def client(name: str) -> str:
    """The path of a program of tests/nvclient, which the host built."""
    path = Path(os.environ.get("DETSHARE_NVCLIENT", "build/nvclient")) / name
    if not path.exists():
        raise GuestError(f"run {name}: there is no {path}; next: make -C tests/nvclient")
    return str(path)


def start(name: str, *words: object, **more: Any) -> subprocess.Popen[str]:
    """Start one; what it says on stdout is read by the caller, unless `stdout` says otherwise."""
    more.setdefault("stdout", subprocess.PIPE)
    return subprocess.Popen([client(name), *map(str, words)], text=True, **more)


def stop(*processes: subprocess.Popen[str]) -> None:
    """kill -9, and wait."""
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
    for process in processes:
        process.wait()


def settled(seconds: float, *, every: bool = False) -> dict[str, int]:
    """Leaks after everybody has gone; closing may lag behind an exit, so up to so many seconds are given."""
    end = time.monotonic() + seconds
    while any((kept := leaks(every=every)).values()) and time.monotonic() < end:
        time.sleep(0.01)
    return kept


def main(body: Any) -> None:
    """Run a guest program's body, then tell what the kernel's log held; GuestError is a sentence and exit code 1."""
    log = KernelLog()
    try:
        body()
        tally = log.close()
        say(event="log", lines=tally.lines, lost=tally.lost, faults=len(tally.faults), first=tally.faults[:1])
    except GuestError as error:
        print(f"guest: {error}", file=sys.stderr)
        sys.exit(1)
