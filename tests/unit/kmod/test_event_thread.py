# SPDX-License-Identifier: Apache-2.0
"""What is told of the kernel module's events, and when; and what doctor makes of the module's own words."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from detshare.ctl.backends.module import event_thread, module
from detshare.ctl.core.snapshot import Event
from detshare.ctl.netlink import genl
from detshare.ctl.netlink.errors import ModuleAbsent
from detshare.ctl.netlink.events import event
from detshare.ctl.netlink.glance import Glance
from detshare.ctl.netlink.records import EventRow, GpuRow, Status
from tests.patience import comes, until

ORDER, TURN = genl.DETSHARE_HOLD_ORDER, genl.DETSHARE_HOLD_TURN


class Listener:
    """Gives events as a test puts them in."""

    def __init__(self, cgroup_name: object) -> None:
        self.more = threading.Event()
        self.events: list[Event] = []
        self.fail = False
        self.attends: list[bool] = []
        self.worth = lambda kind, seen: True
        self.glances: list[tuple[str, Glance]] = []

    def attend(self, on: bool) -> None:
        if on != bool(self.attends and self.attends[-1]):
            self.attends.append(on)

    def glance(self, kind: str, pid: int, vctx_id: int) -> None:
        self.glances.append((kind, Glance(0, vctx_id, 0, pid)))
        self.more.set()

    def wait(self, seconds: float | None = None) -> bool:
        return self.more.wait(seconds)

    def drain(self) -> list[Event]:
        self.more.clear()
        if self.fail:
            raise OSError(9, "closed")
        while self.glances:
            assert not self.worth(*self.glances.pop(0)), "nobody reads it"
        found, self.events = self.events, []
        return found

    def close(self) -> None:
        pass

    def hear(self, cmd: int, **more: int) -> None:
        row = EventRow(cmd, time=time.monotonic_ns(), vctx_id=more.pop("vctx_id", 1), pid=42, **more)
        self.events.append(event(row))
        self.more.set()


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[event_thread.EventThread, Listener]]:
    listeners: list[Listener] = []
    threads: list[threading.Thread] = []

    def listen(cgroup_name: object) -> Listener:
        listeners.append(Listener(cgroup_name))
        threads.append(threading.current_thread())
        return listeners[-1]

    monkeypatch.setattr(event_thread, "Listener", listen)
    made = event_thread.EventThread(str)
    assert threads[0] is not threading.current_thread()  # a socket of pyroute2 belongs to the thread that made it
    yield made, listeners[0]
    made.close()


def test_one_that_cannot_begin_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def listen(cgroup_name: object) -> Listener:
        raise ModuleAbsent("not loaded")

    monkeypatch.setattr(event_thread, "Listener", listen)
    with pytest.raises(ModuleAbsent, match="not loaded"):
        event_thread.EventThread(str)


def after(made: event_thread.EventThread, number: int) -> list[str]:
    found: list[Event] = []

    def enough() -> bool:
        found.extend(made.drain())
        return len(found) >= number

    comes(enough, 10)
    time.sleep(0.05)
    return [each.kind for each in [*found, *made.drain()]]


def once_read(made: event_thread.EventThread, kernel: Listener) -> list[str]:
    """What is kept when all that was put in is read."""
    comes(lambda: not kernel.glances and not kernel.events and not kernel.more.is_set(), 10)
    time.sleep(0.05)
    return [each.kind for each in made.drain()]


def test_who_works_is_told_where_it_is_asked_for(heard: tuple[event_thread.EventThread, Listener]) -> None:
    made, kernel = heard
    edges: list[tuple[int, bool]] = []
    made.edge = lambda pid, works: edges.append((pid, works))
    assert kernel.attends == []
    made.attends = True
    kernel.glance("kick", 42, 1)
    kernel.glance("kick", 42, 2)
    kernel.glance("quiet", 42, 1)
    kernel.glance("kick", 43, 3)
    kernel.glance("quiet", 42, 2)
    assert once_read(made, kernel) == []
    assert edges == [(42, True), (42, True), (43, True), (42, False)], "42 works until its last vCtx is quiet"
    kernel.glance("kick", 42, 1)
    kernel.hear(genl.DETSHARE_CMD_VCTX_GONE, vctx_id=1)
    kernel.more.set()
    assert after(made, 1) == ["vctx-gone"]
    kernel.glance("quiet", 42, 2)
    assert once_read(made, kernel) == []
    assert edges[-1] == (42, False), "one that is gone works no more"
    made.attends = False
    kernel.more.set()
    comes(lambda: kernel.attends == [True, False], 10)
    assert once_read(made, kernel) == []


def test_turns_are_not_told_what_is_ordered_is(heard: tuple[event_thread.EventThread, Listener]) -> None:
    made, kernel = heard
    kernel.hear(genl.DETSHARE_CMD_GATED, reasons=TURN)
    kernel.hear(genl.DETSHARE_CMD_OPENED, reasons=0)
    kernel.hear(genl.DETSHARE_CMD_GATED, reasons=TURN | ORDER)
    kernel.hear(genl.DETSHARE_CMD_GATED, reasons=TURN, vctx_id=2)
    kernel.hear(genl.DETSHARE_CMD_OPENED, reasons=0, vctx_id=2)
    kernel.hear(genl.DETSHARE_CMD_OPENED, reasons=0)
    kernel.hear(genl.DETSHARE_CMD_KICK, idle_ns=5)
    assert after(made, 2) == ["gated", "opened"]
    assert not made.changed()
    kernel.hear(genl.DETSHARE_CMD_TSG_NEW)
    assert after(made, 1) == ["tsg-new"]
    assert made.changed()
    assert not made.changed()


def test_a_context_that_went_while_held_is_not_remembered(heard: tuple[event_thread.EventThread, Listener]) -> None:
    made, kernel = heard
    kernel.hear(genl.DETSHARE_CMD_PAUSED, reasons=ORDER, vctx_id=3)
    kernel.hear(genl.DETSHARE_CMD_GATED, reasons=ORDER, vctx_id=3)
    kernel.hear(genl.DETSHARE_CMD_VCTX_GONE, vctx_id=3)
    kernel.hear(genl.DETSHARE_CMD_OPENED, reasons=0, vctx_id=3)
    kernel.hear(genl.DETSHARE_CMD_RESUMED, reasons=0, vctx_id=3)
    assert after(made, 3) == ["paused", "gated", "vctx-gone"]


def test_who_wants_to_be_told_is_told_at_once(heard: tuple[event_thread.EventThread, Listener]) -> None:
    made, kernel = heard
    told: list[tuple[str, str, float]] = []
    made.tell = lambda found: told.append((found.kind, threading.current_thread().name, found.data["late_us"]))
    kernel.hear(genl.DETSHARE_CMD_DENIED, command=5, denial=0)
    ((kind, thread, late),) = until(lambda: told)
    assert (kind, thread) == ("denied", "kernel-events")
    assert late >= 0
    assert made.drain() == []


def test_a_thread_that_heard_its_last_says_so(heard: tuple[event_thread.EventThread, Listener]) -> None:
    made, kernel = heard
    kernel.fail = True
    kernel.more.set()
    until(lambda: not made.alive)


class Link:
    """What the module says of itself."""

    def status(self) -> Status:
        said = ("doorbell gate: yes", "sampling: no (this kernel cannot tell)")
        return Status("0.1", 2, 2, True, ("nvidia:x",), "580.1", mechanisms=said, denied=3, holds=1, waiting=2)

    def gpus(self) -> list[GpuRow]:
        return [GpuRow(0), GpuRow(1, ceiling=1, ceiling_status=0x17), GpuRow(2, ceiling=2)]


def test_doctor_says_what_the_driver_answers() -> None:
    found = {check.name: check for check in module.checks(Link())}  # type: ignore[arg-type]
    assert (found["doorbell gate"].ok, found["sampling"].ok) == (True, None)
    assert "this kernel cannot tell" in found["sampling"].detail
    assert "3 denied, 1 hold(s), 2 thread(s) waiting" in found["kernel counts"].detail
    assert [found[f"TPC ceiling, GPU {gpu}"].ok for gpu in range(3)] == [None, None, True]
    assert "0x17" in found["TPC ceiling, GPU 1"].detail
    assert "set-ceiling tries it" in found["TPC ceiling, GPU 0"].detail


HOOK = "nvidia_uvm:uvm_va_space_create"


@pytest.mark.parametrize(
    ("parameters", "hooks", "said"),
    [
        ({}, (HOOK,), {}),
        ({"nvidia_uvm/other": "1"}, (HOOK,), {"HMM": True}),
        ({"nvidia_uvm/uvm_disable_hmm": "Y"}, (), {"HMM": True}),
        ({"nvidia_uvm/uvm_disable_hmm": "N"}, (HOOK,), {"HMM": None}),
        ({"nvidia_uvm/uvm_disable_hmm": "N"}, (f"{HOOK} (missing)",), {"HMM": False}),
        ({"nvidia_drm/modeset": "Y"}, (), {"DRM": None}),
        ({"nvidia_drm/modeset": "N"}, (), {}),
    ],
)
def test_doctor_says_what_memory_no_limit_sees(
    tmp_path: Path, parameters: dict[str, str], hooks: tuple[str, ...], said: dict[str, bool | None]
) -> None:
    for name, value in parameters.items():
        owner, _, parameter = name.partition("/")
        (tmp_path / owner / "parameters").mkdir(parents=True)
        (tmp_path / owner / "parameters" / parameter).write_text(value + "\n")
    found = module.unlimited(hooks, tmp_path)
    assert {check.name: check.ok for check in found} == said
    assert all(check.advice for check in found if not check.ok)


def test_doctor_without_the_module() -> None:
    class Nothing:
        def status(self) -> Status:
            raise ModuleAbsent("not loaded")

    (only,) = module.checks(Nothing())  # type: ignore[arg-type]
    assert (only.ok, "insmod" in only.advice) == (False, True)
