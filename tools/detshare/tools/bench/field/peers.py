# SPDX-License-Identifier: Apache-2.0
"""Peers that somebody fetched: built from their source by a command, and started as their own pages say.

Nothing of them is in this repository. What stops a build or a program of theirs is their result.
"""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from detshare.tools.bench.field.systems import SHARE_PERCENT, System, SystemMissing
from detshare.tools.bench.session import Session

__all__ = ["Build", "HamiCore", "Peer", "XSched", "peer"]

BUILD_S = 1200.0
SERVER_S = 10.0


class Peer(System):
    """A folder, and the command that builds what is in it, if that is not done yet."""

    def __init__(self, name: str, folder: Path, build: str = "") -> None:
        self.name, self.group = name, f"peer-{name}"
        self._folder, self._build = folder.resolve(), build
        self._built = not build

    def begin(self, session: Session) -> None:
        if not self._built:
            self._make(session)
        self.ready(session)

    def _make(self, session: Session) -> None:
        session.say(f"{self.name}: {self._build}")
        try:
            done = subprocess.run(
                ["bash", "-c", self._build], cwd=self._folder, capture_output=True, text=True, check=False,
                stdin=subprocess.DEVNULL, timeout=BUILD_S, errors="replace",
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SystemMissing(f"it could not be built: {error}") from error
        if done.returncode:
            said = (done.stderr.strip() or done.stdout.strip())[-400:]
            raise SystemMissing(f"its build ended with {done.returncode}: {said}")
        self._built = True

    def ready(self, session: Session) -> None:
        """Before its programs are started, and built. SystemMissing."""

    def _unmapped(self, pid: int, library: Path) -> str:
        """The linker goes on without a library that it cannot load: such a program would pass for one of theirs."""
        try:
            maps = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            return f"whether {library.name} is in it cannot be seen: {error.strerror}"
        there = str(library.resolve())
        return "" if there in maps else f"{library.name} is not in it: it would run without {self.name}"

    def _file(self, *names: str) -> Path:
        """What the build left, by its path or by its name alone. SystemMissing."""
        for name in names:
            found = next((path for path in sorted(self._folder.glob(name)) if path.is_file()), None)
            if found is not None:
                return found
        raise SystemMissing(f"{self._folder} has no {names[-1].rpartition('/')[2]}: it is not built")


class Build(Peer):
    """Any other: a command in its folder runs a program under it.

    The command gets the program's words behind it, and FIELD_ROLE (server, background) in its environment;
    FIELD_MEMORY_MIB too where its memory is to be limited.
    """

    def __init__(self, name: str, folder: Path, words: str, build: str = "") -> None:
        super().__init__(name, folder, build)
        self._words = shlex.split(words)

    def ready(self, session: Session) -> None:
        program = self._folder / self._words[0] if self._words else self._folder
        if not (self._words and os.access(program, os.X_OK)):
            raise SystemMissing(f"{program} is no program that can be run")

    def command(self, argv: Sequence[str], server: bool) -> tuple[list[str], dict[str, str]]:
        first, *rest = self._words
        role = {"FIELD_ROLE": "server" if server else "background"}
        return [str(self._folder / first), *rest, *argv], role

    def memory(self, mib: int) -> dict[str, str]:
        return {"FIELD_MEMORY_MIB": str(mib)}


class HamiCore(Peer):
    """HAMi-core: its library is preloaded; each background has a part of the SMs' time, the server no limit."""

    LOCKS = Path("/tmp/vgpulock")
    """it has its locks there and does not make the folder"""

    def ready(self, session: Session) -> None:
        self._library = self._file("build/libvgpu.so", "**/libvgpu.so")
        self._caches = session.folder / self.group
        self._caches.mkdir(exist_ok=True)
        self._count = 0
        try:
            self.LOCKS.mkdir(exist_ok=True)
        except OSError as error:
            raise SystemMissing(f"{self.LOCKS}: {error.strerror}") from error

    def lacks(self, pid: int) -> str:
        return self._unmapped(pid, self._library)

    def command(self, argv: Sequence[str], server: bool) -> tuple[list[str], dict[str, str]]:
        self._count += 1
        env = {
            "LD_PRELOAD": str(self._library),
            "LIBCUDA_LOG_LEVEL": "1",
            # limits are kept in a file; a container has its own, and so has each program here
            "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(self._caches / f"{self._count}.cache"),
            "CUDA_TASK_PRIORITY": "0" if server else "1",
        }
        return list(argv), env if server else {**env, "CUDA_DEVICE_SM_LIMIT": str(SHARE_PERCENT)}

    def memory(self, mib: int) -> dict[str, str]:
        return {"CUDA_DEVICE_MEMORY_LIMIT": f"{mib}m"}


class XSched(Peer):
    """XSched at level 1, the only one that it has for Hopper: highest priority first, its server decides."""

    PORT = 50000

    def __init__(self, name: str, folder: Path, build: str = "") -> None:
        super().__init__(name, folder, build)
        self._server: subprocess.Popen[bytes] | None = None

    def ready(self, session: Session) -> None:
        self._shim = self._file("output/lib/libcuda.so.1", "**/libcuda.so.1")
        program = self._file("output/bin/xserver", "**/xserver")
        log = session.folder / "xserver.log"
        with log.open("wb") as out:
            self._server = subprocess.Popen(
                [program, "HPF", str(self.PORT)], stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=self._paths()
            )
        until = time.monotonic() + SERVER_S
        while not self._answers():
            if self._server.poll() is not None or time.monotonic() > until:
                said = log.read_text(errors="replace").strip()[-300:]
                self.end()
                raise SystemMissing(f"its server does not answer on port {self.PORT}: {said}")
            time.sleep(0.05)

    def _answers(self) -> bool:
        with socket.socket() as asked:
            return asked.connect_ex(("127.0.0.1", self.PORT)) == 0

    def end(self) -> None:
        if self._server is not None:
            self._server.terminate()
            try:
                self._server.wait(5.0)
            except subprocess.TimeoutExpired:
                self._server.kill()
                self._server.wait()
            self._server = None

    def lacks(self, pid: int) -> str:
        return self._unmapped(pid, self._shim)

    def _paths(self) -> dict[str, str]:
        paths = (str(self._shim.parent), os.environ.get("LD_LIBRARY_PATH", ""))
        return {**os.environ, "LD_LIBRARY_PATH": ":".join(each for each in paths if each)}

    def command(self, argv: Sequence[str], server: bool) -> tuple[list[str], dict[str, str]]:
        threshold = 16 if server else 4  # as its example has it
        env = {
            "LD_LIBRARY_PATH": self._paths()["LD_LIBRARY_PATH"],
            "XSCHED_SCHEDULER": "GLB",
            "XSCHED_AUTO_XQUEUE": "ON",
            "XSCHED_AUTO_XQUEUE_PRIORITY": "1" if server else "0",
            "XSCHED_AUTO_XQUEUE_LEVEL": "1",
            "XSCHED_AUTO_XQUEUE_THRESHOLD": str(threshold),
            "XSCHED_AUTO_XQUEUE_BATCH_SIZE": str(threshold // 2),
        }
        return list(argv), env


KNOWN = {"hami-core": HamiCore, "xsched": XSched}


def peer(text: str, builds: Sequence[str]) -> Peer:
    """NAME=FOLDER of a known peer, or NAME=FOLDER:COMMAND of any, with its NAME=COMMAND of `builds`. ValueError."""
    name, _, rest = text.partition("=")
    folder, _, words = rest.partition(":")
    build = next((each.partition("=")[2] for each in builds if each.partition("=")[0] == name), "")
    if not (name and folder):
        raise ValueError(f"{text!r} is neither NAME=FOLDER nor NAME=FOLDER:COMMAND")
    if words:
        return Build(name, Path(folder), words, build)
    if name.lower() not in KNOWN:
        known = ", ".join(sorted(KNOWN))
        raise ValueError(f"{text!r} does not say what starts a program (NAME=FOLDER:COMMAND); known are {known}")
    return KNOWN[name.lower()](name, Path(folder), build)
