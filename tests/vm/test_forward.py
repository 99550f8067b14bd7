# SPDX-License-Identifier: Apache-2.0
"""The forwarding driver from a guest's program to the helper and back, against a recording of an H100."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from detshare.tools.replay.conformance import TRACES, convert_all
from detshare.tools.replay.records import Call, read
from detshare.tools.replay.run import build
from tests.vm.conftest import TOP, guest_words, results, steps

TRACE = TRACES / "h100-580-runtime-greenctx.jsonl.gz"
RM_ALLOC, LOCAL_USER, SIZE_AT = 0x2B, 0x40, 64


def video_memory() -> int:
    """Bytes of video memory that the recorded program asked for and never freed by itself."""
    made = [
        struct.unpack_from("<Q", record.nested_after, SIZE_AT)[0]
        for record in read(TRACE)
        if isinstance(record, Call)
        and record.path != "/dev/nvidia-uvm"
        and record.nr == RM_ALLOC
        and struct.unpack_from("<I", record.before, 12)[0] == LOCAL_USER
    ]
    return sum(made)


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scripts")
    return next(path for path in convert_all(folder) if path.stem == "h100-580-runtime-greenctx")


def last_words(stderr: str) -> dict[str, int]:
    (line,) = [line for line in stderr.splitlines() if line.startswith('{"event":"ended"')]
    found: dict[str, int] = json.loads(line)
    return found


def nothing_left(stderr: str) -> None:
    left = last_words(stderr)
    assert [left[name] for name in ("handles", "maps", "pins", "waits", "refused")] == [0, 0, 0, 0, 0], left


@pytest.mark.parametrize("kernel", ["6.12", pytest.param("6.1", marks=pytest.mark.thorough)])
def test_the_recorded_program_and_the_module(vm: Callable[..., Any], script: Path, kernel: str) -> None:
    environment = {
        "DETSHARE_NVCLIENT": str(build()),
        "DETSHARE_FWD_SCRIPT": str(script),
        "DETSHARE_FWD_VIDEO_MEMORY": str(video_memory()),
        "PYTHONPATH": str(TOP),
    }
    commands = steps(
        tests=" ".join(guest_words("tests/vm/guest/fwd_recorded.py")),
        # the device begins anew, and so does the helper
        again=f"vm-load -r module && vm-load -r driver && vm-load driver && "
        f"{build() / 'nvreplay'} {script}; cat /sys/kernel/debug/nvfwd/host",
    )
    done = vm(
        commands, kernel=kernel, driver="forward", load=True, recording=TRACE, mounts=[script.parent], env=environment
    )
    assert done.returncode == 0, done.stderr
    found = results(done.stdout)
    assert found["tests"].status == 0, found["tests"].text
    assert '"calls":521,"accepted":521' in found["again"].text
    nothing_left(done.stderr)


def test_programs_that_wait_for_events_leave_room_for_calls(vm: Callable[..., Any], script: Path) -> None:
    """Their clients have the same numbers, for they are of one recording: so without the module."""
    environment = {
        "DETSHARE_NVCLIENT": str(build()),
        "DETSHARE_FWD_SCRIPT": str(script),
        "DETSHARE_FWD_VIDEO_MEMORY": str(video_memory()),
        "PYTHONPATH": str(TOP),
    }
    words = guest_words("tests/vm/guest/fwd_many.py")
    done = vm(words, driver="forward", recording=TRACE, mounts=[script.parent], env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    nothing_left(done.stderr)


def test_a_guest_that_dies_leaves_nothing(vm: Callable[..., Any], script: Path) -> None:
    """Powered off by itself, at once, in the midst of a program's life."""
    nvreplay = build() / "nvreplay"
    ready = "until grep -q ready /run/said; do sleep 0.1; done"
    work = f"{nvreplay} {script} --keep >/run/said & {ready}; echo o >/proc/sysrq-trigger"
    done = vm(f"{work}; sleep 60", driver="forward", recording=TRACE, mounts=[script.parent])
    assert done.returncode != 0
    assert last_words(done.stderr)["replayed"] > 500
    nothing_left(done.stderr)
