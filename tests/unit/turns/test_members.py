# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from detshare.ctl.backends.desired import Desired
from detshare.ctl.backends.root.turns.floors import DEFAULT, Floors
from detshare.ctl.backends.root.turns.members import Member, cast
from detshare.ctl.backends.root.turns.tenancy import Tenancy
from detshare.ctl.core import procfs
from detshare.ctl.core.backend import BadRequest
from detshare.ctl.core.driver import Opener, ProcessId
from detshare.ctl.core.snapshot import Kind, Program, State, Tsg

GPU = "GPU-0"


def program(pid: int, state: State = State.RUNNING) -> Program:
    tsg = Tsg(GPU, 5, 100 + pid, 7, 1, 2, pid, Kind.COMPUTE, "GR0", (1, 2), (), 2048)
    return Program(ProcessId(pid, 1), f"p{pid}", "ann", "", state, tsgs=(tsg,))


def sorted_out(**classes: Desired) -> tuple[set[int], set[int]]:
    """PIDs of background and foreground."""
    desired_state = {ProcessId(int(name[1:]), 1): desired for name, desired in classes.items()}
    programs = [program(p.pid) for p in desired_state]
    found = cast(programs, desired_state, {}, DEFAULT)
    return {m.process.pid for m in found.background}, {p.id.pid for p in found.foreground[GPU]}


def test_low_is_background_even_alone() -> None:
    assert sorted_out(p1=Desired("low"), p2=Desired("idle")) == ({1, 2}, set())


def test_normal_is_background_only_beside_high() -> None:
    assert sorted_out(p1=Desired("normal"), p2=Desired("low")) == ({2}, {1})
    assert sorted_out(p1=Desired("high"), p2=Desired("normal"), p3=Desired(weight=3)) == ({2, 3}, {1})


def test_programs_of_nobody_are_in_front() -> None:
    assert sorted_out(p1=Desired(), p2=Desired("low")) == ({2}, {1})
    assert sorted_out(p1=Desired(slice_us=500), p2=Desired("low")) == ({2}, {1})


def test_who_is_paused_takes_no_part_and_a_server_is_never_off() -> None:
    desired_state = {ProcessId(n, 1): Desired("low") for n in (1, 2)}
    found = cast([program(1, State.PAUSED), program(2, State.MPS_SERVER)], desired_state, {}, DEFAULT)
    (server,) = found.background
    assert server.process.pid == 2
    assert server.fixed


def test_floors_are_the_programs_own_or_the_classes() -> None:
    asked = (Desired("low"), Desired("low", floor=0.0), Desired("idle"))
    desired = {ProcessId(n, 1): each for n, each in enumerate(asked, 1)}
    found = cast([program(n) for n in (1, 2, 3)], desired, {}, DEFAULT)
    assert [m.floor for m in found.background] == [0.02, 0.0, 0.01]


def test_floors_outlive_the_daemon(tmp_path: Path) -> None:
    Floors(tmp_path, "gpu").set("low", 0.05)
    assert Floors(tmp_path, "gpu").table() == {"normal": 0.02, "low": 0.05, "idle": 0.01}
    Floors(tmp_path, "gpu").set("low", None)
    assert Floors(tmp_path, "gpu").of("low") == 0.02
    with pytest.raises(BadRequest, match="out of range"):
        Floors(tmp_path, "gpu").set("low", 0.9)


def test_a_floor_file_of_garbage_is_set_aside(tmp_path: Path) -> None:
    (tmp_path / "floors-gpu.json").write_text("[" * 100_000)
    assert Floors(tmp_path, "gpu").of("low") == 0.02
    assert (tmp_path / "floors-gpu.unreadable").exists()


def tenant(environment: dict[str, str], named: str = "", **more: str) -> str:
    """The tenant of a real process that was started with this environment."""
    script = "import sys; print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PATH": os.environ["PATH"], **environment},
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        start = procfs.start_time(child.pid)
        assert start is not None
        opener = replace(procfs.describe(child.pid, start, [], []), cgroup="", container="", user="ann")
        try:
            return Tenancy().of(replace(opener, **more), named).replace(str(child.pid), "itself")
        finally:
            child.communicate(b"")


def test_a_process_is_its_own_tenant() -> None:
    assert tenant({}) == "itself"
    assert tenant({"WORLD_SIZE": "1", "MASTER_ADDR": "a"}) == "itself"
    assert tenant({"WORLD_SIZE": "two", "MASTER_ADDR": "a"}) == "itself"
    assert tenant({}, cgroup="/user.slice/user-0.slice/session-1.scope") == "itself"


def test_ranks_of_a_job_are_one_and_other_jobs_others() -> None:
    job = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    assert tenant(job) == tenant({**job, "RANK": "1"})
    assert tenant(job) != tenant({**job, "MASTER_PORT": "29501"})
    assert tenant(job) != tenant(job, user="bob")
    assert tenant({"PMI_SIZE": "2", "PMI_FD": "6"}) == tenant({"PMI_SIZE": "2", "PMI_FD": "8"})  # of one launcher
    assert tenant({"PMI_SIZE": "2", "PMI_FD": "6"}) != "itself"


def test_containers_services_and_batch_jobs() -> None:
    assert tenant({}, container="ab" * 32) == "container abababababab"
    assert tenant({}, cgroup="/system.slice/train.service") == "cgroup train.service"
    assert tenant({}, cgroup="/slurm/uid_1/job_77/step_0") == "cgroup job_77"


def test_a_name_goes_before_all() -> None:
    assert tenant({"DETSHARE_TENANT": "red"}, user="root") == "red"
    assert tenant({"DETSHARE_TENANT": "red"}, named="blue") == "blue"
    assert tenant({"DETSHARE_TENANT": "red"}, cgroup="/system.slice/train.service") == "ann/red"
    assert tenant({"DETSHARE_TENANT": "not a name\n"}) == "itself"


def test_nobody_joins_anothers_tenant_by_its_own_word() -> None:
    red = {"DETSHARE_TENANT": "red"}
    words = [
        tenant(red),
        tenant(red, user="bob"),
        tenant(red, user="root"),
        tenant(red, user="root", container="ab" * 32),
        tenant(red, user="root", container="cd" * 32),
    ]
    assert len(set(words)) == len(words)
    assert tenant(red, user="root", container="ab" * 32) == tenant(red, user="ann", container="ab" * 32)


def test_a_process_that_ended_is_its_own() -> None:
    gone = Opener(ProcessId(2**22 - 1, 1), 1, "", "", "ann", "", "", (), ())
    assert Tenancy().of(gone) == str(2**22 - 1)


def test_another_clients_channels_are_more_whatever_their_handles() -> None:
    tsg = program(1).tsgs[0]
    before = Member(ProcessId(1, 1), "1", GPU, 2, 1, 0.02, (tsg,))
    after = replace(before, tsgs=(tsg, replace(tsg, client=tsg.client + 1)))
    assert after.has_more(before)
    assert not before.has_more(after)
