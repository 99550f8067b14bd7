# SPDX-License-Identifier: Apache-2.0
"""WHO as a job: every rank that its launcher started, and nobody else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from detshare.ctl.core import jobs, procfs, select
from detshare.ctl.core.accounts import check_tenant, resolve
from detshare.ctl.core.backend import BadRequest
from detshare.ctl.core.driver import Opener, ProcessId

JOB = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
Start = Callable[..., Opener]
Launch = Callable[[list[dict[str, str]]], tuple[int, list[int]]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Real processes; what they are otherwise is made up."""
    started: list[subprocess.Popen[bytes]] = []

    def one(environment: dict[str, str]) -> Opener:
        script = "import sys; print(flush=True); sys.stdin.read()"
        child = subprocess.Popen(
            [sys.executable, "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"PATH": os.environ["PATH"], **environment},
        )
        started.append(child)
        assert child.stdout is not None
        child.stdout.readline()
        return Opener(ProcessId(child.pid, 1), 0, "python3 ddp.py", "root", "", "", "", (), ())

    yield one
    for child in started:
        child.communicate(b"")


def chosen(who: str, openers: list[Opener]) -> list[int]:
    selector = select.parse(who)
    return [each.id.pid for each in openers if selector.matches(each)]


def test_a_job_is_all_of_its_ranks(start: Start) -> None:
    ranks = [start({**JOB, "RANK": str(rank)}) for rank in range(2)]
    others = [start({**JOB, "MASTER_PORT": "29501"}), start({}), start({**JOB, "WORLD_SIZE": "1"})]
    for rank in ranks:
        assert chosen(f"job:{rank.id.pid}", [*others, *ranks]) == [each.id.pid for each in ranks]
    # where the module holds what is asked: each rank by itself
    assert [target.name for target in resolve(f"job:{ranks[0].id.pid}", [], ranks)] == [str(r.id.pid) for r in ranks]


def test_who_is_no_rank_is_no_job(start: Start) -> None:
    alone, rank = start({}), start(JOB)
    assert chosen(f"job:{alone.id.pid}", [alone, rank]) == []
    assert chosen("job:4194303", [alone, rank]) == []


@pytest.mark.parametrize("who", ["job:", "job:x", "job:0", "job:99999999", "job:1 2"])
def test_a_job_that_cannot_be_meant_is_refused(who: str) -> None:
    with pytest.raises(BadRequest, match="PID"):
        select.parse(who)


def test_a_rank_names_no_job_of_another_container(tmp_path: Path) -> None:
    text = b"\0".join(f"{name}={value}".encode() for name, value in JOB.items())
    first, second = f"/machine/{'a' * 64}", f"/machine/{'b' * 64}"
    for pid, cgroup in ((1, "/"), (2, first), (3, second), (4, first)):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "environ").write_bytes(text)
        (tmp_path / str(pid) / "cgroup").write_text(f"0::{cgroup}\n")
    plain, *ranks = (jobs.of(pid, tmp_path) for pid in (1, 2, 3, 4))
    assert ranks[0] == ranks[2]
    assert len({plain, *ranks}) == 3
    assert jobs.of(5, tmp_path) == ""


def test_a_tenant_cannot_be_called_so() -> None:
    with pytest.raises(BadRequest):
        check_tenant("job:4242")


def hydra(rank: int) -> dict[str, str]:
    """All that mpiexec of MPICH 4.0 says of a job of two."""
    return {"PMI_RANK": str(rank), "PMI_SIZE": "2", "PMI_FD": str(6 + rank), "HYDI_CONTROL_FD": "7"}


RANKS = """
import os, subprocess, sys
made = [subprocess.Popen(WORDS, env={**os.environ, **each}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for each in EACH]
print(*(int(each.stdout.readline()) for each in made), flush=True)
sys.stdin.read()
for each in made:
    each.communicate(b"")
"""
SAY = f"{sys.executable} -c 'import os, sys; print(os.getpid(), flush=True); sys.stdin.read()'"


@pytest.fixture
def launch() -> Iterator[Launch]:
    """A launcher and its ranks, each below a shell of its own."""
    started: list[subprocess.Popen[bytes]] = []

    def one(each: list[dict[str, str]]) -> tuple[int, list[int]]:
        text = RANKS.replace("EACH", repr(each)).replace("WORDS", repr(["sh", "-c", f"{SAY}; :"]))
        made = subprocess.Popen(
            [sys.executable, "-c", text],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"PATH": os.environ["PATH"]},
        )
        started.append(made)
        assert made.stdout is not None
        return made.pid, [int(word) for word in made.stdout.readline().split()]

    yield one
    for made in started:
        made.communicate(b"")


def test_ranks_of_mpich_are_a_job_of_their_launcher(launch: Launch) -> None:
    """It gives its jobs no name."""
    first, second = (launch([hydra(0), hydra(1)])[1] for _ in range(2))
    names = [jobs.of(pid) for pid in (*first, *second)]
    assert all(names)
    assert (names[0], names[2]) == (names[1], names[3])
    assert names[0] != names[2]
    assert jobs.of(launch([{**hydra(0), "PMI_SIZE": "1"}])[1][0]) == ""


def test_a_launcher_is_no_shell_that_a_rank_was_started_through(launch: Launch) -> None:
    for each in (JOB, hydra(0)):
        launcher, (pid,) = launch([each])
        found = jobs.launcher(pid)
        assert found is not None
        assert found.pid == launcher
        assert found.start == procfs.start_time(launcher)
    assert jobs.launcher(4_194_303) is None
