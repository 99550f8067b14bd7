# SPDX-License-Identifier: Apache-2.0
"""Faults in the kernel's log are counted, and the results of the experiments in guests carry that count."""

from __future__ import annotations

import fcntl
import os
import termios
from pathlib import Path
from typing import Any

import pytest

from detshare.tools.bench.vm import unload
from detshare.tools.bench.vm.inside.kernel_log import KernelLog, Tally
from detshare.tools.bench.vm.machines import SIM
from detshare.tools.bench.vm.report import Report
from tests.patience import until

LOG = (
    "6,0,0,-;Linux version 6.12.0",
    "5,1,5140900,-;NET: Registered PF_INET6 protocol family\n SUBSYSTEM=net\n DEVICE=+x",
    "4,2,5140901,-;WARNING: CPU: 0 PID: 206 at /x/hello.c:4 hi+0x4a/0xff0 [hello]",
    "1,3,5140902,-;BUG: kernel NULL pointer dereference, address: 0000000000000008",
    "4,4,5140903,-;Oops: Oops: 0002 [#1] PREEMPT SMP NOPTI",
    "4,5,5140904,-;refcount_t: underflow; use-after-free.",
    "12,6,5140905,-;WARNING: a program wrote this",
    "6,7,5140906,-;detshare: limits are in force",
)


def counted(*records: str) -> Tally:
    tally = Tally()
    for record in records:
        tally.take(record)
    return tally


def test_oops_warning_bug_and_refcount_are_counted() -> None:
    tally = counted(*LOG)
    assert (tally.lines, tally.lost) == (7, 0)
    assert [line.split(":")[0] for line in tally.faults] == ["WARNING", "BUG", "Oops", "refcount_t"]


def test_a_fault_behind_a_line_break_in_one_record_is_seen() -> None:
    tally = counted(r"4,0,1,-;driver says\x0aBUG: sleeping function called from invalid context")
    assert (tally.lines, len(tally.faults)) == (2, 1)


def test_what_was_overwritten_is_counted() -> None:
    assert counted(LOG[2], LOG[3], LOG[7]).lost == 2 + 3


def test_what_is_no_record_is_told() -> None:
    with pytest.raises(ValueError, match="no record"):
        counted("WARNING: something")


def test_the_log_is_read_along(tmp_path: Path) -> None:
    fifo = tmp_path / "kmsg"
    os.mkfifo(fifo)
    keeper = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
    log = KernelLog(fifo)
    for record in LOG[:-1]:
        os.write(keeper, record.encode())
        until(lambda: _empty(keeper))
    os.write(keeper, LOG[-1].encode())
    tally = log.close()
    os.close(keeper)
    assert (tally.lines, tally.lost, len(tally.faults)) == (7, 0, 4)


def _empty(fifo: int) -> bool:
    waiting = bytearray(4)
    fcntl.ioctl(fifo, termios.FIONREAD, waiting)
    return not any(waiting)


@pytest.mark.parametrize(("faults", "lost", "missed"), [(0, 0, []), (2, 0, ["oops"]), (0, 9, ["overwritten"])])
def test_the_row_of_an_experiment_says_what_was_counted(
    monkeypatch: pytest.MonkeyPatch, faults: int, lost: int, missed: list[str]
) -> None:
    a_round = {"event": "round", "alive": 8, "clients": 3, "loaded": False, "load_ms": 1.0, "unload_ms": 2.0}
    gone = {"objects": 0, "clients": 0, "shadows": 0}
    lines: list[dict[str, Any]] = [
        a_round,
        {"event": "after", "before": 1, "references": 1, "clients_before": 8, **gone},
        {"event": "log", "lines": 500, "lost": lost, "faults": faults, "first": []},
    ]
    monkeypatch.setattr(unload, "run", lambda *_words, **_named: lines)
    report = Report("unload", "model", "pytest")
    unload.measure(report, SIM, 1)
    assert [row.what.count(word) for row, word in zip(report.missed, missed, strict=True)] == [1] * len(missed)
