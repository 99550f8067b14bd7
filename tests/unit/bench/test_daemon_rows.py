# SPDX-License-Identifier: Apache-2.0
"""The experiments on the daemon: rows can miss their targets, and what stands for the kernel is read as it is."""

from __future__ import annotations

import json
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from detshare.ctl.backends.module.backend import KmodBackend
from detshare.ctl.backends.module.event_thread import EventThread
from detshare.ctl.netlink import events, genl
from detshare.ctl.netlink.link import Link
from detshare.tools.bench.scale import kernel, sender
from detshare.tools.bench.vm import daemon_recovery
from detshare.tools.bench.vm.report import Report
from tests.patience import comes

KILL: dict[str, Any] = {
    "event": "kill",
    "number": 0,
    "early": False,
    "answers": 9,
    "wrong": {},
    "changed": {},
    "finished": {"bucket": [1, 2]},
    "differs": {},
    "stopped": 0,
    "alive": 4,
    "held": True,
    "held_after": None,
    "restart_s": 1.0,
}
REST = [
    {"event": "end", "held": 0, "stopped": 0},
    *({"event": "program", "count": 7} for _ in range(4)),
    {"event": "log", "lines": 5, "lost": 0, "faults": 0},
]


def missed(monkeypatch: pytest.MonkeyPatch, **wrong: Any) -> list[str]:
    lines = [KILL, {**KILL, "early": True}, {**KILL, "held_after": 0, **wrong}, *REST]
    monkeypatch.setattr(daemon_recovery, "run", lambda *args, took, **named: [took(line) or line for line in lines])
    report = Report("x", "model", "x")
    daemon_recovery.measure(report, 3, 1)
    return [row.what for row in report.missed]


def test_a_recovery_without_fault_meets_every_target(monkeypatch):
    assert missed(monkeypatch) == []


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"wrong": {"bucket": 1}}, "answered changes that the kernel had not after the kill"),
        ({"changed": {"bucket": [1, 2]}}, "settings that the next daemon changed though nobody had asked for it"),
        ({"differs": {"bucket": [1, 2]}}, "settings that the next daemon shows otherwise than the kernel"),
        ({"stopped": 1}, "programs that got no GPU time after a kill, though nobody holds them"),
        ({"alive": 3}, "programs that ended of it"),
        ({"held_after": 1}, "holds that were left after that"),
    ],
)
def test_each_fault_misses_its_target(monkeypatch, wrong, what):
    assert missed(monkeypatch, **wrong) == [what]


@pytest.fixture
def wire(monkeypatch):
    receiver = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, sender.USERSOCK)
    receiver.bind((0, 0))
    monkeypatch.setattr(kernel.Answers, "events", receiver)
    monkeypatch.setattr(kernel.Answers, "count", 100)
    monkeypatch.setattr(kernel.Answers, "_bytes", {})
    monkeypatch.setattr(genl, "DetShare", kernel.Answers)
    yield receiver
    receiver.close()


def test_the_bytes_are_read_as_the_kernels(wire, tmp_path: Path):
    backend = KmodBackend(Link(), kernel.MadeDriver(100), tmp_path)
    first, second = backend.look(), backend.look()
    assert [program.id.pid for program in first.programs] == [kernel.FIRST_PID + n for n in range(100)]
    states = [[program.activity.state for program in seen.programs] for seen in (first, second)]
    assert sum(before != after for before, after in zip(*states, strict=True)) == 100 // kernel.TURN
    backend.close()


def test_what_is_sent_is_counted_and_what_matters_is_told(wire, capsys):
    told: list[Any] = []
    receiver = EventThread(str, told.append)
    port = wire.getsockname()[0]
    thread = threading.Thread(target=sender.main, args=(port, 10, 5000, 0.5))
    thread.start()
    thread.join()
    sent = json.loads(capsys.readouterr().out)["sent"]
    assert sent > 1100
    comes(lambda: len(told) >= sent // 1100)
    receiver.close()
    assert {event.kind for event in told} <= {"refused", "lost"}
    assert sum(event.kind == "refused" for event in told) == sent // 1100


def test_a_message_of_the_sender_has_its_number_where_it_writes_it():
    data = kernel.encoded(genl.DETSHARE_CMD_GATED, seq=0, time=0, vctx_id=1, pid=2, reasons=2)
    at = sender._SEQ_AT
    data = data[:at] + (77).to_bytes(8, sys.byteorder) + data[at + 8 :]
    ((begin, end, _, command),) = events.messages(data)
    assert events.glance(data, begin, end, command).seq == 77
