# SPDX-License-Identifier: Apache-2.0
"""What ends a hold of any kind: exit, exec, fork, sleep of the machine, and the module's or the driver's going.

In each state that the module can bring a program into. Afterwards nobody is held who should not be, nothing is left.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from detshare.ctl.netlink import genl
from tests.patience import ended, run, until
from tests.vm.guest.gate_tools import Door, Gate
from tests.vm.guest.kmod_tools import PID, TENANT, leak, load, row, unload
from tests.vm.guest.sched_tools import Worker, family, runs, tsgs, worker

__all__ = ["family", "worker"]  # fixtures

Workers = Callable[..., Worker]
HOUR_MS = 3_600_000
BUSY = ("nvbackground", "--us", 2000, "--depth", 64)
POWER = Path("/sys/power")
DELAY = Path("/sys/module/suspend/parameters/pm_test_delay")


@dataclass
class Scene:
    """A program, and who else is there. `subject` is who the state is for: the program, or the tenant it belongs to."""

    link: genl.DetShare
    worker: Workers
    door: Door
    tenant: bool = False
    others: list[Door] = field(default_factory=list)

    @property
    def subject(self) -> dict[str, Any]:
        return {"kind": TENANT, "tenant": "crew"} if self.tenant else {"kind": PID, "pid": self.door.pid}

    def rows(self) -> list[dict[str, Any]]:
        return [each for each in tsgs() if each["client"] == self.door.ready["client"]]

    def off(self) -> int:
        """Its channels that are off the run list, as the simulated GPU has it."""
        return sum(each["off"] for each in self.rows())


def hold(scene: Scene, gate: bool, pause: bool) -> None:
    answer = row(scene.link.hold_set(gate=gate, pause=pause, lease_ms=HOUR_MS, **scene.subject))
    assert (answer["gated"], answer["paused"]) == (int(gate), int(pause))


def empty(scene: Scene) -> None:
    """A bucket that takes a minute to be filled by half."""
    scene.link.bucket_set(1000, 100_000, **scene.subject)
    scene.door.do("spin", 0, 1)


def armed(scene: Scene) -> None:
    other = Door()
    scene.others.append(other)
    scene.link.class_set("low", level=genl.DETSHARE_LEVEL_LOW, turn_us=100_000)
    scene.link.sched_set(klass="low", **scene.subject)
    scene.link.sched_set(other.pid, "low")


def waits_for_its_turn(scene: Scene) -> None:
    """Beside a foreground that never rests, with a floor of 0."""
    scene.link.class_set("high", slice_us=20_000, level=genl.DETSHARE_LEVEL_HIGH)
    scene.link.class_set("low", slice_us=50, level=genl.DETSHARE_LEVEL_LOW, turn_us=100_000, turn_rank=1)
    scene.link.sched_set(klass="low", **scene.subject)
    scene.door.do("spin", 0, 1)
    scene.link.sched_set(scene.worker("nvbackground", "--endless").pid, "high")


def capped(scene: Scene) -> None:
    scene.link.sched_set(tpc_percent=25, **scene.subject)


@dataclass(frozen=True)
class State:
    """How a program comes into it, and what is true then."""

    name: str
    enter: Callable[[Scene], None]
    shut: bool = False
    off: bool = False

    def holds(self, scene: Scene) -> bool:
        stats = Gate(scene.door.pid).stats()
        if self.name == "armed":
            return bool(stats["armed"])
        return (bool(stats["reasons"]), bool(scene.off())) == (self.shut, self.off)


STATES = [
    State("armed", armed),
    State("gated", lambda scene: hold(scene, True, False), shut=True),
    State("paused", lambda scene: hold(scene, False, True), off=True),
    State("both", lambda scene: hold(scene, True, True), shut=True, off=True),
    State("bucket", empty, shut=True, off=True),
    State("turn", waits_for_its_turn, off=True),
    State("capped", capped),
]
every_state = pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)


@pytest.fixture
def door() -> Iterator[Door]:
    with Door() as it:
        it.do("kick", 0, 10)
        yield it


@pytest.fixture
def scene(family: genl.DetShare, worker: Workers, door: Door) -> Iterator[Scene]:
    made = Scene(family, worker, door)
    yield made
    for each in made.others:
        each.__exit__(None, None, None)


def enter(state: State, scene: Scene) -> list[int]:
    """Into the state; commands that wait at the door now."""
    state.enter(scene)
    until(lambda: state.holds(scene))
    if not state.shut:
        return []
    waiting = [scene.door.ask("kick", 0, 1) for _ in range(2)]
    assert all(scene.door.waits(number, 0.1) for number in waiting)
    return waiting


def works(door: Door) -> None:
    """Rings get through, and what is launched is carried out, as the simulated GPU counts."""
    client = door.ready["client"]

    def finished() -> int:
        return sum(each["finished"] for each in tsgs() if each["client"] == client)

    before, rung = finished(), door.counted()
    assert door.do("kick", 0, 3)["result"] == 3
    assert door.counted() >= rung + 3
    assert door.do("queue")["result"] == 0
    door.do("ring", 0)
    until(lambda: finished() > before)


def let_go(scene: Scene) -> None:
    """Everything that was asked for is taken back."""
    link, subject = scene.link, scene.subject
    for dump, take in (
        (link.hold_get, link.hold_del), (link.bucket_get, link.bucket_del), (link.sched_get, link.sched_del),
    ):  # fmt: skip
        if any(row(each).get("pid") == subject.get("pid") for each in dump()):
            take(**subject)


def gone(door: Door) -> bool:
    client = door.ready["client"]
    return not Gate(door.pid).stats() and leak("waiting") == 0 and all(each["client"] != client for each in tsgs())


# ---- what a program does


@every_state
@pytest.mark.parametrize("how", ["exit", "kill", "abort", "exec"])
def test_who_ends_takes_along_what_held_it(scene: Scene, state: State, how: str) -> None:
    enter(state, scene)
    door = scene.door
    assert door.process.stdin is not None
    if how == "exit":
        door.process.stdin.close()
    elif how == "kill":
        door.process.kill()
    else:
        door.ask(how)
    until(lambda: gone(door))
    others = {each["pid"] for each in runs(scene.link)}
    assert door.pid not in others
    if how == "exec":
        # the same process: what is meant for it stays, and is for its next context
        assert door.process.poll() is None
        return
    ended(door.process)
    for dump in (scene.link.hold_get, scene.link.bucket_get, scene.link.sched_get):
        until(lambda dump=dump: all(row(each).get("pid") != door.pid for each in dump()))  # type: ignore[misc]


@every_state
def test_a_fork_changes_nothing_for_the_parent(scene: Scene, state: State) -> None:
    waiting = enter(state, scene)
    off = scene.off()
    # it ends at once, with all that it inherited
    assert scene.door.do("child", 0, 0)["result"] == 0
    ringing = scene.door.ask("child", 0, 5)
    if state.shut:
        assert scene.door.waits(ringing)
        assert all(scene.door.waits(number, 0) for number in waiting)
        assert scene.off() == off
        let_go(scene)
    done = scene.door.end(ringing)
    assert (done["result"], done["signal"]) == (0, 0)
    for number in waiting:
        assert scene.door.end(number)["result"] == 1
    scene.door.do("halt")
    let_go(scene)
    until(lambda: scene.off() == 0)
    works(scene.door)


# ---- what the machine does


def sleep_and_wake() -> list[str]:
    """A suspend of the machine to the point where devices would go off, and back; the kernel's words for it."""
    log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    os.lseek(log, 0, os.SEEK_END)
    DELAY.write_text("1")
    (POWER / "pm_test").write_text("freezer")
    try:
        (POWER / "state").write_text("freeze")
    finally:
        (POWER / "pm_test").write_text("none")
    words = []
    while True:
        try:
            words.append(os.read(log, 8192).decode(errors="replace").partition(";")[2])
        except BlockingIOError:
            os.close(log)
            return words


class Told:
    """What the module's tracepoint says of gates and pauses."""

    FOLDER = Path("/sys/kernel/tracing")

    def __enter__(self) -> Told:
        (self.FOLDER / "trace").write_text("")
        (self.FOLDER / "events/detshare/detshare_hold/enable").write_text("1")
        return self

    def __exit__(self, *_: object) -> None:
        (self.FOLDER / "events/detshare/detshare_hold/enable").write_text("0")

    def lines(self) -> list[str]:
        return re.findall(r"detshare_hold: (.*)", (self.FOLDER / "trace").read_text())


@every_state
def test_a_machine_that_sleeps_holds_nobody_and_remembers(scene: Scene, state: State) -> None:
    waiting = enter(state, scene)
    with Told() as told:
        words = sleep_and_wake()
        assert any("Freezing user space processes completed" in each for each in words), "nobody could not be frozen"
        until(lambda: state.holds(scene))
        lines = told.lines()
    if state.shut or state.off:
        # who was held was let go, and is held again
        assert len([line for line in lines if str(scene.door.pid) in line]) >= 2, lines
    if state.shut:
        # those that waited got through meanwhile, or wait again: nothing is lost
        # (who got through on a busy machine may say so a little later)
        until(lambda: all(scene.door.waits(n, 0.1) for n in waiting if scene.door.said(n, "end", 0) is None))
    scene.door.do("halt") if not state.shut else None
    let_go(scene)
    for number in waiting:
        assert scene.door.end(number)["result"] == 1
    scene.door.do("halt")
    until(lambda: scene.off() == 0)
    works(scene.door)


def test_the_driver_sleeps_while_programs_are_held(scene: Scene) -> None:
    """As the driver's own suspend: calls, faults and channels stand still, then all goes on; holds stand."""
    state = next(each for each in STATES if each.name == "both")
    waiting = enter(state, scene)
    thread = threading.Thread(target=Path("/sys/kernel/debug/nvsim/gpu0/suspend").write_text, args=("1000",))
    thread.start()
    time.sleep(0.3)
    # the driver answers after it has woken
    scene.link.hold_del(**scene.subject)
    thread.join()
    for number in waiting:
        assert scene.door.end(number)["result"] == 1
    until(lambda: scene.off() == 0)
    works(scene.door)


# ---- what an administrator does


@every_state
def test_the_module_goes_and_everybody_goes_on(worker: Workers, door: Door, state: State) -> None:
    with genl.DetShare() as link:
        scene = Scene(link, worker, door)
        waiting = enter(state, scene)
    unload()
    try:
        for number in waiting:
            assert door.end(number)["result"] == 1
        door.do("halt")
        assert scene.off() == 0
        works(door)
    finally:
        load()
        for each in scene.others:
            each.__exit__(None, None, None)
    # what comes back finds nobody held, and can hold anew
    with genl.DetShare() as link:
        for dump in (link.hold_get, link.bucket_get, link.sched_get, link.class_get):
            assert dump() == ()
        door.do("map", 1)
        until(lambda: bool(Gate(door.pid).stats()))
        assert Gate(door.pid).stats()["reasons"] == 0
        again = Scene(link, worker, door)
        hold(again, True, True)
        assert again.off() > 0
        link.hold_del(**again.subject)
        assert again.off() == 0
    works(door)


@every_state
def test_the_driver_goes_with_all_programs_and_comes_back(family: genl.DetShare, worker: Workers, state: State) -> None:
    """A reset of the GPU too: the driver resets none that is open. What is for a tenant is for its next program."""
    family.tenant_set("crew")
    with Door() as door:
        family.tenant_set("crew", door.pid)
        scene = Scene(family, worker, door, tenant=True)
        enter(state, scene)
        for each in [*scene.others, door]:
            each.process.kill()
            each.process.wait()
    for pid in {each["pid"] for each in runs(family)}:
        os.kill(pid, 9)
    until(lambda: tsgs() == [] and leak("clients") == 0)
    run(["vm-load", "-r", "driver"], check=True)
    assert runs(family) == []
    assert (leak("waiting"), leak("doors"), leak("clients")) == (0, 0, 0)
    run(["vm-load", "driver"], check=True)
    with Door() as door:
        family.tenant_set("crew", door.pid)
        again = Scene(family, worker, door, tenant=True)
        if state.name in ("gated", "paused", "both"):
            until(lambda: state.holds(again))
            waiting = door.ask("kick", 0, 1)
            assert door.waits(waiting) == state.shut
            family.hold_del(**again.subject)
            door.end(waiting)
        family.tenant_del("crew")
        until(lambda: again.off() == 0 and not Gate(door.pid).stats()["reasons"])
        works(door)
    until(lambda: gone(door))
