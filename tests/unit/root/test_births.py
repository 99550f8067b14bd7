# SPDX-License-Identifier: Apache-2.0
"""Births as an observer tells them, and what is done at once; with real programs: tests/vm/guest/ebpf_births.py."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from detshare.ctl.abi.versions import for_version
from detshare.ctl.backends.desired import Desired, DesiredState
from detshare.ctl.backends.model import scenario
from detshare.ctl.backends.model.driver import ModelDriver
from detshare.ctl.backends.root import birth_observer, early_apply
from detshare.ctl.backends.root.actuator import Actuator
from detshare.ctl.backends.root.adopt import Adopter
from detshare.ctl.backends.root.birth_observer import BirthObserver, Context
from detshare.ctl.backends.root.early_apply import EarlyApply
from detshare.ctl.backends.root.journal import Journal
from detshare.ebpf.loader import Trouble
from detshare.ebpf.records import Decoder, Kind, Record
from detshare.ebpf.world import ObjectChange, World
from tests.patience import LONG_S, until
from tests.unit.root.conftest import KERNEL

pytestmark = pytest.mark.skipif(KERNEL, reason="of records and the model; tests/vm/guest/ebpf_births.py has programs")
ABI = for_version("580.142")
CONTROL = "NVA06C_CTRL_CMD_SET_TIMESLICE"
PID, FILE, CLIENT = 4711, 10, 0xC1D00001
DEVICE, SUBDEVICE, GROUP, SHARE, CHANNEL, COMPUTE = range(2, 8)


class Tracer:
    """ObjectTracer without a kernel: it tells what the test says."""

    how = "test"

    def __init__(self, abi: object, control: str = "") -> None:
        assert control == CONTROL
        self.world = World(Decoder(ABI), lambda pid, fd: True)
        self.said: queue.Queue[list[ObjectChange]] = queue.Queue()
        self.lost = 0
        self.closed = False
        self.broken = False

    def poll(self, seconds: float, most: int) -> Iterator[ObjectChange]:
        if self.broken:
            raise OSError("the ring is gone")
        try:
            yield from self.said.get(timeout=seconds)
        except queue.Empty:
            return

    def trouble(self) -> Trouble:
        return Trouble(lost=self.lost)

    def close(self) -> None:
        self.closed = True

    def made(self, name: str, handle: int, parent: int, when: int = 1000) -> None:
        block = ABI.layout("NVOS64_PARAMETERS").pack(
            hRoot=CLIENT if parent else 0, hObjectParent=parent, hObjectNew=handle, hClass=ABI.klass(name)
        )
        escape = ABI.constant("NV_ESC_RM_ALLOC")
        self.said.put(self.world.take(Record(when, FILE, PID, 3, len(block), 0, Kind.CALL, 255, escape, bytes(block))))

    def asked(self, control: str, handle: int, when: int = 9000, status: int = 0) -> None:
        number = ABI.control(control).number
        block = ABI.layout("NVOS54_PARAMETERS").pack(hClient=CLIENT, hObject=handle, cmd=number, status=status)
        escape = ABI.constant("NV_ESC_RM_CONTROL")
        self.said.put(self.world.take(Record(when, FILE, PID, 3, len(block), 0, Kind.CALL, 255, escape, bytes(block))))


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    monkeypatch.setattr(birth_observer, "ObjectTracer", Tracer)
    woken = threading.Event()
    made = BirthObserver(ABI, woken.set)
    tracer: Any = made._tracer
    yield SimpleNamespace(births=made, tracer=tracer, woken=woken)
    made.close()
    assert tracer.closed


def context(tracer: Tracer) -> None:
    tracer.made("NV01_ROOT_CLIENT", CLIENT, 0)
    tracer.made("NV01_DEVICE_0", DEVICE, CLIENT)
    tracer.made("NV20_SUBDEVICE_0", SUBDEVICE, DEVICE)
    tracer.made("KEPLER_CHANNEL_GROUP_A", GROUP, DEVICE, when=7777)


def test_a_context_share_makes_a_group_a_context(heard: SimpleNamespace) -> None:
    context(heard.tracer)
    assert heard.woken.wait(LONG_S)
    assert heard.births.contexts() == []  # it may be for copies yet
    heard.woken.clear()
    heard.tracer.made("FERMI_CONTEXT_SHARE_A", SHARE, GROUP)
    assert heard.woken.wait(LONG_S)
    (found,) = heard.births.contexts()
    assert found.heard > 0
    assert replace(found, heard=0) == Context(PID, 3, CLIENT, GROUP, DEVICE, SUBDEVICE, 7777, 1000)
    assert heard.births.contexts() == []
    assert [(born.pid, born.fd, born.client, born.whole) for born in heard.births.take()] == [(PID, 3, CLIENT, True)]


def test_a_slice_that_a_program_sets_itself_is_told_of_its_compute_groups_alone(heard: SimpleNamespace) -> None:
    context(heard.tracer)
    assert not heard.births._computes(heard.tracer.world.clients[CLIENT], GROUP)  # nobody knows yet what it is for
    heard.tracer.made("FERMI_CONTEXT_SHARE_A", SHARE, GROUP)
    until(lambda: bool(heard.births._contexts))
    assert [each.again for each in heard.births.contexts()] == [False]
    heard.tracer.asked(CONTROL, GROUP, status=0x56)  # refused
    heard.tracer.asked(CONTROL, SHARE)
    heard.tracer.asked(CONTROL, 0x999)
    until(lambda: heard.tracer.said.empty())
    assert heard.births.contexts() == []
    heard.woken.clear()
    heard.tracer.asked(CONTROL, GROUP, when=9999)
    assert heard.woken.wait(LONG_S)
    (found,) = heard.births.contexts()
    assert replace(found, heard=0) == Context(PID, 3, CLIENT, GROUP, DEVICE, SUBDEVICE, 7777, 9999, again=True)


def test_who_sets_it_again_and_again_is_left_to_looks(heard: SimpleNamespace) -> None:
    context(heard.tracer)
    heard.tracer.made("FERMI_CONTEXT_SHARE_A", SHARE, GROUP)
    until(lambda: bool(heard.births._contexts))
    heard.births.contexts()
    heard.tracer.asked(CONTROL, GROUP)
    until(lambda: bool(heard.births._contexts))
    heard.births.contexts()
    heard.births._answered[CLIENT, GROUP] = time.monotonic_ns() + 1_000_000_000
    heard.woken.clear()
    heard.tracer.asked(CONTROL, GROUP)
    assert heard.woken.wait(LONG_S)  # for a look
    assert heard.births.contexts() == []


def test_a_compute_object_on_a_channel_does_too_and_a_copy_engine_does_not(heard: SimpleNamespace) -> None:
    context(heard.tracer)
    heard.tracer.made("HOPPER_CHANNEL_GPFIFO_A", CHANNEL, GROUP)
    heard.tracer.made("HOPPER_DMA_COPY_A", 9, CHANNEL)
    heard.tracer.made("HOPPER_CHANNEL_GPFIFO_A", 10, DEVICE)  # a bare one
    heard.tracer.made("HOPPER_COMPUTE_A", 11, 10)
    heard.woken.clear()
    heard.tracer.made("HOPPER_COMPUTE_A", COMPUTE, CHANNEL)
    assert heard.woken.wait(LONG_S)
    until(lambda: heard.tracer.said.empty())
    found = heard.births.contexts()
    assert [each.tsg for each in found] == [GROUP]


def test_the_group_of_an_mps_server_is_not_its_clients(heard: SimpleNamespace) -> None:
    context(heard.tracer)
    copy = 12
    block = ABI.layout("NVOS55_PARAMETERS").pack(
        hClient=CLIENT, hParent=DEVICE, hObject=copy, hClientSrc=CLIENT, hObjectSrc=GROUP
    )
    escape = ABI.constant("NV_ESC_RM_DUP_OBJECT")
    record = Record(1, FILE, PID, 3, len(block), 0, Kind.CALL, 255, escape, bytes(block))
    heard.tracer.said.put(heard.tracer.world.take(record))
    heard.tracer.made("FERMI_CONTEXT_SHARE_A", SHARE, copy)
    until(lambda: heard.tracer.said.empty())
    assert [born.client for born in heard.births.take()] == [CLIENT]
    assert heard.births.contexts() == []


def test_doctor_tells_of_losses_and_of_an_end(heard: SimpleNamespace) -> None:
    assert heard.births.doctor().ok is True
    heard.tracer.lost = 3
    assert heard.births.doctor().ok is None
    assert "3 event(s) lost" in heard.births.doctor().detail
    heard.tracer.broken = True
    heard.births._thread.join(LONG_S)
    assert heard.births.doctor().ok is False


class Told:
    """Births as early apply sees them."""

    def __init__(self, *contexts: Context) -> None:
        self.told = list(contexts)

    def meet(self, pid: int) -> None:
        raise AssertionError("early apply puts its own here")

    def take(self) -> list[birth_observer.Born]:
        return []

    def contexts(self) -> list[Context]:
        found, self.told = self.told, []
        return found

    def done(self) -> None:
        assert not self.told


@pytest.mark.parametrize("by", ["desired", "command", "nothing", "weight"])
def test_a_context_is_given_what_is_wished_and_nothing_else(
    driver: ModelDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    process = scenario.cuda_process(driver, "python3 train.py")
    (file, client, tsgs) = next(
        (file, client, [n for n in client.objects.values() if n.tsg is not None])
        for file in process.fds.values()
        if file.is_control
        for client in driver.rm.clients_of(file)
    )
    fd = next(number for number, each in process.fds.items() if each is file)
    openers = {opener.id.pid: opener for opener in driver.openers()}
    monkeypatch.setattr(early_apply.procfs, "start_time", lambda pid: openers[pid].id.start if pid in openers else None)
    monkeypatch.setattr(early_apply.procfs, "name", lambda process: openers[process.pid])
    desired_state = DesiredState(tmp_path, driver.proof)
    if by == "desired":
        desired_state.steer(process.id, Desired(klass="low"))
    elif by == "weight":
        desired_state.steer(process.id, Desired(weight=3))
    elif by == "command":
        desired_state.stand({"*train*": "low"})
    actuator = Actuator(driver, driver.abi, Journal(tmp_path, driver.proof))
    handle = tsgs[0].handle
    told = Told(
        Context(process.id.pid, fd, client.handle, handle, tsgs[0].parent, 0, 0),
        Context(1, 3, client.handle, handle, 2, 0, 0),  # no such program
        Context(process.id.pid, fd, client.handle, 0x999, 2, 0, 0),  # no such TSG any more
    )
    adopter = Adopter(driver, driver.abi)
    made = EarlyApply(told, driver, adopter, actuator, desired_state)  # type: ignore[arg-type]
    done = list(made.apply_early())
    if by in ("nothing", "weight"):
        assert done == []
        assert tsgs[0].tsg.slice_us == 2048
    else:
        assert [(who, text.partition(",")[0]) for who, text in done] == [
            (process.id, "a new context brought to class low")
        ]
        assert tsgs[0].tsg.slice_us == 50
    assert list(made.apply_early()) == []
