# SPDX-License-Identifier: Apache-2.0
"""Turns of jobs on several GPUs as kmod/rm/gang.c gives them, beside those of each GPU."""

from __future__ import annotations

import ctypes

import pytest
from gang_world import Account, World, mix
from rota_files import MS, NONE, library

__all__ = ["library"]  # a fixture


def test_two_jobs_have_their_turns_on_both_gpus_at_the_same_time(library: ctypes.CDLL) -> None:
    jobs = [Account(1, (0, 1)), Account(2, (0, 1))]
    world = World(library, jobs)
    world.run(10)
    for job in jobs:
        assert world.share(job) == pytest.approx(0.5, abs=0.03)
        assert job.together > 0.95 * max(job.had.values())


def test_a_program_on_one_of_their_gpus_has_its_part(library: ctypes.CDLL) -> None:
    jobs, one = [Account(1, (0, 1)), Account(2, (0, 1))], Account(3, (0,))
    world = World(library, [*jobs, one])
    world.run(10)
    assert [world.share(a) for a in (*jobs, one)] == [pytest.approx(1 / 3, abs=0.03)] * 3


def test_weights(library: ctypes.CDLL) -> None:
    accounts = [Account(1, (0, 1), weight=3), Account(2, (0, 1)), Account(3, (1,), weight=2)]
    world = World(library, accounts)
    world.run(12)
    assert [world.share(a) for a in accounts] == [pytest.approx(each, rel=0.08) for each in (1 / 2, 1 / 6, 1 / 3)]


def test_three_jobs_in_a_ring_all_get_on(library: ctypes.CDLL) -> None:
    jobs = [Account(1, (0, 1)), Account(2, (1, 2)), Account(3, (0, 2))]
    world = World(library, jobs)
    world.run(10)
    assert [world.share(job) for job in jobs] == [pytest.approx(1 / 3, abs=0.03)] * 3


def test_programs_of_one_gpu_each_do_not_wait_for_each_other(library: ctypes.CDLL) -> None:
    """Beside a job: they have the time between its turns at the same time."""
    job, here, there = Account(1, (0, 1)), Account(2, (0,)), Account(3, (1,))
    world = World(library, [job, here, there])
    world.run(10)
    assert [world.share(a) for a in (job, here, there)] == [pytest.approx(1 / 2, abs=0.03)] * 3


def test_a_job_that_ends_leaves_all_to_the_other(library: ctypes.CDLL) -> None:
    ends = 4000 * MS
    jobs = [Account(1, (0, 1)), Account(2, (0, 1), works=lambda gpu, now: now < ends)]
    world = World(library, jobs)
    world.run(3)
    jobs[0].together, world.begin = 0, world.now
    world.run(3)
    assert world.share(jobs[0]) > 0.98


def test_an_idle_job_has_its_floor_beside_low_ones(library: ctypes.CDLL) -> None:
    low, idle = Account(1, (0, 1)), Account(2, (0, 1), rank=1, floor=20)
    world = World(library, [low, idle])
    world.run(10)
    assert world.share(idle) == pytest.approx(0.02, abs=0.005)
    assert world.share(low) > 0.95


def test_low_ones_on_one_gpu_leave_an_idle_job_its_floor(library: ctypes.CDLL) -> None:
    low, idle = Account(1, (0,)), Account(2, (0, 1), rank=1, floor=20)
    world = World(library, [low, idle])
    world.run(10)
    assert world.share(idle) == pytest.approx(0.02, abs=0.005)
    assert world.share(low) > 0.95


def test_an_idle_program_has_its_floor_beside_a_low_job(library: ctypes.CDLL) -> None:
    low, idle = Account(1, (0, 1)), Account(2, (0,), rank=1, floor=20)
    world = World(library, [low, idle])
    world.run(10)
    assert world.share(idle) == pytest.approx(0.02, abs=0.005)
    assert world.share(low) > 0.95


@pytest.mark.parametrize("floor", [0, 20, 100])
def test_where_one_gpus_foreground_never_rests_jobs_live_off_their_floors(library: ctypes.CDLL, floor: int) -> None:
    jobs = [Account(1, (0, 1), floor=floor), Account(2, (0, 1), floor=floor)]
    world = World(library, jobs, busy=(0,))
    world.run(20)
    for job in jobs:
        assert world.share(job) == pytest.approx(floor / 2000, rel=0.2, abs=0.001)


def test_a_job_beside_a_floor_leaves_the_floor_whole(library: ctypes.CDLL) -> None:
    """A job and a program behind a foreground that never rests divide one floor."""
    job, one = Account(1, (0, 1), floor=100), Account(2, (0,), floor=100)
    world = World(library, [job, one], busy=(0,))
    world.run(20)
    assert world.share(job) == pytest.approx(0.05, rel=0.25)
    assert world.share(one) == pytest.approx(0.05, rel=0.25)


def test_without_jobs_nothing_changes(library: ctypes.CDLL) -> None:
    ones = [Account(1, (0,)), Account(2, (0,)), Account(3, (1,))]
    world = World(library, ones)
    world.run(5)
    assert [world.share(a) for a in ones] == [pytest.approx(each, abs=0.03) for each in (0.5, 0.5, 1)]
    assert (world.gangs.covered, world.gangs.rota.holder, world.gangs.rota.kind) == (0, 0, NONE)


def test_more_than_there_is_room_for_are_no_gangs(library: ctypes.CDLL) -> None:
    jobs = [Account(1, (0, 1)), Account(2, (0, 1)), Account(3, (0, 1))]
    world = World(library, jobs)
    world.gangs.room = 2
    world.run(6)
    assert all(min(job.had.values()) > 0.15 * 6000 * MS for job in jobs)


@pytest.mark.parametrize("seed", range(6))
def test_any_mix_gets_on(library: ctypes.CDLL, seed: int) -> None:
    assert mix(library, seed) == []
