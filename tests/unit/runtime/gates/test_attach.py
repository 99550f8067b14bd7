# SPDX-License-Identifier: Apache-2.0
"""Whatever the daemon does, the program goes on: without us, within a second or two, with one line that says why."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from gatekit import Daemon, Program, Tenant

from detshare.runtime import board_layout as layout
from detshare.runtime.board import Attach, Attached
from tests.patience import until

Start = Callable[..., Program]
Answer = tuple[bytes, list[int]] | None


def refused(program: Program, why: str) -> None:
    assert program.ask("attach") == "0"
    lines = program.log.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("this program runs without DetShare: ")
    assert why in lines[0]


def test_what_the_library_says_of_itself(daemon: Daemon, start: Start) -> None:
    daemon.tenant(layout.CLASS_NORMAL)
    program = start(DETSHARE_TENANT="team-a")
    program.attach()
    said = daemon.asked[0]
    assert (said.version, said.gpu_uuid, said.pid) == (layout.VERSION, b"u" * 16, program.process.pid)
    assert (said.sms, said.sm_step, said.memory_total, said.tenant) == (132, 8, 80 << 30, "team-a")
    assert program.log == ""


def test_no_socket_named(daemon: Daemon, start: Start) -> None:
    refused(start(DETSHARE_SOCKET=""), "DETSHARE_SOCKET is not set")


@pytest.mark.parametrize(
    ("path", "why"), [("/nowhere/boards.sock", "No such file"), ("/" + "x" * 200, "File name too long")]
)
def test_no_daemon(daemon: Daemon, start: Start, path: str, why: str) -> None:
    refused(start(DETSHARE_SOCKET=path), why)


def test_a_refusal_is_passed_on(daemon: Daemon, start: Start) -> None:
    daemon.tenant(layout.CLASS_NORMAL)
    daemon.answer = lambda _attach, _tenant: (Attached(errno.ENOSPC, 0, "24 programs use this GPU").pack(), [])
    refused(start(), "24 programs use this GPU (No space left on device)")


def test_a_daemon_that_does_not_answer(daemon: Daemon, start: Start) -> None:
    daemon.tenant(layout.CLASS_NORMAL)
    daemon.answer = lambda _attach, _tenant: None
    refused(start(), "Connection timed out")


def test_a_daemon_that_closes(daemon: Daemon, start: Start) -> None:
    daemon.tenant(layout.CLASS_NORMAL)
    daemon.answer = lambda _attach, _tenant: (b"", [])
    refused(start(), "did not answer as expected")


def test_another_version(daemon: Daemon, start: Start) -> None:
    daemon.tenant(layout.CLASS_NORMAL)
    daemon.answer = lambda _attach, _tenant: (Attached(0, 0, "", layout.VERSION + 1).pack(), [])
    refused(start(), f"speaks version {layout.VERSION + 1}")


def test_something_that_is_no_daemon(daemon: Daemon, start: Start) -> None:
    daemon.tenant(layout.CLASS_NORMAL)
    daemon.answer = lambda _attach, _tenant: (b"HTTP" + bytes(layout.ATTACHED_SIZE - 4), [])
    refused(start(), "is no DetShare daemon")


def test_too_few_descriptors(daemon: Daemon, start: Start) -> None:
    daemon.tenant(layout.CLASS_NORMAL)

    def two(attach: Attach, tenant: Tenant) -> Answer:
        data, descriptors = daemon.good(attach, tenant) or (b"", [])
        os.close(descriptors.pop())
        return data, descriptors

    daemon.answer = two
    refused(start(), "2 descriptors")


def test_a_slot_that_cannot_be(daemon: Daemon, start: Start) -> None:
    tenant = daemon.tenant(layout.CLASS_NORMAL)
    daemon.answer = lambda _attach, _tenant: (Attached(0, layout.SLOTS).pack(), tenant.descriptors())
    refused(start(), f"slot {layout.SLOTS}")


@pytest.mark.parametrize("which", ["policy", "counters"])
def test_a_board_of_another_version(daemon: Daemon, start: Start, which: str) -> None:
    tenant = daemon.tenant(layout.CLASS_NORMAL)
    (tenant.policy if which == "policy" else tenant.counters).put("version", 9)
    refused(start(), f"the {which} board has magic")


def test_a_short_board(daemon: Daemon, start: Start) -> None:
    tenant = daemon.tenant(layout.CLASS_NORMAL)
    os.truncate(tenant.paths[1], 100)
    refused(start(), "the counters board is shorter than a page")


def test_the_board_of_another_gpu(daemon: Daemon, start: Start) -> None:
    daemon.tenant(layout.CLASS_NORMAL)
    daemon.activity.put_raw("gpu_uuid", b"other")
    refused(start(), "another GPU")


def test_a_policy_descriptor_is_only_read(daemon: Daemon, start: Start) -> None:
    daemon.tenant(layout.CLASS_NORMAL)
    program = start()
    program.attach()
    maps = Path(f"/proc/{program.process.pid}/maps").read_text().splitlines()
    ours = [line.split() for line in maps if line.endswith(("policy", "counters"))]
    modes = {words[-1].rsplit(".", 1)[-1]: words[1] for words in ours}
    assert modes == {"policy": "r--s", "counters": "rw-s"}
    # and nothing stays open
    for descriptor in Path(f"/proc/{program.process.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed by its other thread since the folder was read
            assert "gpu.activity" not in str(descriptor.readlink())


def test_a_refused_program_asks_again_when_told_to(daemon: Daemon, start: Start) -> None:
    daemon.tenant(layout.CLASS_NORMAL)
    daemon.answer = lambda _attach, _tenant: (Attached(errno.EAGAIN, 0, "later").pack(), [])
    program = start()
    refused(program, "later")
    daemon.answer = daemon.good
    program.attach()
    until(lambda: program.number("launch 0 1 1 1") == 0)
