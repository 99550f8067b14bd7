# SPDX-License-Identifier: Apache-2.0
"""What the guest's tests of observers share: raw programs that begin fast, and detshare-trace as a command."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from detshare.ctl.abi.versions import Abi, for_version
from detshare.ctl.core import procfs
from tests.patience import words

TRACE = Path(sys.executable).with_name("detshare-trace")
_PRELUDE = """
import fcntl, os, struct, sys
def make_client(file):
    block = bytearray(48)
    struct.pack_into('<I', block, 12, 0x41)  # NV01_ROOT_CLIENT
    fcntl.ioctl(file, 3 << 30 | 48 << 16 | ord('F') << 8 | 0x2B, block)
    client, status = struct.unpack_from('<I', block, 8)[0], struct.unpack_from('<I', block, 40)[0]
    assert status == 0
    return client
"""


BIRTHS = """
for _ in range(101):
    if not os.fork():
        make_client(os.open('/dev/nvidiactl', os.O_RDWR))
        os._exit(0)
    os.wait()
"""


def abi() -> Abi:
    """Of the driver in the guest."""
    version = procfs.driver_version()
    assert version is not None
    return for_version(version)


def raw_program(body: str, *before: str) -> subprocess.Popen[str]:
    """A Python program that makes raw calls, under the command `before`; it may be told by lines and tells by lines."""
    words = [*before, sys.executable, "-S", "-c", _PRELUDE + body]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def told(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell(process: subprocess.Popen[str], line: str = "") -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


@dataclass
class Trace:
    """How a detshare-trace ended and what it wrote."""

    code: int = -1
    out: str = ""
    err: str = ""


@contextmanager
def tracing(*asked: str, ends: bool = True) -> Iterator[Trace]:
    """A detshare-trace that watches inside the block. `ends`: by Ctrl-C after it; else it is expected to end itself."""
    process = subprocess.Popen([TRACE, *asked], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    done = Trace()
    try:
        assert process.stderr is not None
        first = process.stderr.readline()
        assert first == "watching; Ctrl-C ends\n", first + process.stderr.read()
        yield done
        if ends:
            process.send_signal(signal.SIGINT)
        done.out, done.err = words(process)
        done.code = process.returncode
    finally:
        process.kill()
        process.wait()
