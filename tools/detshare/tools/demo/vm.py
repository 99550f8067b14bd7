# SPDX-License-Identifier: Apache-2.0
"""The demo on a machine without a GPU: a virtual machine with the simulated driver and the kernel module.

The same driver entry points, the same calls as an H100 program made, the same module and the same commands as on a real
machine; only GPU and driver are simulated, so every figure is proof level model.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from detshare.tools.demo.children import alone_in_session
from detshare.tools.demo.errors import DemoError
from detshare.tools.demo.screen import Screen

TOP: Final = Path(__file__).resolve().parents[4]
PROGRAMS: Final = TOP / "build" / "nvclient"
TRACE: Final = TOP / "tests" / "data" / "traces" / "h100-580-runtime-greenctx.jsonl.gz"
SECONDS: Final = 240.0
"""the guest's time"""


def why_not(top: Path = TOP) -> str | None:
    """What keeps this machine from running the virtual machine; None: nothing that can be seen beforehand."""
    for name in ("Kbuild", "tests/nvsim", "tests/nvclient"):
        if not (top / name).exists():
            return f"DetShare runs from no checkout ({top / name} is not there)"
    if platform.machine() != "x86_64":
        return f"the guest kernels are for x86_64, this is {platform.machine()}"
    if shutil.which("gcc") is None or shutil.which("make") is None:
        return "gcc or make is missing"
    may_install = os.geteuid() == 0 and shutil.which("apt-get") is not None
    if shutil.which("qemu-system-x86_64") is None and not may_install:
        return "QEMU is missing (apt-get install qemu-system-x86)"
    return None


def perform(screen: Screen, as_json: bool) -> int:
    """Build, boot, play; the exit code of the demo in the guest. DemoError where that could not be done."""
    screen.step("build the client programs")
    _run("build the client programs", ["make", "-s", "-j2", "-C", str(TOP / "tests" / "nvclient"), f"OUT={PROGRAMS}"])
    replay = PROGRAMS / "h100.nvr"
    convert = [sys.executable, "-m", "detshare.tools.replay", str(TRACE), "--script", str(replay)]
    _run("convert the recorded H100 program", convert)
    screen.step("boot a Debian kernel in QEMU with the simulated driver and detshare.ko (built and cached at first)")
    command = [sys.executable, "-m", "detshare.tools.vm.cli", "run", "--driver", "sim", "--load"]
    command += ["--timeout", f"{SECONDS:g}", "--", sys.executable, "-m", "detshare.tools.demo.guest"]
    command += ["--programs", str(PROGRAMS), "--replay", str(replay), "--began", f"{screen.seconds:.1f}"]
    command += ["--json"] if as_json else []
    process = subprocess.Popen(alone_in_session(command), stdin=subprocess.DEVNULL, cwd=TOP)
    try:
        return process.wait()
    except BaseException:
        process.terminate()
        process.wait()
        raise


def _run(asked: str, command: list[str]) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, cwd=TOP)
    if done.returncode:
        words = "\n  ".join(["", *(done.stdout + done.stderr).strip().splitlines()[-8:]])
        raise DemoError(asked, f"it ended with code {done.returncode}:{words}", "detshare demo --model plays without")
