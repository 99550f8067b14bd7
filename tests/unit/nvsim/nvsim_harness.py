# SPDX-License-Identifier: Apache-2.0
"""The engine's plain C, compiled by gcc into a shared object and reached by ctypes."""

from __future__ import annotations

import ctypes
import functools
import subprocess
import tempfile
from pathlib import Path

REPO = Path(__file__).resolve().parents[3]
NVSIM = REPO / "tests" / "nvsim"
NEVER = 2**64 - 1
US, MS = 1_000, 1_000_000
LOW, MEDIUM, HIGH = 0, 1, 2

_U64 = {
    "next", "log_when", "note_when", "busy", "switching", "restoring", "switches", "gpu_time", "ran", "finished",
}  # fmt: skip


@functools.cache
def library() -> ctypes.CDLL:
    """The shared object; AssertionError with the compiler's words."""
    folder = Path(tempfile.mkdtemp(prefix="nvsim-harness-"))
    target = folder / "harness.so"
    sources = [
        Path(__file__).with_name("harness.c"),
        *(NVSIM / f"{name}.c" for name in ("engine_sched", "engine_round", "engine_chan", "ring", "eventbuf")),
    ]
    flags = ["-Wall", "-Wextra", "-Werror", "-O1", "-g", "-fPIC", "-shared", f"-I{NVSIM}"]
    done = subprocess.run(
        ["gcc", *flags, "-o", str(target), *map(str, sources)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    loaded = ctypes.CDLL(str(target))
    target.unlink()
    folder.rmdir()
    loaded.bench_new.restype = ctypes.c_void_p
    loaded.bench_broken.restype = loaded.bench_tsg_state.restype = ctypes.c_char_p
    for name in _U64:
        getattr(loaded, f"bench_{name}").restype = ctypes.c_uint64
    loaded.events_new.restype = ctypes.c_void_p
    loaded.ring_new.restype = ctypes.c_void_p
    loaded.ring_fault.restype = loaded.ring_kernel_ns.restype = loaded.ring_kernel_until.restype = ctypes.c_uint64
    return loaded


class Bench:
    """A runlist with its clock."""

    def __init__(self, sms: int = 132, switch: int = 200 * US, restore: int = 0, late: int = 0, save: int = 0) -> None:
        self.lib = library()
        times = [ctypes.c_uint64(ns) for ns in (switch, restore, late, save)]
        self.at = ctypes.c_void_p(self.lib.bench_new(sms, *times))
        self.now = 0
        self._read = 0

    def __del__(self) -> None:
        self.lib.bench_free(self.at)

    def call(self, name: str, *args: int) -> int:
        return int(getattr(self.lib, f"bench_{name}")(self.at, *[ctypes.c_uint64(arg) for arg in args]))

    def tsg(self, level: int = MEDIUM, slice_ns: int = 2048 * US, enabled: bool = True) -> int:
        made = self.call("tsg", level, slice_ns)
        if not enabled:
            self.call("enable", made, 0)
        return made

    def chan(self, tsg: int) -> int:
        return self.call("chan", tsg)

    def submit(self, chan: int, ns: int, sms: int = 132, forever: bool = False) -> None:
        """At the present time; acts at once."""
        self.call("submit", chan, ns, sms, int(forever))
        self.advance(0)

    def change(self, name: str, *args: int) -> None:
        """Like a driver call: it acts at the present time."""
        self.advance(0)
        self.call(name, *args)
        self.advance(0)

    def advance(self, ns: int) -> None:
        self.now += ns
        self.call("advance", self.now)
        broken = self.lib.bench_broken(self.at)
        assert broken is None, broken

    def ended(self) -> list[tuple[int, int]]:
        """(when, channel) of each kernel that ended since the last question."""
        upto = self.call("logged")
        found = [(self.call("log_when", i), self.call("log_chan", i)) for i in range(self._read, upto)]
        self._read = upto
        return found

    def runs(self) -> list[tuple[int, int, int]]:
        """(TSG, begin, end) of each time that a context was on the engine and left it."""
        found, begun = [], None
        for i in range(self.call("noted")):
            tsg, when = self.call("note_tsg", i), self.call("note_when", i)
            if self.call("note_begins", i):
                assert begun is None, "one came before the other had left"
                begun = (tsg, when)
            else:
                assert begun is not None, "one left and nobody was there"
                assert begun[0] == tsg, "one left that was not there"
                found.append((tsg, begun[1], when))
                begun = None
        return found

    def state(self, tsg: int) -> str:
        return str(self.lib.bench_tsg_state(self.at, tsg).decode())

    def share(self, tsg: int) -> float:
        return self.call("gpu_time", tsg) / self.now
