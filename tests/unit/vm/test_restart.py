# SPDX-License-Identifier: Apache-2.0
"""A guest whose QEMU ends itself, or loses a CPU while booting, is begun anew, once, before its command began only.

In QEMU's place runs a program that does just that.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from detshare.tools.vm import emulator, machine, qemu
from detshare.tools.vm.kernels import Kernel
from detshare.tools.vm.loads import Loads
from detshare.tools.vm.machine import Outcome
from detshare.tools.vm.options import Options

PROGRAM = f"""#!{sys.executable}
import os, re, sys, time
from pathlib import Path
ports = dict(re.findall(r"socket,id=(\\w+),fd=(\\d+)", " ".join(sys.argv)))
lives = Path(__file__).with_name("lives")
word, *left = lives.read_text().split()
lives.write_text(" ".join(left))
os.write(int(ports["log"]), b"[    0.830000] mtrr: words\\n")
for line in {{"begun": ("up", "begin"), "up": ("up",), "well": ("up", "begin", "exit 0")}}.get(word, ()):
    os.write(int(ports["control"]), line.encode() + b"\\n")
if word == "splat":
    os.write(int(ports["log"]), b"[    0.900000] BUG: kernel NULL pointer dereference\\n")
if word == "silent":
    time.sleep(600)
if word in ("stall", "late"):
    if word == "late":
        os.write(int(ports["control"]), b"up\\n")
        time.sleep(0.5)  # the two channels are read in no order
    os.write(int(ports["log"]), b"[    1.445398] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:\\n")
    if word == "stall":
        time.sleep(600)
    sys.exit(0)
if word == "refuses":
    sys.exit("no such device")
if word != "well":
    print("msix.c:228: Assertion failed.", file=sys.stderr, flush=True)
    os.abort()
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], tuple[Outcome, str]]:
    """run(LIVES): how a guest ended that does these in turn each time it is started, and which of them are left."""
    program = tmp_path / "qemu"
    program.write_text(PROGRAM, encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setattr(emulator, "command", lambda: (str(program),))
    monkeypatch.setattr(qemu, "bootable", lambda kernel: kernel.image)
    monkeypatch.setattr(machine.initramfs, "image", lambda kernel, settings, path: path)
    lives = tmp_path / "lives"

    def start(words: str) -> tuple[Outcome, str]:
        lives.write_text(words, encoding="utf-8")
        kernel = Kernel("6.12", "6.12.0", tmp_path)
        outcome = machine.run(Options(("true",), timeout=60), kernel, Loads(), io.BytesIO(), io.BytesIO())
        return outcome, lives.read_text(encoding="utf-8")

    return start


@pytest.mark.parametrize("before", ["dead", "up"])
def test_one_that_ends_before_the_command_began_is_started_anew(
    run: Callable[[str], tuple[Outcome, str]], before: str, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome, left = run(f"{before} well never")
    assert (outcome.status, outcome.trouble, left) == (0, None, "never")
    said = capsys.readouterr().err
    assert "QEMU ended itself before the command began; the guest is started once more" in said
    assert "Assertion failed" in said


@pytest.mark.parametrize("before", ["stall", "silent"])
def test_one_that_loses_a_cpu_while_it_boots_is_started_anew(
    run: Callable[[str], tuple[Outcome, str]],
    before: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if before == "silent":
        monkeypatch.setattr(machine, "BOOT_LIMIT", 2.0)
    outcome, left = run(f"{before} well never")
    assert (outcome.status, outcome.trouble, left) == (0, None, "never")
    assert "the guest's processors stood still before it was up; the guest is started once" in capsys.readouterr().err


def test_one_that_loses_a_cpu_each_time_it_boots_is_told(run: Callable[[str], tuple[Outcome, str]]) -> None:
    outcome, left = run("stall stall never")
    assert left == "never"
    assert outcome.status != 0
    assert "detected stalls" in (outcome.trouble or "")


@pytest.mark.parametrize(
    ("lives", "said"),
    [
        ("begun never", "the guest ended before the command did; QEMU said: msix.c:228"),
        ("splat never", "the kernel reported a fault"),
        ("late never", "detected stalls on CPUs"),
        ("refuses never", "QEMU said: no such device"),
        ("dead dead never", "QEMU said: msix.c:228"),
    ],
)
def test_any_other_end_stands(run: Callable[[str], tuple[Outcome, str]], lives: str, said: str) -> None:
    """When the command has begun, when the kernel had a fault, when QEMU refuses, and the second time."""
    outcome, left = run(lives)
    assert outcome.status == 1
    assert said in (outcome.trouble or "")
    assert left == "never"


def test_no_device_has_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulator, "command", lambda: ("qemu",))
    monkeypatch.setattr(qemu, "bootable", lambda kernel: kernel.image)
    hardware = qemu.Machine(2048, 2, (tmp_path,))
    words = qemu.arguments(
        Kernel("6.12", "6.12.0", tmp_path), tmp_path, hardware, dict.fromkeys(("log", *qemu.PORTS), 3)
    )
    devices = [word for word in words if "-pci" in word]
    assert len(devices) == 4
    assert all(word.endswith(",vectors=0") for word in devices)
