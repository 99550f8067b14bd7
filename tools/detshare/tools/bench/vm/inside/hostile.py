# SPDX-License-Identifier: Apache-2.0
"""nvhostile's tricks, one after the other, each in a fresh program; the simulated GPU says which worked.

Two runs of each: one that shows what it can do, without the module if nothing but a hold stands in its way, else with
filter=0; and one with the filter. A neighbour works all the time.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import selectors
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from detshare.tools.bench.vm.inside import guest

_GPU = Path("/sys/kernel/debug/nvsim/gpu0")
_LINES = Path("/sys/module/detshare/parameters/denied_lines")
_KMSG = Path("/dev/kmsg")
_SLICE_US = 1000
_LEVEL = 0
_RAN_US = 20_000  # of GPU time: more than what was on the GPU when it was paused may still show
_ENOUGH_S = 20.0
_REFUSED = {0x1B, 0x5F}  # NV_ERR_INSUFFICIENT_PERMISSIONS, NV_ERR_PROTECTION_FAULT
_GONE = 0x80000000  # the ioctl itself failed
_SET = ("slice_us", "level", "wfi", "endless", "realtime")
"""What the simulator shows of a channel group that a tenant may want otherwise than it was ordered."""
_HURT = (*_SET, "off", "hung")
"""What it shows of one that others did something to."""
_BY_ANSWER = {
    *("preempt", "restart-runlist", "policy", "wfi-bind", "tpc-mode", "tpc-mode-device", "tpc-table"),
    *("other-idle", "other-wfi"),
}
"""Tricks whose effect passes at once or is not shown: the driver's yes, or the mode read back, counts too."""
_HELD = {"run", "ring"}
"""Goals against a pause or a gate. Those alone stand for the program then: no order."""
_BY_CHILD = {"own-slice-child", "own-slice-dup", "own-slice-dup-twice"}
"""Tricks by a child that nobody manages, with what its parent has."""
_AS = {
    # as in a container: every capability but that of an administrator
    "root": ("setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin"),
    "user": ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"),
}

Row = dict[str, int | str]


def _tsgs() -> list[Row]:
    """The simulator's channel groups, by the names of its heading."""
    heading, *lines = (_GPU / "tsgs").read_text(encoding="ascii").splitlines()
    names = heading.split()
    rows = [dict(zip(names, line.split(), strict=True)) for line in lines]
    return [
        {key: int(text, 0) if re.fullmatch(r"0x[0-9a-f]+|\d+", text) else text for key, text in row.items()}
        for row in rows
    ]


def _of(client: int, handle: int) -> Row:
    for row in _tsgs():
        if row["client"] == client and row["handle"] == handle:
            return row
    raise guest.GuestError(f"the simulator shows no channel group {handle:#x} of client {client:#x}")


def _value(row: Row, key: str) -> int:
    return int(row[key])


def _differ(keys: tuple[str, ...], before: Row, after: Row) -> bool:
    return any(before[key] != after[key] for key in keys)


class _Program:
    """A client program with lines in and out."""

    def __init__(self, name: str, *words: object, who: str | None = None) -> None:
        self._process = subprocess.Popen(
            [*(_AS[who] if who else ()), guest.client(name), *map(str, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self._selector = selectors.DefaultSelector()
        assert self._process.stdout is not None
        self._selector.register(self._process.stdout, selectors.EVENT_READ)
        ready = self.read(_ENOUGH_S)
        if ready is None or ready["event"] != "ready":
            raise guest.GuestError(f"{name} did not get ready")
        self.pid, self.client, self.tsg = ready["pid"], ready["client"], ready["tsg"]
        self.channel = ready.get("channel", 0)

    def read(self, seconds: float) -> dict[str, Any] | None:
        """Its next line; None: none in this time, or it has ended."""
        assert self._process.stdout is not None
        if not self._selector.select(seconds):
            return None
        line = self._process.stdout.readline()
        return json.loads(line) if line else None

    def lives(self) -> bool:
        return self._process.poll() is None

    def tell(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text + "\n")
        self._process.stdin.flush()

    def close(self) -> None:
        guest.stop(self._process)
        self._selector.close()


@contextmanager
def _program(name: str, *words: object, who: str | None = None) -> Iterator[_Program]:
    program = _Program(name, *words, who=who)
    try:
        yield program
    finally:
        program.close()


def _version() -> str:
    text = Path("/proc/driver/nvidia/version").read_text(encoding="ascii")
    found = re.search(r"\b\d+\.\d+(\.\d+)?\b", text)
    if found is None:
        raise guest.GuestError(f"no version in {text!r}")
    return found[0]


def _tricks() -> list[dict[str, str]]:
    done = subprocess.run([guest.client("nvhostile"), "--list"], capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def _denials(link: Any) -> set[tuple[int, int, int]]:
    """Process, command and reason of what nvhostile and its children were denied."""
    return (
        set()
        if link is None
        else {(row.pid, row.command, row.reason) for row in link.denied() if row.comm == "nvhostile"}
    )


class _Log:
    """The module's lines about what it did not let through: all of them, however many in a minute."""

    def __init__(self) -> None:
        if _LINES.exists():
            _LINES.write_text(str(1 << 20))
        self._file = os.open(_KMSG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        os.lseek(self._file, 0, os.SEEK_END)

    def lines(self) -> list[str]:
        """Since the last call."""
        lines: list[str] = []
        while True:
            try:
                record = os.read(self._file, 1 << 14).decode(errors="replace")
            except BlockingIOError:
                return lines
            except BrokenPipeError:
                continue
            text = record.partition(";")[2].splitlines()[0]
            if "not let through" in text:
                lines.append(text)


class _Orders:
    """What is ordered for a tenant with one program, so for its children too. `alone`: for the program only.

    Not `ordered`: nothing stands for it until it is held.
    """

    def __init__(self, link: Any, pid: int, *, alone: bool, ordered: bool) -> None:
        from detshare.ctl.core.accounts import Target
        from detshare.ctl.core.driver import ProcessId
        from detshare.ctl.core.snapshot import AccountKind
        from detshare.ctl.netlink.link import Order

        self._link = link
        self._name = f"hostile{pid}"
        self._target = Target(AccountKind.TENANT, self._name)
        link.set_tenant(self._name)
        if alone:
            self._target = Target(AccountKind.PID, str(pid), ProcessId(pid, 0))
        else:
            link.set_tenant(self._name, pid)
        if ordered:
            link.set_order(self._target, Order(slice_us=_SLICE_US, level=_LEVEL))

    def hold(self, *, gate: bool = False, pause: bool = False) -> None:
        row = self._link.hold(self._target, gate=gate, pause=pause, lease_ms=60_000)
        if (gate and not row.gated) or (pause and not row.paused):
            raise guest.GuestError(f"the hostile program is not held: {row}")

    def end(self) -> None:
        self._link.del_tenant(self._name)


def _gpu_time(without: int) -> int:
    """us that all groups ran but those of one client."""
    return sum(_value(row, "gpu_time_us") for row in _tsgs() if row["client"] != without)


def _judge(trick: dict[str, str], status: int | None, before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Whether the simulated GPU shows that a trick worked."""
    name, goal = trick["name"], trick["goal"]
    own, other = (before["own"], after["own"]), (before["other"], after["other"])
    yes = status is not None and not status & _GONE and status not in _REFUSED
    if name in _BY_ANSWER and yes and (status == 0 or name == "other-idle"):
        return True
    if goal == "order":
        return _differ(_SET, *own)
    if goal == "run":
        return bool(after["ran_us"] - before["ran_us"] > _RAN_US)
    if goal == "ring":
        return _value(own[1], "rings") > _value(own[0], "rings")
    if goal == "neighbour":
        return _differ(_HURT, *other)
    return status == 0  # door, tell


def _look(hostile: _Program, neighbour: _Program) -> dict[str, Any]:
    return {
        "own": _of(hostile.client, hostile.tsg),
        "other": _of(neighbour.client, neighbour.tsg),
        "ran_us": _gpu_time(neighbour.client),
    }


def _play(run: str, who: str, trick: dict[str, str], neighbour: _Program, link: Any, log: _Log) -> bool:
    """One trick in a program of its own. True: the neighbour was hurt."""
    with _program("nvhostile", _version(), who=who) as hostile:
        aside = trick["goal"] in _HELD
        alone = trick["name"] in _BY_CHILD
        orders = None if link is None else _Orders(link, hostile.pid, alone=alone, ordered=not aside)
        hostile.tell(f"neighbour {neighbour.client} {neighbour.tsg} {hostile.channel}")
        hostile.read(_ENOUGH_S)
        if trick["goal"] == "run":
            if _goes_on(trick):
                hostile.tell("endless")
                hostile.read(_ENOUGH_S)
            if orders is not None:
                orders.hold(pause=True)
        elif trick["goal"] == "ring" and orders is not None:
            orders.hold(gate=True)
        log.lines()
        known = _denials(link)
        before = _look(hostile, neighbour)
        hostile.tell(trick["name"])
        answer, most_us = _watch(hostile, neighbour)
        if aside:
            time.sleep(0.05)
        after = _look(hostile, neighbour)
        after["ran_us"] = max(after["ran_us"], most_us)
        status = answer["status"] if answer is not None else None
        guest.say(
            event="trick",
            run=run,
            who=who,
            name=trick["name"],
            goal=trick["goal"],
            status=status,
            worked=_judge(trick, status, before, after),
            own=after["own"],
            neighbour=after["other"],
            denied=[list(row) for row in sorted(_denials(link) - known)],
            named=log.lines(),
        )
        if orders is not None:
            orders.end()
    return _differ(_HURT, before["other"], after["other"])


def _watch(hostile: _Program, neighbour: _Program) -> tuple[dict[str, Any] | None, int]:
    """Its answer, and the most GPU time that was seen until then: that of a child is gone with the child."""
    answer, most_us, end = None, 0, time.monotonic() + _ENOUGH_S
    while answer is None and hostile.lives() and time.monotonic() < end:
        answer = hostile.read(0.01)
        most_us = max(most_us, _gpu_time(neighbour.client))
    return answer, most_us


def _alone(neighbour: _Program, seconds: float) -> int:
    """Kernels that the neighbour finishes in this time."""
    before = _value(_of(neighbour.client, neighbour.tsg), "finished")
    time.sleep(seconds)
    return _value(_of(neighbour.client, neighbour.tsg), "finished") - before


def _goes_on(trick: dict[str, str]) -> bool:
    """Whether it is to let run what a pause took off. Without a pause that runs in any case, and shows nothing."""
    return trick["goal"] == "run" and trick["name"].startswith("re")


def _control(trick: dict[str, str]) -> str:
    """The run that shows what a trick can do: filter=0, but a hold holds without the filter too."""
    return "no module" if trick["goal"] in _HELD and not _goes_on(trick) else "no filter"


def _all(run: str, who: str, tricks: list[dict[str, str]], link: Any) -> None:
    log = _Log()
    left = list(tricks)
    while left:
        with _program("nvlatency", "--us", 500, "--period-ms", 10, "--window", 3600) as neighbour:
            begun, first = time.monotonic(), _value(_of(neighbour.client, neighbour.tsg), "finished")
            alone = _alone(neighbour, 2.0) / 2.0
            hurt = False
            while left and not hurt:
                hurt = _play(run, who, left.pop(0), neighbour, link, log)
            row = _of(neighbour.client, neighbour.tsg)
            rate = (_value(row, "finished") - first) / (time.monotonic() - begun)
            guest.say(event="neighbour", run=run, who=who, alone=alone, beside=rate, hurt=hurt)


def _body() -> None:
    parser = argparse.ArgumentParser(description=__doc__, epilog="example: hostile --who user --only own-slice")
    parser.add_argument("--who", choices=sorted(_AS), action="append", help="whom nvhostile runs as (both)")
    parser.add_argument("--only", action="append", help="a trick; may be repeated (all)")
    parser.add_argument(
        "--run", choices=("no module", "no filter", "filter"), action="append", help="(all that a trick needs)"
    )
    asked = parser.parse_args()
    tricks = [trick for trick in _tricks() if not asked.only or trick["name"] in asked.only]
    runs = asked.run or ["no module", "no filter", "filter"]
    for device in Path("/dev").glob("nvidia*"):
        device.chmod(0o666)
    by_run = {run: [trick for trick in tricks if run in ("filter", _control(trick))] for run in runs}
    for who in asked.who or sorted(_AS):
        if "no module" in runs:
            guest.unload()
            _all("no module", who, by_run["no module"], None)
        for run, options in (("no filter", ("filter=0",)), ("filter", ())):
            if run not in runs:
                continue
            guest.unload()
            guest.load(*options)
            from detshare.ctl.netlink.link import Link

            link = Link()
            _all(run, who, by_run[run], link)
            link.close()
    guest.say(event="left", **guest.settled(5.0, every=True))


if __name__ == "__main__":
    guest.main(_body)
