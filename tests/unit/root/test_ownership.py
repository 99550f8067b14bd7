# SPDX-License-Identifier: Apache-2.0
"""Whose a client is, with processes about that hold duplicates of descriptors that others made."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from detshare.ctl.backends.model import scenario
from detshare.ctl.backends.model.driver import ModelDriver
from detshare.ctl.backends.model.process import ModelProcess
from detshare.ctl.backends.root.backend import RootBackend
from detshare.ctl.core.snapshot import State
from tests.unit.model import programs
from tests.unit.root.conftest import Clock
from tests.unit.root.helpers import program, take_all, truth


def owner_of(backend: RootBackend, *processes: ModelProcess) -> list[int]:
    """How many TSGs each process owns at the next look."""
    programs = {found.id: found for found in backend.look().programs}
    return [len(programs[process.id].tsgs) for process in processes]


def test_an_older_monitor_with_duplicates_owns_nothing(backend: RootBackend, driver: ModelDriver) -> None:
    monitor = driver.machine.spawn("monitor")
    tenants = [scenario.cuda_process(driver, f"tenant{n}") for n in range(2)]
    for tenant in tenants:
        take_all(monitor, tenant)
    assert owner_of(backend, monitor, *tenants) == [0, 4, 4]
    assert [program(backend, tenant).state for tenant in tenants] == [State.RUNNING] * 2
    assert any(f"PID {tenants[0].id.pid}" in note for note in program(backend, monitor).notes)
    assert backend.set_priority(str(tenants[0].id.pid), "high").changed
    assert truth(driver, tenants[0])[0][:2] == (20_000, 2)
    assert not any(change.tsgs for change in backend.set_priority(str(monitor.id.pid), "low").changed)
    assert truth(driver, tenants[0])[0][:2] == (20_000, 2)


@pytest.mark.parametrize("own", ["nvml", "cuda"])
def test_a_monitor_that_uses_the_gpu_itself(backend: RootBackend, driver: ModelDriver, own: str) -> None:
    monitor = programs.nvml_process(driver) if own == "nvml" else scenario.cuda_process(driver, "monitor")
    tenant = scenario.cuda_process(driver, "tenant")
    take_all(monitor, tenant)
    assert owner_of(backend, monitor, tenant) == [0 if own == "nvml" else 4, 4]


def test_a_monitor_that_computes_and_has_a_part_of_a_tenants_descriptors(
    backend: RootBackend, driver: ModelDriver
) -> None:
    """Both have compute objects in clients of their own: the driver says with whose the shared one belongs."""
    monitor = scenario.cuda_process(driver, "monitor")
    tenant = scenario.cuda_process(driver, "tenant")
    first = next(fd for fd, file in tenant.fds.items() if file.is_control and driver.rm.clients_of(file))
    scenario.make_context(driver, tenant)  # on a descriptor of its own
    monitor.take(tenant, first)
    assert owner_of(backend, monitor, tenant) == [4, 8]


def test_a_monitor_that_comes_and_goes_changes_nothing(backend: RootBackend, driver: ModelDriver, clock: Clock) -> None:
    early = driver.machine.spawn("early")
    tenant = scenario.cuda_process(driver, "tenant")
    assert owner_of(backend, tenant) == [4]
    late = driver.machine.spawn("late")
    for monitor in (early, late):
        take_all(monitor, tenant)
        clock.sleep(1.0)
        assert owner_of(backend, monitor, tenant) == [0, 4]
    driver.machine.kill(early)
    clock.sleep(1.0)
    assert owner_of(backend, late, tenant) == [0, 4]


def test_the_child_and_not_the_monitor_is_heir(backend: RootBackend, driver: ModelDriver, clock: Clock) -> None:
    monitor = driver.machine.spawn("monitor")
    parent = scenario.cuda_process(driver, "parent")
    take_all(monitor, parent)
    child = driver.machine.fork(parent)
    assert owner_of(backend, monitor, parent, child) == [0, 4, 0]
    driver.machine.kill(parent)
    clock.sleep(1.0)
    assert owner_of(backend, monitor, child) == [0, 4]


def test_a_child_with_a_context_of_its_own(backend: RootBackend, driver: ModelDriver) -> None:
    parent = scenario.cuda_process(driver, "parent")
    child = driver.machine.fork(parent)
    scenario.make_context(driver, child)
    assert owner_of(backend, parent, child) == [4, 4]


def test_who_was_heard_of_making_it_owns_it(make: Callable[[], RootBackend], driver: ModelDriver, clock: Clock) -> None:
    """Where the driver does not say: an announcement of the observer of births is enough."""
    backend = make()
    driver.inject["NV2080_CTRL_CMD_GPU_GET_PIDS"] = driver.abi.status("NV_ERR_INSUFFICIENT_PERMISSIONS")
    monitor = driver.machine.spawn("monitor")
    tenant = scenario.cuda_process(driver, "tenant")
    take_all(monitor, tenant)
    adopter = backend._adopter
    assert adopter is not None
    for fd, file in tenant.fds.items():
        if file.is_control:
            for client in driver.rm.clients_of(file):
                adopter.announce(tenant.id.pid, fd, client.handle, whole=True)
    assert owner_of(backend, monitor, tenant) == [0, 4]


def test_the_driver_is_asked_once(backend: RootBackend, driver: ModelDriver, clock: Clock) -> None:
    monitor = driver.machine.spawn("monitor")
    tenant = scenario.cuda_process(driver, "tenant")
    take_all(monitor, tenant)
    backend.look()
    asked = driver.calls["NV2080_CTRL_CMD_GPU_GET_PIDS"]
    assert asked > 0
    for _ in range(20):
        clock.sleep(0.5)
        backend.look()
    assert driver.calls["NV2080_CTRL_CMD_GPU_GET_PIDS"] == asked
