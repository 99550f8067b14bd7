# SPDX-License-Identifier: Apache-2.0
"""The board directory: one activity page per GPU, and for each tenant a policy page, a counters page and a record.

The record says what the pages do not: whose they are, and what was asked for. Pages and records outlive the daemon,
so that the next one goes on where this one stopped, without a tenant noticing. What tenants may write is a sealed page
where that can be had, else a file: then only a link lies here, for this daemon's helpers, as long as it lives.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from detshare.ctl.core import procfs
from detshare.ctl.core.backend import BadRequest
from detshare.ctl.core.driver import ProcessId
from detshare.ctl.core.errors import ControlError
from detshare.ctl.core.rundir import DEFAULT_RUN_DIR
from detshare.runtime import sealed
from detshare.runtime.board import Activity, BadBoard, Board, Counters, Policy, create
from detshare.runtime.board_layout import PAGE_BYTES
from detshare.runtime.reflexes import Desired
from detshare.runtime.tiers import Gpu

BOARD_DIR: Final = "DETSHARE_BOARD_DIR"
MOST_PAGES: Final = 256
"""of GPUs that are none of this machine's, MIG devices for instance: programs say themselves which they compute on"""


def default_path(run_dir: Path) -> Path:
    """Where the boards of the daemon of a run directory lie: in memory, and never two daemons' in one place."""
    given = os.environ.get(BOARD_DIR)
    if given:
        return Path(given)
    own = "" if run_dir == DEFAULT_RUN_DIR else f"-{zlib.crc32(str(run_dir.absolute()).encode()):08x}"
    return Path(f"/dev/shm/detshare-{os.geteuid()}{own}")


def uuid_text(raw: bytes) -> str:
    """A GPU's UUID as people and NVML write it."""
    return f"GPU-{uuid.UUID(bytes=raw)}"


@dataclass(frozen=True, slots=True)
class Record:
    """One tenant on one GPU: what is needed to go on with it after a restart of the daemon."""

    pid: int
    start: int
    number: int
    """counts the GPUs of one process"""
    gpu: Gpu
    slot: int
    uid: int
    tenant: str
    command: str
    key: str
    """of its profile"""
    observed: bool = False
    """it runs in the temporal lane and is only counted"""
    ahead: bool = False
    """it has not said yet that it took its boards"""
    known: str = ""
    """the UUID by which its library knows the GPU, where the program was moved to another one; empty: as `gpu` says"""
    desired: Desired = field(default_factory=Desired)

    @property
    def page(self) -> str:
        """The GPU on whose activity page its slot lies: its library has that mapped, wherever it was moved."""
        return self.known or self.gpu.uuid

    @property
    def name(self) -> str:
        """Of its files."""
        return f"{self.pid}-{self.start}-{self.number}"

    @property
    def process(self) -> ProcessId:
        return ProcessId(self.pid, self.start)

    @classmethod
    def of_json(cls, data: dict[str, Any]) -> Record:
        """TypeError, KeyError, ValueError where it is none."""
        made = cls(**{**data, "gpu": Gpu(**data["gpu"]), "desired": Desired(**data["desired"])})
        numbers = (made.pid, made.start, made.number, made.slot, made.uid, made.gpu.sms, made.gpu.step)
        texts = (made.tenant, made.command, made.key, made.gpu.uuid, made.known)
        if not all(isinstance(n, int) for n in numbers) or not all(isinstance(t, str) for t in texts):
            raise TypeError("a record's numbers are integers, its names are strings")
        return made


class Pages:
    """A tenant's mapped pages. Close them when it is gone."""

    def __init__(self, policy: mmap.mmap, counters: mmap.mmap) -> None:
        self._maps = (policy, counters)
        self.policy = Policy(policy)
        self.counters = Counters(counters)

    def close(self) -> None:
        """Unmap them."""
        _unmap((self.policy, self.counters), self._maps)


def _unmap(boards: tuple[Board, ...], maps: tuple[mmap.mmap, ...]) -> None:
    for board in boards:
        board.close()
    for each in maps:
        with contextlib.suppress(BufferError):
            each.close()


def _map(path: Path) -> mmap.mmap:
    """A page that stays mapped. OSError, BadBoard."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        if size < PAGE_BYTES:
            raise BadBoard(f"{path} has {size} bytes, a board has {PAGE_BYTES}: remove the file")
        return mmap.mmap(descriptor, PAGE_BYTES)
    finally:
        os.close(descriptor)


class Directory:
    """The files. OSError where the file system refuses; BadBoard where a file is not what its name says."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = -1
        self._activities: dict[str, tuple[Activity, mmap.mmap]] = {}
        self._sealed: dict[Path, int] = {}
        """descriptors of sealed pages, by what links to them"""
        self.seals = False
        """whether new pages are sealed; where not, whoever gets one can end all others that have it"""

    def open(self) -> None:
        """Make it, for this user only, and take it for this process. ControlError where another daemon has it."""
        asked = "open the board directory"
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            info = self.path.stat()
        except OSError as error:
            where = f"{self.path} cannot be made ({error.strerror})"
            raise ControlError(asked, where, f"give another place with {BOARD_DIR}") from error
        if info.st_uid != os.geteuid() or info.st_mode & 0o077:
            stopped = f"{self.path} belongs to uid {info.st_uid} with mode {info.st_mode & 0o777:o}"
            raise ControlError(asked, stopped, f"remove it if it is nobody's, or give another place with {BOARD_DIR}")
        try:
            lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            stopped = f"{self.path}/lock cannot be made ({error.strerror})"
            raise ControlError(asked, stopped, f"is there room in {self.path.parent}?") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(lock, 20, 0).decode(errors="replace").strip() or "another process"
            os.close(lock)
            stopped = f"another daemon (PID {holder}) has {self.path}"
            raise ControlError(asked, stopped, f"end it first, or give another place with {BOARD_DIR}") from None
        self._lock = lock
        with contextlib.suppress(OSError):  # full: the lock holds without a name in it
            os.ftruncate(lock, 0)
            os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        self.seals = sealed.possible()
        for path in self.path.iterdir():
            if path.is_symlink():
                path.unlink()  # of a daemon that is gone: the page itself is found by the tenants that have it

    def close(self) -> None:
        """Unmap and give up the lock; files of living tenants stay. Idempotent."""
        self._close_activities()
        for descriptor in self._sealed.values():
            os.close(descriptor)
        self._sealed.clear()
        if self._lock >= 0:
            if not any(self.path.glob("*.policy")):
                for left in self.path.glob("*.activity"):
                    left.unlink(missing_ok=True)
                if {path.name for path in self.path.iterdir()} <= {"lock"}:
                    # Nobody waits for this lock: one daemon of a run directory at a time has that one's.
                    (self.path / "lock").unlink(missing_ok=True)
                    with contextlib.suppress(OSError):
                        self.path.rmdir()
            os.close(self._lock)
            self._lock = -1

    # -- sealed pages -------------------------------------------------------------------------------------------

    def _link(self, path: Path, descriptor: int) -> mmap.mmap:
        """Map a sealed page that `path` shall name, and keep its descriptor, which is closed on failure. OSError."""
        try:
            path.symlink_to(f"/proc/{os.getpid()}/fd/{descriptor}")
            mapped = mmap.mmap(descriptor, PAGE_BYTES)
        except OSError:
            os.close(descriptor)
            raise
        self._sealed[path] = descriptor
        return mapped

    def _make_writable(self, path: Path) -> mmap.mmap:
        """A new page that tenants may write. OSError."""
        return self._link(path, sealed.create(path.name)) if self.seals else create(path)

    def take_back(self, pid: int) -> None:
        """Have the sealed pages again that a program maps, which an earlier daemon served. OSError."""
        if not self.seals:
            return
        for name, descriptor in sealed.find(pid).items():
            path = self.path / name
            if path in self._sealed or os.path.lexists(path):
                os.close(descriptor)
            else:
                self._link(path, descriptor).close()

    def _remove(self, path: Path) -> None:
        if path in self._sealed:
            os.close(self._sealed.pop(path))
        path.unlink(missing_ok=True)

    # -- activity -----------------------------------------------------------------------------------------------

    def activity_path(self, gpu: str, observed: bool) -> Path:
        """Programs of the temporal lane that are only counted have a page of their own: nobody holds them."""
        return self.path / f"{gpu}{'.observed' if observed else ''}.activity"

    def activity(self, gpu: str, observed: bool) -> Activity:
        """A GPU's activity page, made where there is none. OSError, BadBoard."""
        path = self.activity_path(gpu, observed)
        if path.name in self._activities:
            return self._activities[path.name][0]
        try:
            mapped = _map(path)
            page = Activity(mapped)
            page.check()
        except FileNotFoundError:
            if len(self._activities) >= MOST_PAGES and gpu not in {each.uuid for each in procfs.gpus()}:
                raise BadBoard(f"there are pages of {MOST_PAGES} GPUs, and {gpu} is none of this machine's") from None
            mapped = self._make_writable(path)
            page = Activity(mapped)
            page.init_for(uuid.UUID(gpu.removeprefix("GPU-")).bytes)
        self._activities[path.name] = (page, mapped)
        return page

    def _close_activities(self) -> None:
        for activity, mapped in self._activities.values():
            _unmap((activity,), (mapped,))
        self._activities.clear()

    def remove_activities(self) -> None:
        """Remove every activity page, also one of another version: no tenant is left. OSError."""
        self._close_activities()
        for path in self.path.glob("*.activity"):
            self._remove(path)

    # -- tenants ------------------------------------------------------------------------------------------------

    def _file(self, record: Record, kind: str) -> Path:
        return self.path / f"{record.name}.{kind}"

    def make(self, record: Record) -> Pages:
        """Pages of a new tenant; its policy is the default one. OSError: nothing was made."""
        try:
            pages = Pages(create(self._file(record, "policy")), self._make_writable(self._file(record, "counters")))
            pages.policy.init()
            pages.counters.init()
            self.save(record)
        except OSError:
            self.remove(record)
            raise
        return pages

    def save(self, record: Record) -> None:
        """Write its record. OSError: the old one stands."""
        path = self._file(record, "tenant")
        draft = path.with_suffix(".new")
        try:
            draft.write_text(json.dumps(asdict(record)) + "\n", encoding="utf-8")
            draft.replace(path)
        except OSError:
            draft.unlink(missing_ok=True)
            raise

    def load(self, record: Record) -> Pages:
        """Map the pages of a tenant that an earlier daemon served. OSError, BadBoard."""
        self.take_back(record.pid)
        pages = Pages(_map(self._file(record, "policy")), _map(self._file(record, "counters")))
        try:
            pages.policy.check()
            pages.counters.check()
        except BadBoard:
            pages.close()
            raise
        return pages

    def remove(self, record: Record) -> None:
        """Remove a tenant's files."""
        for kind in ("tenant", "policy", "counters"):
            with contextlib.suppress(OSError):
                self._remove(self._file(record, kind))

    def descriptors(self, record: Record) -> list[int]:
        """What its library gets: policy (read-only), counters, activity. The caller closes them. OSError."""
        opened: list[int] = []
        try:
            for path, flags in (
                (self._file(record, "policy"), os.O_RDONLY),
                (self._file(record, "counters"), os.O_RDWR),
                (self.activity_path(record.page, record.observed), os.O_RDWR),
            ):
                opened.append(os.open(path, flags | os.O_CLOEXEC))
        except OSError:
            for each in opened:
                os.close(each)
            raise
        return opened

    def records(self) -> Iterator[tuple[Path, Record | None]]:
        """Every record that lies here, None for one that cannot be read."""
        for path in sorted(self.path.glob("*.tenant")):
            try:
                yield path, Record.of_json(json.loads(path.read_bytes()))
            except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError, BadRequest):
                yield path, None

    def sweep(self, known: set[str]) -> None:
        """Remove the files of tenants that are not `known` by name: their processes are gone."""
        for kind in ("tenant", "policy", "counters", "new"):
            for path in self.path.glob(f"*.{kind}"):
                if path.name.partition(".")[0] not in known:
                    with contextlib.suppress(OSError):
                        path.unlink()

