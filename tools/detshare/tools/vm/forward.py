# SPDX-License-Identifier: Apache-2.0
"""The helper of a guest whose driver forwards (tests/nvfwd): built, told what to answer from, started and ended."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from detshare.tools.replay.records import Call, Mapping, TraceError, read
from detshare.tools.vm import cache
from detshare.tools.vm.builds import generated
from detshare.tools.vm.checkout import NVFWD
from detshare.tools.vm.errors import VmError
from detshare.tools.vm.say import step
from detshare.tools.vm.toolchain import compiler_version, failure

NAME = "nvfwd-helper"
CONTROL_DEVICE = Path("/dev/nvidiactl")
RECORDED_WITH = "580.159.04"  # the driver of all recordings so far
DEVICES = {"/dev/nvidiactl": 0, "/dev/nvidia0": 1, "/dev/nvidia-uvm": 2}
_LAST_WORDS = 15.0  # s for which a helper may give back what its guest had


def build() -> Path:
    """The program, built for this machine, as a static one: it may travel."""
    tables = generated(NVFWD)
    assert tables is not None
    files = [path for name in ("common", "host") for path in sorted((NVFWD / name).iterdir()) if path.is_file()]

    def make(stage: Path) -> None:
        stage.mkdir()
        words = ["make", "-s", "-C", str(NVFWD / "host"), f"OUT={stage}", f"TABLES={tables}", "LINK=-static"]
        with step(f"building {NAME}"):
            done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            raise VmError(f"build {NAME}", failure(done.stderr), "mend the sources and run it again")

    key = cache.key(cache.key_of_files(NVFWD, files), tables.name, compiler_version())
    made = cache.ensure(f"build/{NAME}-{key}", make)
    return made / NAME


def write_recording(trace: Path, into: Path) -> None:
    """A recorded trace as the helper reads it. Mappings of UVM are left out: the guest's driver makes those itself."""
    try:
        records = read(trace)
    except (OSError, TraceError) as error:
        raise VmError(f"replay {trace}", str(error), "name a trace such as those in tests/data/traces") from error
    lines = [f"driver {RECORDED_WITH}"]
    for record in records:
        device = DEVICES[record.path]
        if isinstance(record, Call):
            data = (record.before, record.after, record.nested_before, record.nested_after)
            texts = " ".join(each.hex() or "-" for each in data)
            lines.append(f"call {record.seq} {device} {record.nr} {record.ret} {texts}")
        elif isinstance(record, Mapping) and device != DEVICES["/dev/nvidia-uvm"]:
            lines.append(f"map {record.seq} {device} {record.length}")
    into.write_text("\n".join(lines) + "\n", encoding="ascii")


def check(recording: Path | None) -> None:
    """VmError, usage, where there is nothing to forward to."""
    if recording is not None and not recording.is_file():
        raise VmError(
            f"replay {recording}", "it is no file", "name a trace, such as tests/data/traces/*.gz", usage=True
        )
    if recording is None and not CONTROL_DEVICE.exists():
        raise VmError(
            "forward to this machine's driver",
            f"{CONTROL_DEVICE} is missing",
            "run where there is a GPU, or answer from a recording: --recording FILE",
            usage=True,
        )


@dataclass(frozen=True)
class Forwarding:
    """What a helper is started with: the program, and the file that it answers from (None: this machine's driver)."""

    program: Path
    recording: Path | None


class Helper:
    """A running helper, for one QEMU. `socket` is QEMU's end."""

    def __init__(self, forwarding: Forwarding) -> None:
        mine, self.socket = socket.socketpair()
        self._folder = tempfile.TemporaryDirectory(prefix="detshare-nvfwd-")
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - until end()
        options: list[str] = []
        if forwarding.recording is not None:
            options = ["--replay", str(Path(self._folder.name, "recording"))]
            write_recording(forwarding.recording, Path(options[1]))
        # it ends when QEMU goes; when we go first, it ends with us
        first = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        words = [*first, str(forwarding.program), *options, str(mine.fileno())]
        with mine:
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self._said, pass_fds=[mine.fileno()]
            )

    def started(self) -> None:
        """QEMU has its end."""
        self.socket.close()

    def end(self) -> str:
        """Once QEMU is gone: what the helper said, its last words included."""
        self.socket.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_LAST_WORDS)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._said.seek(0)
        text = self._said.read().decode(errors="replace")
        self._said.close()
        self._folder.cleanup()
        if self._process.returncode:
            text += f"nvfwd: the helper ended with {self._process.returncode}\n"
        return text
