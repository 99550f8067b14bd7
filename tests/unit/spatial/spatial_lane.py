# SPDX-License-Identifier: Apache-2.0
"""A spatial lane for tests: its service, and programs whose library is written in Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from detshare.runtime import board_layout as layout
from detshare.runtime import sealed
from detshare.runtime.board import Activity, Policy
from detshare.runtime.mps import Mps
from detshare.runtime.service import Service

GPU = uuid.UUID("12345678-1111-2222-3333-444444444444")
GPU_TEXT = f"GPU-{GPU}"

LIBRARY = """
import array, mmap, os, socket, sys, time
from detshare.runtime.board import Attach, Attached, Counters, Policy
path, tenant, version = sys.argv[1:4]
link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
link.connect(path)
link.send(Attach(int(version), bytes.fromhex(sys.argv[4]), os.getpid(), 132, 8, 80 << 30, tenant).pack())
data, rights, _, _ = link.recvmsg(4096, socket.CMSG_SPACE(64))
answer = Attached.unpack(data)
print(answer.status, answer.slot, answer.message, flush=True)
if answer.status:
    sys.exit(0)
fds = array.array("i")
fds.frombytes(rights[0][2][: len(rights[0][2]) // 4 * 4])
policy = Policy(mmap.mmap(fds[0], 4096, access=mmap.ACCESS_READ))
counters = Counters(mmap.mmap(fds[1], 4096))
activity = mmap.mmap(fds[2], 4096)
for word in sys.stdin:
    match word.split():
        case ["ack"]:
            counters.put("epoch_ack", policy.epoch)
        case ["acks", seconds]:
            until = time.monotonic() + float(seconds)
            while time.monotonic() < until:
                counters.put("epoch_ack", policy.epoch)
                time.sleep(0.0005)
        case ["put", name, value]:
            counters.put(name, int(value))
        case ["hist", bucket, count]:
            counters.put("hist_kernel", int(count), int(bucket))
        case ["shape", index, blocks, threads, ns, bucket, count]:
            for name, value in (("blocks", blocks), ("threads", threads), ("ns", ns)):
                counters.put(f"shape_{name}", int(value), int(index))
            counters.put("shape_hist", int(count), int(index) * 32 + int(bucket))
            counters.put("last_blocks", int(blocks))
        case ["open", path]:
            opened = os.open(path, os.O_RDWR)
        case ["close"]:
            os.close(opened)
        case ["cut", which]:
            try:
                os.ftruncate(fds[int(which)], 0)
                print("yes", flush=True)
            except OSError as error:
                print(error.strerror, flush=True)
            continue
        case ["writable"]:
            try:
                mmap.mmap(fds[0], 4096)
                print("yes", flush=True)
            except PermissionError:
                print("no", flush=True)
            continue
    print("done", flush=True)
"""
"""a program whose library is written in Python: it attaches, then does what it is told"""


class Program:
    """A living tenant."""

    def __init__(self, path: Path, tenant: str = "", version: int = layout.VERSION, gpu: uuid.UUID = GPU) -> None:
        command = [sys.executable, "-c", LIBRARY, str(path), tenant, str(version), gpu.hex]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        words = self.process.stdout.readline().split(None, 2)
        self.status, self.slot = int(words[0]), int(words[1])
        self.message = words[2].strip() if len(words) > 2 else ""

    @property
    def pid(self) -> int:
        return self.process.pid

    def send(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def do(self, text: str) -> str:
        self.send(text)
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@contextmanager
def short_folder() -> Iterator[Path]:
    """Short: a socket's path has 107 bytes at most."""
    path = Path(tempfile.mkdtemp(prefix="ds-"))
    path.chmod(0o700)
    yield path
    shutil.rmtree(path, ignore_errors=True)


def mps_control(folder: Path) -> Path:
    """The stand-in, under the real name."""
    path = folder / "bin" / "nvidia-cuda-mps-control"
    path.parent.mkdir()
    text = (Path(__file__).parent / "fake_mps.py").read_text()
    path.write_text(f"#!{sys.executable} -S\n{text}")
    path.chmod(0o755)
    return path


def end_mps(folder: Path, control: Path) -> None:
    """End what a daemon that was killed left running."""
    left = Mps(folder / "mps", str(control))
    left.adopt()
    left.stop()


class Lane:
    """A service, and what its tests need of it."""

    def __init__(self, folder: Path, mps: Mps) -> None:
        self.folder = folder
        self.boards = folder / "boards"
        self.mps = mps
        self.steered: list[tuple[object, ...]] = []
        self.steer_says: list[str] = []
        self.programs: list[Program] = []
        self._told: list[str] = []
        self.service = self.make()
        self.service.open()

    def make(self) -> Service:
        def steer(*asked: object) -> list[str]:
            self.steered.append(asked)
            return self.steer_says

        return Service(self.folder, steer, self.boards, self.mps)

    def again(self, restore: bool = True) -> None:
        """Another daemon in the same place."""
        self.service.close(restore)
        self.mps = Mps(self.folder / "mps", self.mps._binary, self.mps._probe)
        self.service = self.make()
        self.service.open()

    def start(self, *args: object, **kwargs: object) -> Program:
        program = Program(self.service.socket, *args, **kwargs)  # type: ignore[arg-type]
        self.programs.append(program)
        return program

    def view(self, program: Program):
        return next(v for v in self.service.tenants.views() if v.record.pid == program.pid)

    def page(self, program: Program):
        """The program's policy as it lies in the file."""
        (path,) = self.boards.glob(f"{program.pid}-*.policy")
        return Policy(bytearray(path.read_bytes())).read()

    def activity(self) -> Activity:
        """The GPU's page; without a daemon, as the programs have it."""
        name = f"{GPU_TEXT}.activity"
        if (self.boards / name).exists():
            return Activity(bytearray((self.boards / name).read_bytes()))
        found = sealed.find(next(p.pid for p in self.programs if p.process.poll() is None))
        data = bytearray(os.pread(found[name], layout.PAGE_BYTES, 0))
        for each in found.values():
            os.close(each)
        return Activity(data)

    def events(self) -> list[str]:
        """Texts of all events so far."""
        self._told += [event.text for event in self.service.drain_events()]
        return self._told

    def close(self) -> None:
        for program in self.programs:
            program.end()
        self.service.close()
