# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from detshare.ctl.abi.versions import Abi, for_version
from detshare.ctl.backends.model import scenario
from detshare.ctl.backends.model.driver import Call, ModelDriver
from detshare.ctl.backends.root import adopt, doctor
from detshare.ctl.backends.root.adopt import Adopter
from detshare.ctl.backends.root.backend import RootBackend
from detshare.ctl.backends.root.tree import DEEP_GAP, Depth, ObjectTree, read_tree
from detshare.ctl.core.snapshot import Kind, State
from detshare.ctl.rm.client import RmClient
from tests.unit.model import programs
from tests.unit.root.conftest import Clock
from tests.unit.root.helpers import program


def test_a_cuda_program_is_read_as_the_driver_describes_it(backend: RootBackend, driver: ModelDriver) -> None:
    process = scenario.cuda_process(driver)
    found = program(backend, process)
    assert found.state is State.RUNNING
    assert [t.kind for t in found.tsgs] == [Kind.COMPUTE, Kind.COPY, Kind.COPY, Kind.COPY]
    compute = found.compute[0]
    assert (compute.engine, len(compute.channels), len(compute.context_shares)) == ("GR0", 8, 1)
    assert compute.slice_us == 2048
    assert all(len(t.channels) == 4 and t.slice_us == 1024 for t in found.tsgs[1:])
    assert found.gpus == (driver.gpus()[0].uuid,) == tuple({t.gpu for t in found.tsgs})
    assert found.adopted_ms is not None


def test_nothing_is_borrowed_once_a_look_is_over(backend: RootBackend, driver: ModelDriver) -> None:
    scenario.cuda_process(driver)
    backend.look()
    assert driver.borrowed == 0
    assert driver.borrows > 0


def test_handles_of_another_library_are_found(backend: RootBackend, driver: ModelDriver) -> None:
    process = scenario.cuda_process(driver, "vkcube", base=0xBEEF0000)
    assert len(program(backend, process).compute) == 1


def test_two_contexts_and_two_gpus(clock: Clock, tmp_path_factory: pytest.TempPathFactory) -> None:
    driver = ModelDriver(gpus=(ModelDriver().gpus()[0], programs.second_gpu()))
    backend = RootBackend(driver, tmp_path_factory.mktemp("run"), clock=clock)
    two, both = scenario.two_contexts(driver), programs.multi_gpu(driver)
    assert len(program(backend, two).compute) == 2
    found = program(backend, both)
    assert {t.gpu for t in found.compute} == {g.uuid for g in driver.gpus()}
    assert len({t.subdevice for t in found.compute}) == 2


def test_a_program_is_on_the_gpus_it_computes_on(clock: Clock, tmp_path_factory: pytest.TempPathFactory) -> None:
    first, second = ModelDriver().gpus()[0], programs.second_gpu()
    driver = ModelDriver(gpus=(first, second))
    backend = RootBackend(driver, tmp_path_factory.mktemp("run"), clock=clock)
    process, waiting = scenario.cuda_process(driver, memory=3 << 30), scenario.opened_only(driver)
    for each in (process, waiting):
        for gpu in (first, second):  # as CUDA does: whatever it can see is opened
            each.open(f"/dev/nvidia{gpu.minor}")
    found = program(backend, process)
    assert found.gpus == (first.uuid,)
    assert found.gpu_memory == {first.uuid: found.memory_bytes}
    assert program(backend, waiting).gpus == (first.uuid, second.uuid)


def test_a_later_context_is_seen_within_a_second(backend: RootBackend, driver: ModelDriver, clock: Clock) -> None:
    process = scenario.opened_only(driver)
    assert program(backend, process).state is State.NO_CONTEXT
    scenario.make_context(driver, process)
    seen = 0.0
    while program(backend, process).state is not State.RUNNING:
        clock.sleep(0.25)
        seen += 0.25
        assert seen <= 1.0
    # a second one, below handles that were freed, without a new descriptor
    scenario.make_context(driver, process)
    clock.sleep(1.0)
    assert len(program(backend, process).compute) == 2


def test_an_idle_machine_costs_two_questions_per_compute_tsg_and_second(
    backend: RootBackend, driver: ModelDriver, clock: Clock
) -> None:
    process = scenario.cuda_process(driver)
    for _ in range(20):  # past the settling of a new context
        backend.look()
        clock.sleep(0.25)
    before = driver.calls.copy()
    for _ in range(16):
        backend.look()
        clock.sleep(0.25)
    assert (driver.calls - before).total() <= 2 * 4
    driver.machine.kill(process)
    assert backend.look().programs == ()


def test_no_handle_is_asked_about_twice_in_a_reading(backend: RootBackend, driver: ModelDriver) -> None:
    """But for those of devices and of engines' objects, for which that is a question of its own."""
    process = scenario.cuda_process(driver)
    backend.look()
    layout = driver.abi.params(info := "NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO")
    klass = driver.abi.constant(f"{info}_INDEX_CLASSID")
    asked: Counter[int] = Counter()

    def note(call: Call) -> None:
        if call.name == info and layout.get(call.params, "index") == klass:
            asked[layout.get(call.params, "hObject")] += 1

    driver.before_control = note
    backend._adopter.reread(process.id)  # type: ignore[union-attr]
    backend.look()
    assert len(asked) > 1024
    assert sum(count > 1 for count in asked.values()) < 8


def test_a_calm_machines_programs_are_read_for_a_thousandth_of_the_time(
    clock: Clock, driver: ModelDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them together; and past long gaps soon after something changed."""
    depths: list[int] = []

    def slow(client: RmClient, abi: Abi, fd: int, depth: Depth) -> ObjectTree:
        clock.sleep(0.006)
        depths.append(depth.gap)
        return read_tree(client, abi, fd, depth)

    monkeypatch.setattr(adopt, "read_tree", slow)
    adopter = adopt.Adopter(driver, driver.abi, clock)
    last = [scenario.cuda_process(driver) for _ in range(5)][-1]

    def reads(seconds: int) -> int:
        depths.clear()
        for _ in range(seconds):
            adopter.refresh(driver.openers(), driver.counts())
            clock.sleep(1.0)
        return len(depths)

    reads(40)
    a_round = 5 * 2  # a client of CUDA's and one of NVML's each
    assert 0 < reads(120) <= 3 * a_round
    client = scenario.new_client(driver, last)
    assert reads(30) >= 2 * a_round
    assert depths.count(DEEP_GAP) >= a_round
    assert client


def test_a_program_that_only_reads_nvml_has_no_context(backend: RootBackend, driver: ModelDriver) -> None:
    assert program(backend, programs.nvml_process(driver)).state is State.NO_CONTEXT


def test_a_forked_child_does_not_own_its_parents_tsgs(backend: RootBackend, driver: ModelDriver) -> None:
    parent = scenario.cuda_process(driver)
    child = driver.machine.fork(parent)
    assert len(program(backend, parent).tsgs) == 4
    found = program(backend, child)
    assert found.tsgs == ()
    assert any(f"PID {parent.id.pid}" in note for note in found.notes)


def test_mps_server_and_clients_are_told_apart(backend: RootBackend, driver: ModelDriver) -> None:
    server = programs.mps_server(driver)
    clients = [programs.mps_client(driver, server) for _ in range(2)]
    alone = scenario.cuda_process(driver)
    assert program(backend, server).state is State.MPS_SERVER
    assert [program(backend, c).state for c in clients] == [State.MPS_CLIENT] * 2
    assert program(backend, alone).state is State.RUNNING


def test_clients_on_a_driver_that_ran_for_long(
    driver: ModelDriver, make: Callable[[], RootBackend], clock: Clock
) -> None:
    old = scenario.cuda_process(driver, "old")
    for _ in range(30_000):
        driver.newest_client()
    young = scenario.cuda_process(driver, "young")
    backend = make()
    backend.look()
    assert program(backend, young).compute
    for _ in range(400):  # the search for the old one goes on in slices
        if program(backend, old).compute:
            break
        clock.sleep(0.25)
    assert program(backend, old).compute


def test_client_numbers_that_wrapped(driver: ModelDriver, make: Callable[[], RootBackend]) -> None:
    limit = driver.abi.constant("RS_CLIENT_HANDLE_MAX")
    driver.rm.next_client = limit - 3
    first = scenario.cuda_process(driver)
    backend = make()
    assert program(backend, first).compute
    second = scenario.cuda_process(driver)  # its clients lie beyond the wrap
    assert program(backend, second).compute
    assert program(backend, first).compute


@pytest.mark.parametrize("victim_call", range(0, 60, 3))
def test_a_program_that_ends_in_the_middle_of_the_scan(
    backend: RootBackend, driver: ModelDriver, victim_call: int
) -> None:
    victim, other = scenario.cuda_process(driver, "victim"), scenario.cuda_process(driver, "other")
    left = [victim_call]

    def kill(call: Call) -> None:
        left[0] -= 1
        if left[0] < 0:
            driver.machine.kill(victim)

    driver.before_control = kill
    backend.look()
    driver.before_control = None
    programs = {p.command: p for p in backend.look().programs}
    assert "victim" not in programs
    assert len(programs["other"].compute) == 1
    assert other.alive
    assert driver.borrowed == 0


def test_a_reused_pid_is_another_program(backend: RootBackend, driver: ModelDriver, clock: Clock) -> None:
    first = scenario.cuda_process(driver, "first")
    backend.set_priority(str(first.id.pid), "high")
    driver.machine.kill(first)
    second = scenario.cuda_process(driver, "second", pid=first.id.pid)
    clock.sleep(1.0)  # as many objects as before: only the sweep can tell
    found = program(backend, second)
    assert found.klass is None
    assert found.compute[0].slice_us == 2048


def test_an_unknown_driver_branch_is_only_looked_at(clock: Clock, tmp_path_factory: pytest.TempPathFactory) -> None:
    driver = ModelDriver(version="610.43.02")
    process = scenario.cuda_process(driver)
    backend = RootBackend(driver, tmp_path_factory.mktemp("run"), clock=clock)
    found = program(backend, process)
    assert found.state is State.READ_ONLY
    outcome = backend.set_priority(str(process.id.pid), "high")
    assert not outcome.changed
    assert "610" in outcome.skipped[0].reason
    assert driver.calls.total() == 0
    assert [c.ok for c in backend.doctor() if c.name == "driver"] == [False]


def test_without_root_the_next_step_is_named(backend: RootBackend, driver: ModelDriver) -> None:
    process = scenario.cuda_process(driver)
    driver.deny = True
    outcome = backend.set_priority(str(process.id.pid), "high")
    assert not outcome.changed
    assert "root" in outcome.skipped[0].reason


@pytest.mark.parametrize("euid", [0, 1000])
def test_doctor_names_the_backend_and_wants_no_root_for_the_model(
    driver: ModelDriver, tmp_path: Path, euid: int
) -> None:
    found = {c.name: c for c in doctor.checks(driver, driver.abi, ["580"], euid, tmp_path, "model")}
    assert found["what it means"].detail.startswith("backend model: ")
    assert [c.name for c in found.values() if c.ok is False] == []
    assert (found["root"].ok is True) is (euid == 0)


def test_an_announced_client_is_read_without_a_search(clock: Clock, driver: ModelDriver) -> None:
    abi = for_version(driver.version)
    asked: list[Call] = []
    process = scenario.cuda_process(driver)
    for _ in range(600):
        driver.newest_client()  # the handles that a search goes through
    file = next(fd for fd, file in process.fds.items() if file.is_control and driver.rm.clients_of(file))
    client = driver.rm.clients_of(process.fds[file])[0].handle
    driver.before_control = asked.append
    searching, told = Adopter(driver, abi, clock), Adopter(driver, abi, clock)
    openers = driver.openers()
    found = searching.refresh(openers, driver.counts())[process.id]
    questions, asked[:], searched = len(asked), [], driver.questions
    told.announce(process.id.pid, file, client, whole=True)
    assert told.refresh(openers, driver.counts())[process.id].tsgs == found.tsgs
    assert len(found.tsgs) == 4
    assert len(asked) == questions
    assert driver.questions - searched < searched - 300


def test_a_wrong_announcement_does_no_harm(clock: Clock, driver: ModelDriver) -> None:
    process = scenario.cuda_process(driver)
    adopter = Adopter(driver, for_version(driver.version), clock)
    file = next(fd for fd, file in process.fds.items() if file.is_control)
    adopter.announce(process.id.pid, file, 0xC1DFFFFF, whole=False)
    adopter.announce(process.id.pid, 999, 0xC1D00000, whole=True)
    adopter.announce(process.id.pid + 1, file, 0xC1D00000, whole=True)
    for _ in range(3):
        found = adopter.refresh(driver.openers(), driver.counts())[process.id]
        clock.sleep(1)
    assert len(found.tsgs) == 4
    assert {client for _, client in found.clients} != {0xC1DFFFFF}


def test_who_takes_long_to_read_is_not_read_for_each_verb(clock: Clock, driver: ModelDriver) -> None:
    """A policy that acted 30 times a second on clients of an MPS server took 0.9 of a core, reading (an H100)."""
    scenario.cuda_process(driver)
    adopter = Adopter(driver, for_version(driver.version), clock)
    openers, counts = driver.openers(), driver.counts()
    adopter.refresh(openers, counts)
    driver.before_control = lambda call: clock.sleep(0.002)
    begun, reading = clock(), 0.0
    while clock() - begun < 120:
        counts = counts._replace(objects=counts.objects + 1)
        asked = clock()
        adopter.refresh(openers, counts, fresh=True)
        reading += clock() - asked
        clock.sleep(0.03)
    assert 0.02 < reading / (clock() - begun) < 0.15
