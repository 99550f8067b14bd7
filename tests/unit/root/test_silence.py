# SPDX-License-Identifier: Apache-2.0
"""Nothing that we ask writes a line into the kernel log: the model and nvsim write what the driver writes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from detshare.ctl.backends.model import scenario
from detshare.ctl.backends.model.driver import Call, ModelDriver
from detshare.ctl.backends.root.backend import RootBackend
from detshare.ctl.backends.root.guardian import recover
from detshare.ctl.rm.client import RmClient, WrongClient
from tests.unit.model import programs
from tests.unit.root.conftest import Clock
from tests.unit.root.helpers import program, take_all


def control_file(driver: ModelDriver, process: object) -> tuple[int, int]:
    """(descriptor, client) of a process that has one."""
    fds = process.fds  # type: ignore[attr-defined]
    return next((fd, driver.rm.clients_of(file)[0].handle) for fd, file in fds.items() if driver.rm.clients_of(file))


def test_a_control_that_names_no_client_is_logged_and_the_question_for_it_is_not(driver: ModelDriver) -> None:
    """The rest of this file says something only if this is so."""
    process = scenario.cuda_process(driver)
    fd, client = control_file(driver, process)
    absent = driver.newest_client()
    with driver.borrow(process.id, fd) as descriptor:
        assert descriptor.owns(client)
        assert not descriptor.owns(absent)
        with pytest.raises(WrongClient):
            RmClient(descriptor, driver.abi, absent).klass(absent)
        assert driver.rm.kernel_log == []
        info = driver.abi.control("NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO")
        assert descriptor.control(absent, absent, info.number, bytearray(info.size))
    assert len(driver.rm.kernel_log) == 1
    assert "nvCheckOkFailedNoLog" in driver.rm.kernel_log[0]


def test_a_programs_life_leaves_no_line(make: Callable[[], RootBackend], driver: ModelDriver, clock: Clock) -> None:
    programs.nvml_process(driver)
    old = scenario.cuda_process(driver, "old")
    for _ in range(300):
        driver.newest_client()  # the handles that a search goes through
    backend = make()
    backend.look()
    monitor = driver.machine.spawn("monitor")
    take_all(monitor, old)
    young = scenario.opened_only(driver)
    backend.look()
    scenario.make_context(driver, young)
    clock.sleep(1.0)
    assert program(backend, young).compute
    for klass in ("high", "low", "idle"):
        assert backend.set_priority(str(young.id.pid), klass).changed
        clock.sleep(0.3)
        backend.look()
    for process in (old, young):
        assert backend.pause(str(process.id.pid)).changed
        backend.look()
    assert backend.resume(str(old.id.pid)).changed
    assert backend.preempt(str(old.id.pid)).changed
    child = driver.machine.fork(young)
    backend.look()
    driver.machine.kill(young)
    clock.sleep(1.0)
    backend.look()
    assert child.alive
    driver.machine.kill(child)
    backend.release(str(old.id.pid))
    driver.machine.kill(old)
    driver.machine.kill(monitor)
    backend.look()
    clock.sleep(1.0)
    backend.look()
    backend.close()
    assert driver.rm.kernel_log == []


@pytest.mark.parametrize("victim_call", range(0, 60, 5))
def test_a_death_at_any_moment_leaves_no_line(backend: RootBackend, driver: ModelDriver, victim_call: int) -> None:
    victim = scenario.cuda_process(driver, "victim")
    scenario.cuda_process(driver, "other")
    left = [victim_call]

    def kill(_call: Call) -> None:
        left[0] -= 1
        if left[0] < 0:
            driver.machine.kill(victim)

    driver.before_control = kill
    backend.set_priority(str(victim.id.pid), "low")
    backend.look()
    driver.before_control = None
    backend.look()
    assert driver.rm.kernel_log == []


def test_clients_that_their_program_frees_leave_no_line(
    backend: RootBackend, driver: ModelDriver, clock: Clock
) -> None:
    process = scenario.cuda_process(driver)
    backend.set_priority(str(process.id.pid), "high")
    for file in process.fds.values():
        if file.is_control:
            for client in list(driver.rm.clients_of(file)):
                driver.rm.free(file, client.handle, client.handle)
    assert program(backend, process).tsgs == ()  # its descriptors are open as before
    clock.sleep(11.0)
    backend.look()
    backend.set_priority(str(process.id.pid), "low")
    backend.release(str(process.id.pid))
    assert driver.rm.kernel_log == []


def test_putting_back_after_a_daemon_was_killed_leaves_no_line(
    make: Callable[[], RootBackend], driver: ModelDriver, tmp_path: object
) -> None:
    gone, alive = scenario.cuda_process(driver, "gone"), scenario.cuda_process(driver, "alive")
    backend = make()
    for process in (gone, alive):
        backend.set_priority(str(process.id.pid), "low")
        backend.pause(str(process.id.pid))
    for file in gone.fds.values():
        if file.is_control:
            for client in list(driver.rm.clients_of(file)):
                driver.rm.free(file, client.handle, client.handle)
    assert recover(backend._run_dir, driver) == []
    assert driver.rm.kernel_log == []
