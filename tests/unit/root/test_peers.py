# SPDX-License-Identifier: Apache-2.0
"""Ranks that no launcher told anything: found by the memory that they share from GPU to GPU."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from detshare.ctl.backends.model import scenario
from detshare.ctl.backends.model.driver import ModelDriver
from detshare.ctl.backends.model.process import ModelProcess
from detshare.ctl.backends.root.backend import RootBackend
from detshare.ctl.backends.root.peers import Peers
from detshare.ctl.backends.root.turns.tenancy import Tenancy
from detshare.ctl.core import jobs
from tests.unit.model import programs
from tests.unit.root.conftest import Clock
from tests.unit.root.helpers import program

PLACE = "NV0041_CTRL_CMD_GET_SURFACE_PHYS_ATTR"
RECORDED = Path(__file__).parents[2] / "data" / "ranks-h200.json.gz"
GPUS = (ModelDriver().gpus()[0], programs.second_gpu())


@pytest.fixture
def two() -> ModelDriver:
    return ModelDriver(gpus=GPUS)


@pytest.fixture
def looker(two: ModelDriver, tmp_path: Path, clock: Clock) -> RootBackend:
    return RootBackend(two, tmp_path, name="model", clock=clock)


def job_of(backend: RootBackend, *processes: ModelProcess) -> list[str]:
    """Of each process, at the next look."""
    found = {each.id: each.job for each in backend.look().programs}
    return [found[process.id] for process in processes]


def later(backend: RootBackend, clock: Clock) -> None:
    """A look after which every program was read anew."""
    for _ in range(3):
        clock.sleep(15)
        backend.look()


class Private:
    """Memory of a process that nobody else uses."""

    def __init__(self, driver: ModelDriver, process: ModelProcess) -> None:
        self._file = next(file for _, file in sorted(process.fds.items()) if file.is_control)
        self._client = driver.rm.clients_of(self._file)[0]
        self._driver = driver
        klass = driver.abi.klass
        device = next(h for h, node in self._client.objects.items() if node.klass == klass("NV01_DEVICE_0"))
        self.handle = max(h for h in self._client.objects if h < self._client.handle) + 1
        memory = klass("NV01_MEMORY_LOCAL_USER")
        driver.rm.alloc(self._file, self._client.handle, device, self.handle, memory)
        self.place = self._client.objects[self.handle].address

    def free(self) -> None:
        self._driver.rm.free(self._file, self._client.handle, self.handle)

    def move(self, place: int | None) -> None:
        self._client.objects[self.handle].address = place


def test_ranks_are_one_job_and_one_tenant(two: ModelDriver, looker: RootBackend) -> None:
    alone, *ranks = scenario.cuda_process(two), *scenario.ranks(two), *scenario.ranks(two, "python3 other.py")
    none, *found = job_of(looker, alone, *ranks)
    assert none == ""
    assert found[0] == found[1] != found[2] == found[3] != ""
    assert [found[0], found[2]] == [jobs.of(ranks[0].id.pid), jobs.of(ranks[2].id.pid)]
    tenants = [Tenancy().of(each.opener()) for each in ranks]
    assert tenants[0] == tenants[1] != tenants[2] == tenants[3]
    assert Tenancy().of(alone.opener()) == str(alone.id.pid)
    assert not two.rm.kernel_log


def test_who_was_looked_at_before_it_was_a_rank_becomes_one(
    two: ModelDriver, looker: RootBackend, clock: Clock
) -> None:
    first, second = (scenario.cuda_process(two, gpu=gpu) for gpu in (0, 1))
    tenancy = Tenancy()
    assert job_of(looker, first, second) == ["", ""]
    assert tenancy.of(first.opener()) == str(first.id.pid)
    scenario.reach(two, first, second, 1)
    scenario.reach(two, second, first, 0)
    later(looker, clock)
    one, other = job_of(looker, first, second)
    assert one == other != ""
    assert tenancy.of(first.opener()) == tenancy.of(second.opener())


def test_a_command_that_looks_for_the_first_time_knows_the_ranks(two: ModelDriver, looker: RootBackend) -> None:
    jobs.learn({})
    ranks = scenario.ranks(two)
    done = looker.pause(f"job:{ranks[0].id.pid}")
    assert sorted(change.pid for change in done.changed) == sorted(each.id.pid for each in ranks)
    assert len(looker.resume(f"job:{ranks[1].id.pid}").changed) == 2


def test_memory_that_was_another_programs_before_joins_nobody(
    two: ModelDriver, looker: RootBackend, clock: Clock
) -> None:
    (first, _), (third, _) = scenario.ranks(two), scenario.ranks(two)
    old = Private(two, first)
    before = job_of(looker, first, third)
    old.free()
    Private(two, third).move(old.place)  # the driver gives it out again
    looker._watch._adopter.reread(third.id)  # type: ignore[union-attr]
    assert job_of(looker, first, third) == before
    assert before[0] != before[1]


def test_pieces_are_gone_through_when_they_change_and_pairs_are_asked_until_they_answer(
    two: ModelDriver, looker: RootBackend, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks, walks, together = scenario.ranks(two), [0], Peers._together

    def counted(peers: Peers, held: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        walks[0] += 1
        return together(peers, held)

    monkeypatch.setattr(Peers, "_together", counted)
    with monkeypatch.context() as busy:
        busy.setattr(Peers, "_holds", lambda peers, held: False)
        assert job_of(looker, *ranks) == ["", ""]
    one, other = job_of(looker, *ranks)
    assert one == other != ""
    later(looker, clock)  # reading them anew finds the same
    assert walks == [1]
    one, other = job_of(looker, *scenario.ranks(two))
    assert one == other != ""
    assert walks == [2]


def test_users_and_containers_are_apart(two: ModelDriver, looker: RootBackend) -> None:
    ranks = scenario.ranks(two)
    ranks[0].user = "somebody"
    assert job_of(looker, *ranks) == ["", ""]
    inside = scenario.ranks(two, "python3 pod.py")
    for each in inside:
        each.container = "a" * 64
    inside[0].user = "somebody"  # in one container whoever they are
    one, other = job_of(looker, *inside)
    assert one == other != ""


def test_a_program_on_one_gpu_is_asked_nothing(two: ModelDriver, looker: RootBackend) -> None:
    scenario.cuda_process(two)
    looker.look()
    assert PLACE not in two.calls


@pytest.mark.parametrize("version", ["535.261.03", "550.163.01", "570.211.01"])
def test_a_driver_that_keeps_it_to_itself_is_not_asked(version: str, tmp_path: Path, clock: Clock) -> None:
    driver = ModelDriver(version=version, gpus=GPUS)
    backend = RootBackend(driver, tmp_path, name="model", clock=clock)
    assert job_of(backend, *scenario.ranks(driver)) == ["", ""]
    assert PLACE not in driver.calls


def test_what_launchers_say_goes_first(
    two: ModelDriver, looker: RootBackend, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    ranks = scenario.ranks(two)
    told = {ranks[0].id.pid: "0::a:1"}
    monkeypatch.setattr(jobs, "by_launcher", lambda pid: told.get(pid, ""))
    assert job_of(looker, *ranks) == ["0::a:1", "0::a:1"]  # whose launcher told it nothing follows the other
    assert jobs.found(ranks[1].id.pid) == "a:1"
    others = scenario.ranks(two)
    told |= {others[0].id.pid: "0::b:1", others[1].id.pid: "0::c:1"}
    assert job_of(looker, *others) == ["0::b:1", "0::c:1"]


def test_two_pairs_that_meet_are_one_job(two: ModelDriver, looker: RootBackend, clock: Clock) -> None:
    ranks = [*scenario.ranks(two), *scenario.ranks(two)]
    assert len(set(job_of(looker, *ranks))) == 2
    scenario.reach(two, ranks[1], ranks[2], 0)
    later(looker, clock)
    assert len(set(job_of(looker, *ranks))) == 1


def test_a_rank_stays_one_for_life_and_its_number_is_free_then(
    two: ModelDriver, looker: RootBackend, clock: Clock
) -> None:
    first, second = scenario.ranks(two)
    (job,) = set(job_of(looker, first, second))
    assert job
    two.machine.kill(first)
    later(looker, clock)
    assert job_of(looker, second) == [job]
    again = two.machine.spawn("python3 new.py", pid=first.id.pid)
    scenario.make_context(two, again)
    later(looker, clock)
    assert job_of(looker, again) == [""]


def test_what_two_h200s_showed(two: ModelDriver, looker: RootBackend, clock: Clock) -> None:
    """Objects and addresses as recorded: NCCL by cuMem and by cuIpc, and two that share a tensor of one GPU."""
    recorded = json.loads(gzip.decompress(RECORDED.read_bytes()))
    device, peer = two.abi.klass("NV01_DEVICE_0"), 0x5C00000B
    processes: dict[int, ModelProcess] = {}
    for each in recorded["programs"]:
        process = processes[each["pid"]] = two.machine.spawn("python3 ranks.py", pid=each["pid"])
        for number, part in enumerate(each["clients"]):
            _, file, client = scenario.new_client(two, process)
            waiting = [row for row in part["objects"] if row[0] != part["client"]]
            known = {part["client"]}
            while ready := [row for row in waiting if row[2] in known]:
                for handle, klass, parent in ready:
                    above = client if parent == part["client"] else parent
                    gpu = int(handle == peer or (number and handle & 0x10))
                    status, _ = two.rm.alloc(file, client, above, handle, klass, gpu=gpu if klass == device else 0)
                    assert not status, (hex(handle), two.abi.status_name(status))
                known |= {row[0] for row in ready}
                waiting = [row for row in waiting if row[0] not in known]
            objects = two.rm.clients[client].objects
            for handle, status, address, aperture in part["memory"]:
                if not status and not aperture:
                    objects[handle].address = address
        process.open("/dev/nvidia0")
    later(looker, clock)
    found = {pid: program(looker, process).job for pid, process in processes.items()}
    for ranks in recorded["jobs"]:
        assert len({found[pid] for pid in ranks}) == 1
    assert len({found[pid] for ranks in recorded["jobs"] for pid in ranks}) == len(recorded["jobs"])
    assert {pid for pid, job in found.items() if job} == {pid for ranks in recorded["jobs"] for pid in ranks}
