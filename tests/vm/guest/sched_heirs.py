# SPDX-License-Identifier: Apache-2.0
"""Who inherits the files of a program that ends goes on with its client, under whatever meant the program then."""

from __future__ import annotations

import errno
import os
import signal
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyroute2.netlink.exceptions import NetlinkError

from detshare.ctl.cli.main import main
from detshare.ctl.netlink import genl
from tests.patience import until
from tests.vm.guest.kmod_tools import CGROUP, MIB, NO_MEMORY, PID, TENANT, leak, row
from tests.vm.guest.nvsim_rm import Rm
from tests.vm.guest.nvsim_work import ENDLESS, Channel, Doorbell
from tests.vm.guest.sched_tools import LEVEL, SLICE, family, tsgs

__all__ = ["family"]  # a fixture

KINDS = ("pid", "tenant", "cgroup")
FOLDER = Path("/sys/fs/cgroup/heirs")
LAST_PID = Path("/proc/sys/kernel/ns_last_pid")
SET, FOUND = (50, genl.DETSHARE_LEVEL_LOW), (SLICE, LEVEL)


def _heir(rm: Rm, channel: Channel, bell: Doorbell, tell: int, hear: int) -> None:
    for word in iter(lambda: os.read(hear, 1), b""):
        if word == b"k":
            channel.submit(bell, ENDLESS)
            answer = 0
        else:
            answer = rm.memory(8 * MIB)[0]
        os.write(tell, struct.pack("<I", answer))


def _maker(tell: int, hear: int) -> None:
    rm = Rm.start()
    channel, bell = Channel(rm), Doorbell(rm)
    channel.compute()
    assert channel.schedule() == 0
    os.write(tell, struct.pack("<I", rm.client))
    os.read(hear, 1)
    heir = os.fork()
    if not heir:
        _heir(rm, channel, bell, tell, hear)
        return
    os.write(tell, struct.pack("<I", heir))


class Maker:
    """A program with a client, a channel and a doorbell, of which nothing runs yet."""

    def __init__(self) -> None:
        hear, tell = os.pipe()
        self._hear, self._tell = os.pipe()
        self.heir = 0
        self.pid = os.fork()
        if not self.pid:
            try:
                os.close(self._tell)
                os.close(hear)
                _maker(tell, self._hear)
            finally:
                os._exit(0)
        os.close(tell)
        os.close(self._hear)
        self._hear = hear
        self.client = self._answer()

    def _answer(self) -> int:
        return int(struct.unpack("<I", os.read(self._hear, 4))[0])

    def ends(self) -> None:
        """It makes a child and ends; the child has all that it had."""
        os.write(self._tell, b"e")
        self.heir = self._answer()
        os.waitpid(self.pid, 0)

    def works(self, *, held: bool = False) -> None:
        """The child starts a kernel without end; one that is held waits at its doorbell."""
        os.write(self._tell, b"k")
        if not held:
            assert self._answer() == 0

    def takes(self) -> int:
        """The child asks for 8 MiB: the driver's answer."""
        os.write(self._tell, b"m")
        return self._answer()

    def set(self) -> tuple[int, int]:
        """Slice and level of its channel group."""
        (found,) = ((each["slice_us"], each["level"]) for each in tsgs() if each["client"] == self.client)
        return found

    def part(self, seconds: float = 1.0) -> float:
        """Of the GPU's time, that its client gets."""
        begin, before = time.monotonic(), self._used()
        time.sleep(seconds)
        used = self._used() - before
        return used / 1e6 / (time.monotonic() - begin)

    def _used(self) -> int:
        return sum(each["gpu_time_us"] for each in tsgs() if each["client"] == self.client)

    def end(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.heir or self.pid, signal.SIGKILL)
        if not self.heir:
            os.waitpid(self.pid, 0)
        os.close(self._tell)
        os.close(self._hear)
        self.heir = self.pid = 0
        until(lambda: tsgs() == [] and leak("clients") == 0)


@pytest.fixture
def maker() -> Iterator[Maker]:
    made = Maker()
    yield made
    if made.pid:
        made.end()
    assert leak("shadows") == 0


@contextmanager
def meant(family: genl.DetShare, kind: str, pid: int) -> Iterator[dict[str, Any]]:
    """A subject of this kind that means the process."""
    if kind == "pid":
        yield {"kind": PID, "pid": pid}
    elif kind == "tenant":
        family.tenant_set("heirs", pid)
        yield {"kind": TENANT, "tenant": "heirs"}
        family.tenant_del("heirs")
    else:
        FOLDER.mkdir()
        (FOLDER / "cgroup.procs").write_text(str(pid))
        yield {"kind": CGROUP, "cgroup_id": FOLDER.stat().st_ino}
        until(lambda: not (FOLDER / "cgroup.procs").read_text())
        FOLDER.rmdir()


@pytest.mark.parametrize("kind", KINDS)
def test_a_bucket(family: genl.DetShare, maker: Maker, kind: str) -> None:
    with meant(family, kind, maker.pid) as subject:
        family.bucket_set(100_000, 20_000, **subject)
        maker.ends()
        maker.works()
        time.sleep(0.5)
        assert len(family.bucket_get()) == 1  # looking for those of who is gone
        assert maker.part(2) < 0.3
        assert row(family.bucket_get()[0])["emptied"] > 0
        maker.end()
    until(lambda: family.bucket_get() == ())


@pytest.mark.parametrize("kind", KINDS)
def test_a_hold(family: genl.DetShare, maker: Maker, kind: str) -> None:
    with meant(family, kind, maker.pid) as subject:
        family.hold_set(gate=True, pause=True, lease_ms=60_000, **subject)
        maker.ends()
        maker.works(held=True)
        assert maker.part(0.5) == 0
        if kind != "pid":  # whose number nobody has any more
            answer = row(family.hold_set(gate=True, pause=True, lease_ms=60_000, **subject))
            assert (answer["vctxs"], answer["gated"], answer["paused"]) == (1, 1, 1)
        (held,) = map(row, family.hold_get())
        assert (held["vctxs"], held["paused"]) == (1, 1)
        assert maker.part(0.5) == 0
        maker.end()
    until(lambda: family.hold_get() == ())


@pytest.mark.parametrize("kind", KINDS)
def test_an_order_stands_until_the_heir_has_ended(family: genl.DetShare, maker: Maker, kind: str) -> None:
    with meant(family, kind, maker.pid) as subject:
        family.sched_set(klass="low", slice_us=SET[0], level=SET[1], **subject)
        assert maker.set() == SET
        maker.ends()
        family.sched_set(os.getpid(), "other")  # all are looked at again
        assert len(family.sched_get()) == 2
        family.sched_del(os.getpid())
        assert maker.set() == SET
        maker.end()
    until(lambda: family.sched_get() == ())


def test_the_command_takes_away_what_stands_for_who_has_ended(family: genl.DetShare, maker: Maker) -> None:
    family.sched_set(maker.pid, "low", *SET)
    family.bucket_set(100_000, 20_000, kind=PID, pid=maker.pid)
    maker.ends()
    made = CliRunner().invoke(main, ["--run-dir", "/run/detshare-heirs", "release", str(maker.pid)])
    assert made.exit_code == 0, made.output
    assert maker.set() == FOUND
    assert family.sched_get() == () == family.bucket_get()
    made = CliRunner().invoke(main, ["--run-dir", "/run/detshare-heirs", "release", str(maker.pid)])
    assert made.exit_code == 1, made.output


@pytest.mark.parametrize("kind", KINDS)
def test_a_limit(family: genl.DetShare, maker: Maker, kind: str) -> None:
    with meant(family, kind, maker.pid) as subject:
        family.limit_set(20 * MIB, **subject)
        maker.ends()
        assert len(family.limit_get()) == 1
        assert [maker.takes() for _ in range(3)] == [0, 0, NO_MEMORY]
        maker.end()
        if kind != "pid":
            family.limit_del(**subject)
    until(lambda: family.limit_get() == ())


@pytest.fixture(params=[False, True], ids=["by its number", "by its start too"])
def who(request: pytest.FixtureRequest, maker: Maker) -> dict[str, int]:
    """The maker as a subject."""
    return {"kind": PID, "pid": maker.pid} | ({"start_time": _start(maker.pid)} if request.param else {})


def _start(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19])


def test_the_order_of_who_has_ended_is_found_and_taken_away(
    family: genl.DetShare, maker: Maker, who: dict[str, int]
) -> None:
    start = _start(maker.pid)
    family.sched_set(maker.pid, "low", *SET)
    maker.ends()
    (found,) = map(row, family.sched_get(**who))
    assert (found["pid"], found["start_time"], found["processes"]) == (maker.pid, start, 1)
    assert family.sched_get(pid=maker.pid, start_time=start + 1) == ()
    answer = row(family.sched_del(**who))
    assert (answer["pid"], answer["tsgs_set"]) == (maker.pid, 1)
    assert maker.set() == FOUND
    assert family.sched_get() == ()
    _refused(errno.ENOENT, lambda: family.sched_del(**who))


def test_the_hold_of_who_has_ended_is_found_and_taken_away(
    family: genl.DetShare, maker: Maker, who: dict[str, int]
) -> None:
    family.hold_set(gate=True, pause=True, lease_ms=600_000, kind=PID, pid=maker.pid)
    maker.ends()
    maker.works(held=True)
    assert maker.part(0.5) == 0
    (found,) = map(row, family.hold_get(**who))
    assert (found["pid"], found["paused"]) == (maker.pid, 1)
    assert row(family.hold_del(**who))["pid"] == maker.pid
    until(lambda: maker.part(0.5) > 0)
    assert family.hold_get() == ()


def test_the_bucket_of_who_has_ended_is_found_and_taken_away(
    family: genl.DetShare, maker: Maker, who: dict[str, int]
) -> None:
    family.bucket_set(100_000, 20_000, kind=PID, pid=maker.pid)
    maker.ends()
    maker.works()
    assert maker.part(2) < 0.5
    (found,) = map(row, family.bucket_get(**who))
    assert found["pid"] == maker.pid
    family.bucket_del(**who)
    until(lambda: maker.part(0.5) > 0.7)
    assert family.bucket_get() == ()


def test_the_limit_of_who_has_ended_is_found_and_taken_away(
    family: genl.DetShare, maker: Maker, who: dict[str, int]
) -> None:
    family.limit_set(12 * MIB, kind=PID, pid=maker.pid)
    maker.ends()
    assert [maker.takes() for _ in range(2)] == [0, NO_MEMORY]
    (found,) = map(row, family.limit_get(**who))
    assert found["pid"] == maker.pid
    family.limit_del(**who)
    assert maker.takes() == 0
    assert family.limit_get() == ()


def _refused(number: int, ask: Callable[[], object]) -> None:
    with pytest.raises(NetlinkError) as refused:
        ask()
    assert refused.value.code == number


@pytest.mark.skipif(not LAST_PID.exists(), reason="this kernel lets nobody choose numbers of processes")
def test_who_has_the_number_of_one_that_has_ended_is_another(family: genl.DetShare, maker: Maker) -> None:
    ended = _start(maker.pid)
    family.sched_set(maker.pid, "low", *SET)
    maker.ends()
    another = _with_number(maker.pid)
    try:
        start = _start(another)
        assert start != ended
        _refused(errno.ENOENT, lambda: family.sched_del(another))
        _refused(errno.ESRCH, lambda: family.sched_set(another, "other", start_time=ended))
        family.sched_set(another, "other", start_time=start)
        found = {each["start_time"]: each["class"] for each in map(row, family.sched_get(pid=another))}
        assert found == {ended: "low", start: "other"}
        family.sched_del(another, start_time=ended)
        assert maker.set() == FOUND
        assert [row(each)["class"] for each in family.sched_get()] == ["other"]
        family.sched_del(another)
    finally:
        os.kill(another, signal.SIGKILL)
        os.waitpid(another, 0)


def _with_number(pid: int) -> int:
    """A child that waits, with this number that nobody has."""
    for _ in range(20):
        LAST_PID.write_text(str(pid - 1))
        child = os.fork()
        if not child:
            signal.pause()
            os._exit(0)
        if child == pid:
            return child
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    raise AssertionError(f"nobody can get the number {pid}")


def test_an_order_for_a_cgroup_that_comes_after_the_end(family: genl.DetShare, maker: Maker) -> None:
    with meant(family, "cgroup", maker.pid) as subject:
        maker.ends()
        assert row(family.sched_set(klass="low", slice_us=SET[0], level=SET[1], **subject))["processes"] == 1
        assert maker.set() == SET
        family.sched_del(**subject)
        assert maker.set() == FOUND
        maker.end()


def test_a_cgroup_can_be_removed_and_goes_with_the_heir(family: genl.DetShare, maker: Maker) -> None:
    before = _dying()
    with meant(family, "cgroup", maker.pid) as subject:
        family.sched_set(klass="low", slice_us=SET[0], level=SET[1], **subject)
        maker.ends()
        (FOLDER.parent / "cgroup.procs").write_text(str(maker.heir))
    until(lambda: family.sched_get() == ())
    family.sched_set(os.getpid(), "other")
    family.sched_del(os.getpid())
    until(lambda: maker.set() == FOUND)
    assert _dying() > before
    maker.end()
    until(lambda: _dying() <= before)


def _dying() -> int:
    """Cgroups that are removed and that somebody still refers to."""
    lines = (FOLDER.parent / "cgroup.stat").read_text().splitlines()
    return int(dict(line.split() for line in lines)["nr_dying_descendants"])


def test_a_tenant_can_be_removed(family: genl.DetShare, maker: Maker) -> None:
    with meant(family, "tenant", maker.pid) as subject:
        family.sched_set(klass="low", slice_us=SET[0], level=SET[1], **subject)
        maker.ends()
        assert maker.set() == SET
    until(lambda: maker.set() == FOUND)
    assert family.tenant_get() == () == family.sched_get()
    # another of the same name is another
    family.tenant_set("heirs", os.getpid())
    answer = row(family.sched_set(klass="low", slice_us=SET[0], kind=TENANT, tenant="heirs"))
    assert answer["processes"] == 0
    family.tenant_del("heirs")
    assert maker.set() == FOUND
