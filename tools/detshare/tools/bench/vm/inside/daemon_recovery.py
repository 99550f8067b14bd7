# SPDX-License-Identifier: Apache-2.0
"""kill -9 of detshared at random points, over and over, while programs use the GPU and verbs come in.

Each daemon is forked from a process that has its modules loaded: an emulated processor needs ten seconds to load them.
All that it does from its first line on, its guardian included, is as always.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from detshare.ctl.backends.module.holds import LEASE_S
from detshare.ctl.client import Client
from detshare.ctl.core.errors import ControlError
from detshare.ctl.netlink.link import Link
from detshare.tools.bench.vm.inside import guest
from detshare.tools.bench.vm.inside.workers import Worker, workers

RUN: Final = Path("/run/detshare-recovery")
BUSY: Final = ("nvbackground", "--us", 2000, "--depth", 16, "--quiet")
TENANT: Final = "red"
PATIENCE: Final = 600.0
SETTLE: Final = 0.5
"""seconds in which a program that nobody holds has to be seen on the GPU; once more where the machine is slow"""
LONGEST: Final = 5.0
"""seconds after its first answer in which a daemon is killed"""


class Nursery:
    """A process that has loaded the daemon's modules, and forks daemons. Made before there is any thread."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair()
        self.pid = os.fork()
        if not self.pid:
            self._ours.close()
            _serve_nursery(theirs)
        theirs.close()

    def start(self) -> int:
        """Another daemon; its PID."""
        self._ours.sendall(b"s")
        return int(self._ours.recv(16))

    def kill(self) -> None:
        """kill -9 of the daemon; when this returns it is gone."""
        self._ours.sendall(b"k")
        self._ours.recv(16)

    def ended(self) -> bool:
        """Whether the daemon ended by itself."""
        self._ours.sendall(b"?")
        return self._ours.recv(16) == b"e"

    def close(self) -> None:
        """End it, and the daemon with it."""
        self.kill()
        self._ours.close()
        os.waitpid(self.pid, 0)


def _serve_nursery(link: socket.socket) -> None:
    import aiohttp.web  # noqa: F401  what a daemon loads late, loaded once

    from detshare.ctl.backends.module import backend as kmod  # noqa: F401
    from detshare.ctl.backends.root import guardian
    from detshare.ctl.backends.spatial import backend as shim  # noqa: F401
    from detshare.ctl.core import config
    from detshare.ctl.daemon import detshared, logs
    from detshare.ctl.rm import kernel  # noqa: F401
    from detshare.runtime import service  # noqa: F401

    guardian.START_SECONDS = PATIENCE  # an emulated processor of a busy machine takes long to load one
    child = 0
    while word := link.recv(1):
        if word == b"s":
            child = os.fork()
            if not child:
                link.close()
                log = os.open(str(RUN) + ".log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                os.dup2(log, 2)
                logs.begin("info", "text")
                try:
                    code = detshared.run(RUN, config.Config(daemon=config.Daemon(backend="kmod")))
                except ControlError as error:
                    os.write(2, f"{error}\n".encode())
                    code = 1
                os._exit(code)
            link.sendall(str(child).encode())
        elif word == b"?":
            ended = not child or os.waitpid(child, os.WNOHANG)[0] != 0
            child = 0 if ended else child
            link.sendall(b"e" if ended else b"r")
        else:
            if child:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                child = 0
            link.sendall(b"k")
    os._exit(0)


@dataclass
class Asked:
    """What was asked of a daemon about one thing: the last answer that came, and a request that was not answered."""

    stands: object
    open: list[object] = field(default_factory=list)

    def may_be(self) -> list[object]:
        return [self.stands, *self.open]


class Load:
    """A thread that sends verbs without rest, and knows what has to be true."""

    def __init__(self, chance: random.Random, members: list[Worker]) -> None:
        self._chance = chance
        self.first, self.second, self.limited, self.held = members
        self.asked = {
            "class of the first": Asked(None),
            "class of the second": Asked(None),
            "memory limit": Asked(None),
            "bucket": Asked(None),
            "hold": Asked(False),
        }
        self.answers = 0
        self.go = threading.Event()
        self.idle = threading.Event()
        self._over = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        client = Client(RUN)
        while not self._over:
            if not self.go.is_set():
                self.idle.set()
                self.go.wait()
                self.idle.clear()
            name, value, verb, who, args = self._next()
            asked = self.asked[name]
            asked.open.append(value)
            try:
                client.verb(verb, who, **args)
            except ControlError as error:
                if error.stopped.startswith("no daemon answers"):
                    asked.open.remove(value)  # it was not even sent
                time.sleep(0.02)  # else: killed meanwhile, it may or may not have been done
                continue
            asked.stands, asked.open = value, []
            self.answers += 1

    def _next(self) -> tuple[str, object, str, str, dict[str, Any]]:
        chance = self._chance
        match chance.randrange(6):
            case 0 | 1:
                klass = chance.choice(["high", "normal", "low", "idle"])
                return "class of the first", klass, "set-priority", str(self.first.pid), {"klass": klass}
            case 2:
                klass = chance.choice(["high", "normal", "low", "idle"])
                return "class of the second", klass, "set-priority", str(self.second.pid), {"klass": klass}
            case 3:
                limit = chance.randrange(1, 64) << 30
                return "memory limit", limit, "set-memory", TENANT, {"limit": limit}
            case 4:
                rate = chance.randrange(500_000, 1_000_000)
                return "bucket", rate, "set-bucket", str(self.limited.pid), {"rate_us": rate}
            case _:
                on = chance.random() < 0.5
                return "hold", on, "hold" if on else "resume", str(self.held.pid), {}

    def stop(self) -> None:
        """No request is open any more when this returns."""
        self.go.clear()
        self.idle.wait(PATIENCE)

    def close(self) -> None:
        """End the thread."""
        self._over = True
        self.go.set()
        self._thread.join(PATIENCE)


def _truth(link: Link, load: Load) -> dict[str, object]:
    """What the kernel has."""
    orders = {row.pid: row.klass for row in link.orders() if row.pid}
    limits = {row.tenant: row.limit for row in link.limits() if row.tenant}
    buckets = {row.pid: row.rate_us for row in link.buckets() if row.pid}
    return {
        "class of the first": orders.get(load.first.pid),
        "class of the second": orders.get(load.second.pid),
        "memory limit": limits.get(TENANT),
        "bucket": buckets.get(load.limited.pid),
        "hold": any(row.pid == load.held.pid for row in link.holds()),
    }


def _shown(load: Load) -> dict[str, object]:
    """What the daemon says of the same."""
    answer = Client(RUN).programs()
    programs = {program["pid"]: program for program in answer["programs"]}
    limits = {row["name"]: row["limit"] for row in answer["accounts"] if row["kind"] == "tenant"}
    buckets = {row["name"]: row["rate_us"] for row in answer["buckets"]}
    return {
        "class of the first": programs.get(load.first.pid, {}).get("class"),
        "class of the second": programs.get(load.second.pid, {}).get("class"),
        "memory limit": limits.get(TENANT),
        "bucket": buckets.get(str(load.limited.pid)),
        "hold": any(row["name"] == str(load.held.pid) for row in answer["holds"]),
    }


def _up(nursery: Nursery) -> float:
    """Start daemons until one answers with a look; seconds it took. A guardian may hold the lock for a moment."""
    begun = time.monotonic()
    nursery.start()
    while time.monotonic() - begun < PATIENCE:
        with contextlib.suppress(ControlError):
            Client(RUN).programs()
            return time.monotonic() - begun
        if nursery.ended():
            nursery.start()
        time.sleep(0.02)
    raise guest.GuestError("no daemon answered; its log ends with: " + Path(f"{RUN}.log").read_text()[-2000:])


def _moving(members: list[Worker]) -> list[bool]:
    """Which programs live and get GPU time."""
    before = [member.gpu_us() for member in members]
    for _ in range(8):
        time.sleep(SETTLE)
        moves = [m.gpu_us() > was and m.process.poll() is None for m, was in zip(members, before, strict=True)]
        if all(moves):
            break
    return moves


def _round(number: int, chance: random.Random, nursery: Nursery, load: Load, link: Link, start_s: float) -> float:
    """One kill of the daemon that runs, and what is there after it; seconds that the next one took to answer."""
    members = [load.first, load.second, load.limited]
    early = number % 4 == 3
    answered = load.answers
    renewed = time.monotonic()
    if early:  # while it starts: from its fork on
        nursery.kill()
        renewed = time.monotonic()
        nursery.start()
    killed_at = chance.uniform(0, start_s if early else LONGEST)
    load.go.set()
    time.sleep(killed_at)
    nursery.kill()
    dead = time.monotonic()
    load.stop()
    truth = _truth(link, load)
    wrong = {name: truth[name] for name, asked in load.asked.items() if truth[name] not in asked.may_be()}
    if not early or load.answers != answered:
        renewed = dead
    if "hold" in wrong and not truth["hold"] and time.monotonic() - renewed > LEASE_S / 2:
        del wrong["hold"]  # its lease ended before we looked
    alone = number % 10 == 5
    held_after = None
    if alone:  # nobody starts another daemon: what it held has to go on by itself
        time.sleep(max(0.0, LEASE_S + 1.0 - (time.monotonic() - dead)))
        held_after = len(link.holds())
        members = [*members, load.held]
    moving = _moving(members)
    took = _up(nursery)
    shown, kernel = _shown(load), _truth(link, load)
    told = {name: [shown[name], kernel[name]] for name in shown if shown[name] != kernel[name]}
    lasting = {name: [truth[name], kernel[name]] for name in kernel if name != "hold" and truth[name] != kernel[name]}
    # what was asked for and not answered yet may be done or not, and by whichever daemon
    finished = {name: lasting.pop(name) for name in list(lasting) if kernel[name] in load.asked[name].may_be()}
    for name, asked in load.asked.items():
        asked.stands, asked.open = kernel[name], []
    guest.say(
        event="kill",
        number=number,
        early=early,
        at=round(killed_at, 3),
        answers=load.answers,
        wrong=wrong,
        changed=lasting,
        finished=finished,
        differs=told,
        stopped=moving.count(False),
        alive=sum(m.process.poll() is None for m in (load.first, load.second, load.limited, load.held)),
        held=truth["hold"],
        held_after=held_after,
        restart_s=round(took, 3),
    )
    return took


@contextlib.contextmanager
def _loaded(chance: random.Random) -> Iterator[Load]:
    with workers(*([BUSY] * 4)) as members:
        load = Load(chance, members)
        try:
            yield load
        finally:
            load.close()


def _body() -> None:
    parser = argparse.ArgumentParser(description=__doc__, epilog="example: daemon_recovery --kills 100 --seed 1")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    chance = random.Random(asked.seed)
    guest.load()
    shutil.rmtree(RUN, ignore_errors=True)
    nursery = Nursery()
    link = Link()
    link.set_tenant(TENANT)
    with _loaded(chance) as load:
        start_s = _up(nursery)
        guest.say(event="start", seconds=round(start_s, 3))
        for number in range(asked.kills):
            took = _round(number, chance, nursery, load, link, start_s)
            start_s += (took - start_s) / 4
        nursery.close()
        time.sleep(LEASE_S + 1.0)
        everybody = [load.first, load.second, load.limited, load.held]
        guest.say(event="end", held=len(link.holds()), stopped=_moving(everybody).count(False))
        for member in everybody:
            summary = member.summary()
            guest.say(event="program", count=summary.get("count", 0))
    link.close()


if __name__ == "__main__":
    guest.main(_body)
