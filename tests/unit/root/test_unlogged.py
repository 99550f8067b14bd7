# SPDX-License-Identifier: Apache-2.0
"""Of whom NVML is asked beside the context-switch log, and what is said of those of whom it is not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from detshare.ctl.backends.root.unlogged import Unlogged
from detshare.ctl.core.driver import ProcessId
from detshare.ctl.core.gputime import GpuTime
from detshare.ctl.core.snapshot import Program, State

A, B = "GPU-a", "GPU-b"
BESIDE = GpuTime(A, 5.0, 0.5, 0.4, 100.0, 2000.0, 2000.0, (0.5,) * 50)
ALONE = replace(BESIDE, share=1.0, switches_s=0.2, run_us=5e6)


def program(pid: int, *gpus: str, state: State = State.RUNNING) -> Program:
    return Program(ProcessId(pid, 1), f"program {pid}", "root", "", state, gpus=gpus or (A,))


class Nvml:
    """Keeps what it was asked; `shares` is what it says."""

    def __init__(self, shares: dict[tuple[int, str], float] | None = None) -> None:
        self.shares = shares or {}
        self.asked: list[set[str]] = []

    def ask(self, gpus: frozenset[str]) -> Mapping[tuple[int, str], float]:
        self.asked.append(set(gpus))
        return {key: share for key, share in self.shares.items() if key[1] in gpus}


def shares(found: list[Program]) -> list[float | None]:
    return [each.gpu_share for each in found]


def test_of_who_has_runs_beside_others_nothing_is_asked() -> None:
    nvml = Nvml({(1, A): 0.9})
    assert shares(Unlogged().fill([program(1)], {A: {1: BESIDE}}, [A], nvml.ask)) == [None]
    assert nvml.asked == [set()]


def test_of_who_is_alone_or_not_in_a_log_it_is_asked_each_time() -> None:
    nvml, unlogged = Nvml({(1, A): 0.9, (2, B): 0.3}), Unlogged()
    for _ in range(3):
        found = unlogged.fill([program(1), program(2, B)], {A: {1: ALONE}, B: {}}, [A], nvml.ask)
        assert shares(found) == [0.9, 0.3]
    assert nvml.asked == [{A, B}] * 3


def test_who_has_another_gpu_that_the_log_does_not_show_is_asked_of_both() -> None:
    nvml = Nvml({(1, A): 0.5, (1, B): 0.7})
    assert shares(Unlogged().fill([program(1, A, B)], {A: {1: BESIDE}, B: {}}, [A, B], nvml.ask)) == [0.7]
    assert nvml.asked == [{A, B}]


def test_who_fell_silent_where_the_log_is_sure_is_asked_of_until_nvml_says_so() -> None:
    nvml, unlogged, them = Nvml({(1, A): 0.2}), Unlogged(), [program(1), program(2)]
    times = {A: {2: BESIDE}}
    assert shares(unlogged.fill(them, times, [A], nvml.ask))[0] == 0.2
    nvml.shares[1, A] = 0.0
    for _ in range(3):
        assert shares(unlogged.fill(them, times, [A], nvml.ask))[0] == 0.0
    assert nvml.asked == [{A}, {A}, set(), set()]
    # it runs, and falls silent again
    nvml.shares[1, A] = 0.6
    unlogged.fill(them, {A: {1: BESIDE, 2: BESIDE}}, [A], nvml.ask)
    assert shares(unlogged.fill(them, times, [A], nvml.ask))[0] == 0.6
    assert nvml.asked[4:] == [set(), {A}]


def test_who_is_silent_where_the_log_is_not_sure_is_asked_each_time() -> None:
    for state, times, sure in (
        (State.MPS_CLIENT, {A: {2: BESIDE}}, [A]),
        (State.NOT_UNDERSTOOD, {A: {2: BESIDE}}, [A]),
        (State.RUNNING, {A: {2: BESIDE}}, []),
        (State.RUNNING, {A: {2: BESIDE, 77: BESIDE}}, [A]),  # a PID of nobody: perhaps of another PID namespace
        (State.RUNNING, {}, []),
    ):
        nvml, unlogged = Nvml(), Unlogged()
        for _ in range(3):
            unlogged.fill([program(1, state=state), program(2)], times, sure, nvml.ask)
        assert nvml.asked == [{A}] * 3, (state, times, sure)


def test_who_ended_and_whose_pid_is_another_one_is_asked_of_anew() -> None:
    nvml, unlogged = Nvml(), Unlogged()
    times = {A: {2: BESIDE}}
    unlogged.fill([program(1), program(2)], times, [A], nvml.ask)
    unlogged.fill([replace(program(1), id=ProcessId(1, 5)), program(2)], times, [A], nvml.ask)
    assert nvml.asked == [{A}, {A}]
