# SPDX-License-Identifier: Apache-2.0
"""What a stress run does to the module: one random thing at a time, by netlink, signals, cgroups, insmod and rmmod."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyroute2.netlink.exceptions import NetlinkError

from detshare.ctl.netlink import genl
from detshare.tools.bench.vm.inside import guest
from detshare.tools.bench.vm.inside.stress_clients import PATIENCE, Crowd

__all__ = ["STEPS", "Step", "World"]

MIB = 1 << 20
TENANTS = ("red", "green", "blue")
CLASSES = ("high", "middle", "low")
CGROUPS = Path("/sys/fs/cgroup/stress")
TRACING = Path("/sys/kernel/tracing")
MOST_CLIENTS = 8
LONGEST_HOLD_MS = 500
WORKERS = 3
_GONE = {errno.ENOENT, errno.ESRCH}
"""a program or a row that ended before it was named"""


class World:
    """The guest: the crowd, the module and the daemon. `chance` decides everything."""

    def __init__(self, chance: random.Random, crowd: Crowd, folder: Path) -> None:
        self.chance = chance
        self.crowd = crowd
        self.done: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.slowest: dict[str, float] = {}
        self._folder = folder
        self._family: genl.DetShare | None = None
        self._daemon: subprocess.Popen[bytes] | None = None

    # -- the module ---------------------------------------------------------------------------------------------

    @property
    def family(self) -> genl.DetShare:
        """A connection; a new one after each `drop`."""
        if self._family is None:
            self._family = genl.DetShare()
        return self._family

    def drop(self) -> None:
        """The module goes: its family number means nothing any more."""
        if self._family is not None:
            self._family.close()
            self._family = None

    def knows(self, *commands: str) -> bool:
        """Whether this module and this package have these commands."""
        return all(hasattr(genl.DetShare, command) for command in commands)

    def account(self) -> dict[str, Any]:
        """Somebody: a program, a tenant or a cgroup."""
        client = self.crowd.any()
        kind = self.chance.randrange(3)
        if kind == 0 and client is not None:
            return {"kind": genl.DETSHARE_KIND_PID, "pid": client.pid}
        if kind == 1:
            return {"kind": genl.DETSHARE_KIND_CGROUP, "cgroup_id": self.cgroup().stat().st_ino}
        name = self.chance.choice(TENANTS)
        self.family.tenant_set(name)
        return {"kind": genl.DETSHARE_KIND_TENANT, "tenant": name}

    def cgroup(self) -> Path:
        """A folder, made where it is missing."""
        below = self.chance.choice(("a", "b", "a/c"))
        folder = CGROUPS / below
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    # -- the daemon ---------------------------------------------------------------------------------------------

    def start_daemon(self) -> None:
        """One with the kernel backend; it may still be starting when this returns."""
        words = ["-m", "detshare.ctl.daemon.detshared", "--backend", "kmod", "--run-dir", str(self._folder / "run")]
        with (self._folder / "daemon.log").open("ab") as log:
            self._daemon = subprocess.Popen(
                [sys.executable, "-P", *words], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )

    def kill_daemon(self) -> bool:
        """kill -9; whether there was one."""
        if self._daemon is None:
            return False
        self._daemon.kill()
        self._daemon.wait(PATIENCE)
        self._daemon = None
        return True


Action = Callable[[World], str | None]


@dataclass(frozen=True)
class Step:
    """`go` does it; it returns why it did nothing, if so. `share` is relative to those of the others."""

    name: str
    share: int
    go: Action
    needs: tuple[str, ...] = ()

    def run(self, world: World) -> None:
        """Refusals are counted; what ended meanwhile is none."""
        begin = time.monotonic()
        try:
            nothing = self.go(world)
        except NetlinkError as error:
            if error.code not in _GONE:
                words = str(error.args[1]) if len(error.args) > 1 else os.strerror(error.code)
                world.refused[f"{self.name}: {errno.errorcode.get(error.code, error.code)} {words[:60]}"] += 1
            return
        finally:
            took = time.monotonic() - begin
            world.slowest[self.name] = max(took, world.slowest.get(self.name, 0.0))
        if nothing is None:
            world.done[self.name] += 1


def _limit(world: World) -> str | None:
    account = world.account()
    if world.chance.random() < 0.4:
        world.family.limit_del(**account)
    else:
        world.family.limit_set(world.chance.choice((0, 1, 8, 32, 256, 4096)) * MIB, **account)
    return None


def _tenant(world: World) -> str | None:
    name, client = world.chance.choice(TENANTS), world.crowd.any()
    if client is not None and world.chance.random() < 0.7:
        world.family.tenant_set(name, client.pid)
    elif world.chance.random() < 0.5:
        world.family.tenant_set(name)
    else:
        world.family.tenant_del(name)
    return None


def _order(world: World) -> str | None:
    subject, choice = world.account(), world.chance.choice
    if world.chance.random() < 0.3:
        world.family.sched_del(**subject)
        return None
    slice_us = choice((None, 200, 1000, 5000, 50000))
    weight = choice((None, 1, 3, 16, 1000)) if slice_us is None else None
    percent = choice((None, None, 10, 50, 100))
    world.family.sched_set(
        klass=choice(CLASSES), slice_us=slice_us, level=choice((0, 1, 2)), weight=weight, tpc_percent=percent, **subject
    )
    return None


def _hold(world: World) -> str | None:
    subject, chance = world.account(), world.chance
    if chance.random() < 0.3:
        world.family.hold_del(**subject)
        return None
    gate = chance.random() < 0.7
    world.family.hold_set(gate, not gate or chance.random() < 0.5, chance.randrange(1, LONGEST_HOLD_MS), **subject)
    return None


def _preempt(world: World) -> str | None:
    world.family.preempt(**world.account())
    return None


def _class(world: World) -> str | None:
    name, choice = world.chance.choice(CLASSES), world.chance.choice
    if world.chance.random() < 0.3:
        world.family.class_del(name)
        return None
    world.family.class_set(
        name,
        slice_us=choice((None, 50, 2000, 20000)),
        level=choice((None, 0, 2)),
        turn_us=choice((None, 5000, 100_000)),
        turn_rank=choice((None, 1, 5, 10)),
        floor_permille=choice((20, 100, 900)),  # never without: a worker that starves counts as lost
    )
    return None


def _bucket(world: World) -> str | None:
    subject, chance = world.account(), world.chance
    if chance.random() < 0.4:
        world.family.bucket_del(**subject)
    else:
        world.family.bucket_set(
            chance.choice((50_000, 200_000, 900_000)), chance.choice((None, 1000, 500_000)), **subject
        )
    return None


def _move(world: World) -> str | None:
    client = world.crowd.any()
    if client is None:
        return "nobody"
    to = world.cgroup() if world.chance.random() < 0.8 else CGROUPS.parent
    with contextlib.suppress(ProcessLookupError):
        (to / "cgroup.procs").write_text(str(client.pid))
    return None


def _remove_cgroup(world: World) -> str | None:
    folder = world.cgroup()
    # programs are moved in more often than they end: without this all three can stay in use until the end
    if world.chance.random() < 0.5:
        _empty(folder)
    try:
        folder.rmdir()
    except OSError as error:
        if error.errno not in (errno.EBUSY, errno.ENOTEMPTY):
            raise
        return "in use"
    return None


def _empty(cgroup: Path) -> None:
    for pid in (cgroup / "cgroup.procs").read_text(encoding="ascii").split():
        with contextlib.suppress(ProcessLookupError):
            (CGROUPS.parent / "cgroup.procs").write_text(pid, encoding="ascii")


def _birth(world: World) -> str | None:
    workers = sum(client.worker for client in world.crowd.clients)
    if workers < WORKERS:
        world.crowd.bear(worker=True)
    elif len(world.crowd.clients) < MOST_CLIENTS:
        world.crowd.bear(worker=False)
    else:
        return "enough"
    return None


def _death(world: World) -> str | None:
    client = world.crowd.any(worker=None if world.chance.random() < 0.2 else False)
    if client is None:
        return "nobody"
    world.crowd.kill(client)
    return None


def _end(world: World) -> str | None:
    if (client := world.crowd.any(worker=True)) is None:
        return "nobody"
    _release(world)
    world.crowd.end(client)
    return None


def _stop(world: World) -> str | None:
    client = world.crowd.any()
    if client is None:
        return "nobody"
    with _signalled(client.pid, signal.SIGSTOP, signal.SIGCONT):
        time.sleep(world.chance.uniform(0.0, 0.1))
    return None


@contextlib.contextmanager
def _signalled(pid: int, first: int, last: int) -> Iterator[None]:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, first)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, last)


def _read(world: World) -> str | None:
    family = world.family
    for name in ("status_get", "gpu_get", "vctx_get", "tsg_get", "limit_get", "tenant_get", "sched_get"):
        getattr(family, name)()
    for name in ("entity_get", "class_get", "bucket_get", "hold_get", "denied_get"):
        if world.knows(name):
            getattr(family, name)()
    for file in Path("/sys/kernel/debug/detshare").iterdir():
        file.read_text()
    return None


def _trace(world: World) -> str | None:
    events = TRACING / "events" / "detshare" / "enable"
    if not events.exists():
        return "no tracepoints"
    events.write_text("1")
    time.sleep(world.chance.uniform(0.0, 0.05))
    events.write_text("0")
    (TRACING / "trace").write_text("")
    return None


def _reload(world: World) -> str | None:
    world.drop()
    guest.unload()
    time.sleep(world.chance.uniform(0.0, 0.1))
    guest.load()
    return None


def _restart_driver(world: World) -> str | None:
    world.crowd.kill(*world.crowd.clients)
    world.kill_daemon()
    first = world.chance.random() < 0.5
    if first:
        world.drop()
        guest.unload()
    guest.unload("driver")
    if not first and world.chance.random() < 0.5:
        world.drop()
        guest.unload()
    guest.load_driver()
    guest.load()
    return None


def _daemon(world: World) -> str | None:
    if not world.kill_daemon():
        world.start_daemon()
    return None


def _release(world: World) -> None:
    """Everything that could keep somebody waiting is taken back."""
    for name in ("hold", "bucket", "class"):
        if world.knows(f"{name}_get", f"{name}_del"):
            _delete_all(world, name)


def _delete_all(world: World, name: str) -> None:
    for message in getattr(world.family, f"{name}_get")():
        prefix = f"DETSHARE_A_{name.upper()}_"
        row = {key.removeprefix(prefix).lower(): value for key, value in message["attrs"] if key.startswith(prefix)}
        names = ("name", "gpu") if name == "class" else ("kind", "pid", "cgroup_id", "tenant", "gpu")
        with contextlib.suppress(NetlinkError):
            getattr(world.family, f"{name}_del")(**{key: row[key] for key in names if key in row})


def release_all(world: World) -> None:
    """Holds, buckets, classes, orders and limits are taken back."""
    _release(world)
    _delete_all(world, "sched")
    _delete_all(world, "limit")
    for name in TENANTS:
        with contextlib.suppress(NetlinkError):
            world.family.tenant_del(name)


STEPS = (
    Step("limit", 20, _limit),
    Step("tenant", 10, _tenant),
    Step("order", 20, _order),
    Step("hold", 15, _hold, ("hold_set",)),
    Step("preempt", 3, _preempt, ("preempt",)),
    Step("class", 8, _class, ("class_set",)),
    Step("bucket", 5, _bucket, ("bucket_set",)),
    Step("move", 10, _move),
    Step("remove cgroup", 3, _remove_cgroup),
    Step("birth", 20, _birth),
    Step("death", 8, _death),
    Step("end", 3, _end),
    Step("stop", 5, _stop),
    Step("read", 10, _read),
    Step("trace", 3, _trace),
    Step("reload", 4, _reload),
    Step("daemon", 2, _daemon),
    Step("restart driver", 1, _restart_driver),
)
