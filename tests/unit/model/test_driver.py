# SPDX-License-Identifier: Apache-2.0
"""Processes, borrowed descriptors and the test switches of the model driver."""

from __future__ import annotations

import errno
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from detshare.ctl.abi.versions import UnknownBranch, for_version
from detshare.ctl.backends.model import scenario
from detshare.ctl.backends.model.driver import H100, MEASURED_SECONDS, Call, ModelDriver
from detshare.ctl.backends.model.objects import Kind
from detshare.ctl.backends.model.process import ModelProcess
from detshare.ctl.backends.model.workload import Background
from detshare.ctl.core.driver import Descriptor, DescriptorGone, Driver, NotAllowed, ProcessGone
from tests.unit.model import programs

GET = "NVA06C_CTRL_CMD_GET_TIMESLICE"
TSG = 0x5C000015


def ask(driver: ModelDriver, descriptor: Descriptor, client: int = 0xC1D00000) -> str:
    control = driver.abi.control(GET)
    return driver.abi.status_name(descriptor.control(client, TSG, control.number, bytearray(control.size)))


def test_it_is_a_driver() -> None:
    driver: Driver = ModelDriver()
    assert driver.proof == "model"
    assert driver.version == "580.159.04"
    assert driver.gpus() == [H100]


def test_borrow_fails_as_pidfd_getfd_would() -> None:
    driver = ModelDriver()
    process = scenario.cuda_process(driver)
    device_fd = process.opener().device_fds[0][0]
    for fd in (99, device_fd):
        with pytest.raises(DescriptorGone, match="no /dev/nvidiactl any more"), driver.borrow(process.id, fd):
            pass
    driver.deny = True
    with pytest.raises(NotAllowed, match="run as root"), driver.borrow(process.id, 3):
        pass
    driver.machine.kill(process)
    with pytest.raises(ProcessGone, match="has ended"), driver.borrow(process.id, 3):
        pass
    assert driver.borrowed == 0


def test_a_reused_pid_is_another_process() -> None:
    driver = ModelDriver()
    old = scenario.cuda_process(driver)
    driver.machine.kill(old)
    new = scenario.cuda_process(driver, pid=old.id.pid)
    assert new.id.pid == old.id.pid
    assert new.id.start > old.id.start
    assert not driver.alive(old.id)
    assert driver.alive(new.id)
    with pytest.raises(ProcessGone, match="has ended"), driver.borrow(old.id, 3):
        pass


def test_a_borrowed_descriptor_keeps_a_dead_process_clients_until_it_is_given_back() -> None:
    driver = ModelDriver()
    process = scenario.cuda_process(driver)
    with driver.borrow(process.id, 3) as descriptor:
        driver.machine.kill(process)
        assert ask(driver, descriptor) == "NV_OK"
        assert driver.counts().objects > 100
        # the other descriptor, NVML's, was not borrowed
        assert len(driver.rm.clients) == 1
    assert driver.counts().objects == 0
    with pytest.raises(OSError, match="given back") as error:
        ask(driver, descriptor)
    assert error.value.errno == errno.EBADF


def test_a_process_can_die_before_any_control() -> None:
    driver = ModelDriver()
    process = scenario.cuda_process(driver)
    seen: list[Call] = []

    def die(call: Call) -> None:
        seen.append(call)
        driver.machine.kill(process)

    driver.before_control = die
    with driver.borrow(process.id, 3) as descriptor:
        assert ask(driver, descriptor) == "NV_OK"
    assert [(call.name, call.target) for call in seen] == [(GET, TSG)]
    assert not driver.alive(process.id)
    assert driver.counts().objects == 0


def test_injection_latency_and_counters() -> None:
    driver = ModelDriver()
    process = scenario.cuda_process(driver)
    slept: list[float] = []
    driver.sleep = slept.append
    with driver.borrow(process.id, 3) as descriptor:
        ask(driver, descriptor)
        assert slept == []
        driver.latency = MEASURED_SECONDS
        driver.inject[GET] = driver.abi.status("NV_ERR_INVALID_STATE")
        assert ask(driver, descriptor) == "NV_ERR_INVALID_STATE"
    assert slept == [MEASURED_SECONDS[GET]]
    assert driver.calls[GET] == 2
    assert driver.borrows == 1


def test_a_thread_for_each_gpu_may_act_at_once() -> None:
    """Channels are switched by who walks all clients, while another thread makes and frees one."""
    driver = ModelDriver()
    process = scenario.cuda_process(driver)
    for n in range(40):
        scenario.cuda_process(driver, f"other {n}")
    layout = driver.abi.params("NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS")
    control = driver.abi.control("NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS")
    objects = driver.rm.clients[0xC1D00000].objects
    channel = next(handle for handle, node in objects.items() if node.channel is not None)
    subdevice = next(handle for handle, node in objects.items() if node.kind is Kind.SUBDEVICE)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    over = threading.Event()
    with ThreadPoolExecutor(1) as other, driver.borrow(process.id, 3) as descriptor:

        def others() -> None:
            while not over.is_set():
                driver.newest_client()

        making = other.submit(others)
        try:
            for disable in (1, 0) * 100:
                params = layout.pack(bDisable=disable, numChannels=1)
                layout.put(params, "hClientList", 0xC1D00000, 0)
                layout.put(params, "hChannelList", channel, 0)
                status = descriptor.control(0xC1D00000, subdevice, control.number, params)
                assert driver.abi.status_name(status) == "NV_OK"
        finally:
            over.set()
            sys.setswitchinterval(interval)
        making.result()


def test_every_measured_latency_names_a_control() -> None:
    assert set(MEASURED_SECONDS) <= set(ModelDriver().abi.controls)


def test_an_unknown_branch_runs_its_programs_but_not_our_tables() -> None:
    driver = ModelDriver(version="610.43.02")
    scenario.cuda_process(driver)
    assert driver.version == "610.43.02"
    with pytest.raises(UnknownBranch, match="610"):
        for_version(driver.version)


@pytest.mark.parametrize("version", ["535.288.01", "550.163.01", "570.211.01", "590.48.01", "595.45.04"])
def test_every_branch_of_the_tables_works(version: str) -> None:
    driver = ModelDriver(version=version)
    process = scenario.cuda_process(driver)
    with driver.borrow(process.id, 3) as descriptor:
        assert ask(driver, descriptor) == "NV_OK"


def test_fork_shares_clients_and_the_last_opener_ends_them() -> None:
    driver = ModelDriver()
    parent = scenario.cuda_process(driver)
    child = driver.machine.fork(parent)
    assert child.opener().control_fds == parent.opener().control_fds
    assert child.parent == parent.id.pid
    with driver.borrow(child.id, 3) as descriptor:
        assert ask(driver, descriptor) == "NV_OK"
    driver.machine.kill(parent)
    assert driver.counts().objects > 100
    driver.machine.kill(child)
    assert driver.counts().objects == 0


def test_exec_keeps_the_process_and_drops_its_descriptors() -> None:
    driver = ModelDriver()
    process = scenario.cuda_process(driver)
    driver.machine.exec(process, "/usr/bin/sleep 100")
    assert driver.alive(process.id)
    assert process.comm == "sleep"
    assert driver.openers() == []
    assert driver.counts().objects == 0


def test_the_count_of_objects_changes_with_births_and_deaths_only() -> None:
    driver = ModelDriver()
    before = driver.counts().objects
    driver.newest_client()
    assert driver.counts().objects == before
    process = scenario.opened_only(driver)
    assert driver.counts().objects == before + 1
    driver.machine.kill(process)
    assert driver.counts().objects == before


def test_scenarios_have_the_measured_shapes() -> None:
    driver = ModelDriver(gpus=(H100, programs.second_gpu()))

    def groups(process: ModelProcess) -> list[int]:
        nodes = [
            node
            for file in process.fds.values()
            for client in driver.rm.clients_of(file)
            for node in client.objects.values()
            if node.kind is Kind.TSG
        ]
        return [sum(c.kind is Kind.CHANNEL for c in node.children.values()) for node in nodes]

    assert groups(scenario.cuda_process(driver)) == [8, 4, 4, 4]
    assert groups(scenario.cuda_process(driver, base=0xBEEF0000)) == [8, 4, 4, 4]
    assert groups(scenario.two_contexts(driver)) == [8, 4, 4, 4] * 2
    assert groups(programs.multi_gpu(driver)) == [8, 4, 4, 4] * 2
    assert groups(programs.nvml_process(driver)) == []
    assert groups(scenario.opened_only(driver)) == []
    assert groups(programs.mps_control(driver)) == []
    server = programs.mps_server(driver)
    assert groups(server) == [1, 4, 4, 4]
    assert groups(programs.mps_client(driver, server)) == [2, 4, 4, 4, 1]
    for process in list(driver.machine.processes.values()):
        driver.machine.kill(process)
    assert driver.counts().objects == 0
    assert [gpu.tsgs for gpu in driver.gpu_models] == [[], []]


def test_usage_names_memory_and_share() -> None:
    driver = ModelDriver()
    process = scenario.cuda_process(driver, memory=123)
    programs.nvml_process(driver)
    driver.machine.start_work(process, driver.gpu_models[0], Background())
    driver.machine.advance(2)
    usage = driver.usage()
    key = (process.id.pid, H100.uuid)
    assert dict(usage.memory_bytes) == {key: 123}
    assert usage.gpu_share[key] == pytest.approx(1.0, abs=0.01)
