# SPDX-License-Identifier: Apache-2.0
"""Programs that hide what they do: it is seen, paid for and held all the same, by the simulated GPU's account."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from typing import Any

import pytest

from detshare.ctl.netlink import genl
from tests.patience import until
from tests.vm.guest.kmod_failures import failing
from tests.vm.guest.kmod_tools import PID, TENANT, TRUTH, load, row, unload
from tests.vm.guest.nvsim_rm import Block, Rm, number, status
from tests.vm.guest.nvsim_tools import device_of_no_parameters, tsg, vas
from tests.vm.guest.nvsim_work import ENDLESS, ENTRIES, SIM, Channel, Doorbell
from tests.vm.guest.sched_answers import QUESTION, calls, waiting
from tests.vm.guest.sched_tools import COPY0, GR0, Worker, family, tsgs, worker

__all__ = ["family", "worker"]  # fixtures

Workers = Callable[..., Worker]
Play = Generator[dict[str, Any], object, None]
"""what a program does: it says something, waits until it is asked to go on, says something, ..."""
RATE, BURST = 100_000, 20_000  # a tenth of the GPU
FULL = 1_000_000_000  # a burst that no test uses up
ALLOC = 3  # in the place of a control: no object is made
FIRST_TOKEN = 1  # of the first channel of the first run list
ESCAPED = 0.3
"""part of the GPU that no bucket of a tenth lets through, however slow the host; who escapes has nearly all of it"""


class Program:
    """A fork of this process that plays; it ends with all forks of its own."""

    def __init__(self, play: Callable[..., Play], *words: object) -> None:
        here, there = socket.socketpair()
        self.pid = os.fork()
        if not self.pid:
            here.close()
            self._run(play(*words), there)
        there.close()
        self.socket, self.file = here, here.makefile("rw")
        self.ready = self.answer()

    @staticmethod
    def _run(play: Play, there: socket.socket) -> None:
        code = 1
        try:
            os.setpgid(0, 0)
            with there.makefile("rw") as file:
                for said in play:
                    file.write(json.dumps(said) + "\n")
                    file.flush()
                    file.readline()
            code = 0
        finally:
            os._exit(code)

    def answer(self) -> dict[str, Any]:
        line = self.file.readline()
        assert line, "the program has ended"
        answer = json.loads(line)
        assert isinstance(answer, dict)
        return answer

    def go(self) -> None:
        """Lets it go on."""
        self.file.write("\n")
        self.file.flush()

    def ask(self) -> dict[str, Any]:
        """Lets it go on, up to its next answer."""
        self.go()
        return self.answer()

    @property
    def clients(self) -> list[int]:
        return list(self.ready["clients"])

    def end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        self.file.close()
        self.socket.close()


Programs = Callable[..., Program]


@pytest.fixture
def program(worker: Workers) -> Iterator[Programs]:
    """program(PLAY, WORD...): ends with the test, before `worker` looks that nothing is left."""
    made: list[Program] = []

    def make(play: Callable[..., Play], *words: object) -> Program:
        made.append(Program(play, *words))
        return made[-1]

    yield make
    for each in made:
        each.end()


def of(who: Program | Worker) -> dict[str, int]:
    return {"kind": PID, "pid": who.pid}


def gpu_us(clients: list[int]) -> int:
    return sum(each["gpu_time_us"] for each in tsgs(engines=(GR0, COPY0)) if each["client"] in clients)


def share(clients: list[int], seconds: float = 2.0) -> float:
    """Part of the GPU that they get in so long."""
    begin, before = time.monotonic(), gpu_us(clients)
    time.sleep(seconds)
    return (gpu_us(clients) - before) / (time.monotonic() - begin) / 1e6


def started(rm: Rm, twice: bool = False) -> Channel:
    """A channel that runs what it is given."""
    channel = Channel(rm, twice=twice)
    channel.compute()
    assert channel.schedule() == 0
    return channel


# ---- one program, two clients -------------------------------------------------------------


def without_its_words(rm: Rm) -> Channel:
    """The handle by which it has the memory of its USERD is freed: it lives on."""
    channel = started(rm, twice=True)
    assert rm.free(channel.words) == 0
    return channel


def two_clients(second: Callable[[], Rm] = Rm.start, has: Callable[[Rm], Channel] | None = None) -> Play:
    """The doorbell is one client's, the channel is the other's."""
    one, other = Rm.start(), second()
    bell, channel = Doorbell(one), (has or started)(other)
    yield {"clients": [one.client, other.client]}
    channel.submit(bell, ENDLESS)
    yield {}


def duplicate(front: bool) -> Play:
    """The second client has a duplicate of the first one's channel group, and its channel in there."""
    one, other = Rm.start(), Rm.start()
    space = vas(one)
    group = tsg(one, space)
    if front:
        Channel(one, group, space=space).compute()
    copy = other.handle()
    assert other.dup(one.client, group, copy) == 0
    channel = Channel(other, copy, space=vas(other))
    channel.compute()
    assert channel.schedule() == 0
    bell = Doorbell(one)
    yield {"clients": [one.client, other.client]}
    channel.submit(bell, ENDLESS)
    yield {}


HIDING = [
    (two_clients,),
    (two_clients, device_of_no_parameters),
    (two_clients, Rm.start, without_its_words),
    (duplicate, False),
    (duplicate, True),
]
NAMES = ["two clients", "no parameters", "memory let go", "duplicate", "duplicate and a channel of its maker's"]


@pytest.mark.parametrize("words", HIDING, ids=NAMES)
def test_a_bucket_hears_of_all_clients_of_a_program(
    family: genl.DetShare, program: Programs, words: tuple[Any, ...]
) -> None:
    one = program(*words)
    family.bucket_set(RATE, BURST, **of(one))
    time.sleep(0.5)  # idle, so that only its launch can tell
    one.ask()
    assert share(one.clients, 3) < ESCAPED


@pytest.mark.parametrize("words", HIDING, ids=NAMES)
def test_a_pause_stops_all_clients_of_a_program(
    family: genl.DetShare, program: Programs, words: tuple[Any, ...]
) -> None:
    one = program(*words)
    one.ask()
    until(lambda: gpu_us(one.clients) > 0)
    answer = row(family.hold_set(gate=True, pause=True, **of(one)))
    assert (answer["vctxs"], answer["paused"], answer["failed"]) == (2, 2, 0)
    assert share(one.clients, 0.5) == 0


def write(family: genl.DetShare, floor: int) -> None:
    """A class with slices in which something gets done, so that it is not off by those alone."""
    family.class_set("high", slice_us=20_000, level=genl.DETSHARE_LEVEL_HIGH)
    low = genl.DETSHARE_LEVEL_LOW
    family.class_set("low", slice_us=2000, level=low, turn_us=100_000, floor_permille=floor)


def held_by_a_higher_class(family: genl.DetShare, low: Program, high: Worker) -> None:
    """It goes on, begins to work, and has nothing of the GPU any more once both have their classes."""
    low.ask()
    until(lambda: gpu_us(low.clients) > 0)
    write(family, 0)
    family.sched_set(low.pid, "low")
    family.sched_set(high.pid, "high")
    until(lambda: share(low.clients, 0.5) == 0)


@pytest.mark.parametrize("words", HIDING, ids=NAMES)
def test_a_lower_class_is_held_with_all_its_clients(
    family: genl.DetShare, program: Programs, worker: Workers, words: tuple[Any, ...]
) -> None:
    held_by_a_higher_class(family, program(*words), worker("nvbackground", "--endless"))


def test_a_higher_class_is_heard_by_any_of_its_doorbells(
    family: genl.DetShare, program: Programs, worker: Workers
) -> None:
    low, high = worker("nvbackground", "--endless"), program(two_clients)
    write(family, 0)
    family.sched_set(low.pid, "low")
    family.sched_set(high.pid, "high")
    until(lambda: share([low.ready["client"]], 0.3) > 0.5)
    high.ask()
    until(lambda: share([low.ready["client"]], 0.5) == 0)


# ---- nobody's subdevice ---------------------------------------------------------------------


def bare() -> Play:
    """Its kernel runs; then it frees its subdevice, and in the end makes it anew."""
    rm = Rm.start()
    bell, channel = Doorbell(rm), started(rm)
    channel.submit(bell, ENDLESS)
    yield {"clients": [rm.client]}
    assert rm.free(rm.subdevice) == 0
    yield {}
    params = Block.of("NV2080_ALLOC_PARAMETERS")
    yield {"made": rm.alloc("NV20_SUBDEVICE_0", rm.device, rm.subdevice, params)[0]}


def objects() -> int:
    return int((TRUTH / "objects").read_text())


def test_a_pause_needs_nobodys_subdevice(family: genl.DetShare, program: Programs) -> None:
    """The module makes one for the time of its call, and leaves nothing behind."""
    one = program(bare)
    one.ask()
    assert share(one.clients, 0.5) > 0
    before = objects()
    answer = row(family.hold_set(gate=False, pause=True, **of(one)))
    assert (answer["vctxs"], answer["paused"], answer["failed"]) == (1, 1, 0), str(answer)
    assert share(one.clients, 0.5) == 0
    assert objects() == before
    family.hold_del(**of(one))
    until(lambda: share(one.clients, 0.2) > 0)
    assert objects() == before
    assert one.ask()["made"] == 0


def test_who_frees_its_subdevice_while_paused_comes_back(family: genl.DetShare, program: Programs) -> None:
    one = program(bare)
    until(lambda: share(one.clients, 0.2) > 0)
    family.hold_set(gate=False, pause=True, **of(one))
    one.ask()
    before = objects()
    family.hold_del(**of(one))
    until(lambda: share(one.clients, 0.2) > 0)
    assert objects() == before


def test_a_driver_that_makes_no_subdevice_is_asked_again(family: genl.DetShare, program: Programs) -> None:
    one = program(bare)
    one.ask()
    with failing(ALLOC, status("NV_ERR_INSUFFICIENT_RESOURCES")):
        answer = row(family.hold_set(gate=False, pause=True, **of(one)))
        assert (answer["paused"], answer["failed"]) == (0, 1)
        assert "subdevice" in answer["why"]
        assert share(one.clients, 0.5) > 0
    until(lambda: share(one.clients, 0.2) == 0)


def test_what_the_driver_refuses_by_anothers_subdevice_is_said(family: genl.DetShare, program: Programs) -> None:
    one, other = program(bare), program(bare)
    one.ask()
    disable, refused = number("NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS"), status("NV_ERR_INVALID_STATE")
    with failing(ALLOC, status("NV_ERR_NO_MEMORY")), failing(disable, refused):
        answer = row(family.hold_set(gate=False, pause=True, **of(one)))
        assert (answer["paused"], answer["failed"], answer.get("status")) == (0, 1, refused), (answer, other.pid)
        assert "another program's subdevice" in answer["why"]
    until(lambda: share(one.clients, 0.2) == 0)


# ---- rung for by another ------------------------------------------------------------------


def rung_for() -> Play:
    """A fork with a client and a doorbell of its own rings for it."""
    rm = Rm.start()
    channel = started(rm)
    go, told = os.pipe()
    said, word = os.pipe()
    yield {"clients": [rm.client]}
    friend = os.fork()
    if not friend:
        bell = Doorbell(Rm.start())
        os.write(word, b"r")
        os.read(go, 1)
        bell.kick(channel.token)
        signal.pause()
    os.read(said, 1)
    yield {"friend": friend}
    channel.queue(ENDLESS)
    os.write(told, b"g")
    yield {}


@pytest.mark.parametrize("where", ["inside", "outside"])
def test_a_bucket_hears_who_is_rung_for_by_another_program(
    family: genl.DetShare, program: Programs, where: str
) -> None:
    """Of the same account, and of none."""
    one = program(rung_for)
    family.tenant_set("crew", one.pid)
    family.bucket_set(RATE, BURST, kind=TENANT, tenant="crew")
    friend = one.ask()["friend"]
    if where == "outside":
        family.tenant_del("crew", friend)
    time.sleep(0.5)
    one.ask()
    time.sleep(1)
    assert share(one.clients, 3) < ESCAPED
    family.tenant_del("crew")


def rests() -> Play:
    """A short kernel, and nothing after it."""
    rm = Rm.start()
    channel, bell = started(rm), Doorbell(rm)
    yield {"clients": [rm.client]}
    last = channel.submit(bell, 10_000)
    until(lambda: channel.finished == last)
    yield {}


def test_who_rests_is_asked_about_without_anybodys_launch(family: genl.DetShare, program: Programs) -> None:
    """Who pays may be rung for unseen at any time, also while no end of a bucket or the like gives a reason to look."""
    one = program(rests)
    family.bucket_set(RATE, FULL, **of(one))
    one.ask()
    with waiting(QUESTION, before_ms=1):
        until(lambda: calls(QUESTION)[0] > 5)


def orphan(forks: bool) -> Play:
    """A client without a doorbell, and a doorbell whose client is gone; a fork without a client rings, or itself."""
    rm, spare = Rm.start(), Rm.start()
    channel, bell = started(rm), Doorbell(spare)
    assert spare.free(spare.client) == 0
    yield {"clients": [rm.client]}
    child = os.fork() if forks else 0
    if not child:
        channel.queue(ENDLESS)
        bell.kick(channel.token)
    if forks and not child:
        signal.pause()
    yield {}


@pytest.mark.parametrize("forks", [True, False])
def test_a_doorbell_without_a_client_wakes_nobody_who_is_held(
    family: genl.DetShare, program: Programs, forks: bool
) -> None:
    one = program(orphan, forks)
    family.tenant_set("crew", one.pid)
    family.hold_set(gate=True, pause=False, kind=TENANT, tenant="crew")
    one.file.write("\n")
    one.file.flush()
    time.sleep(0.3)
    assert share(one.clients, 0.5) == 0
    family.hold_del(kind=TENANT, tenant="crew")
    family.tenant_del("crew")


# ---- many clients ---------------------------------------------------------------------------


def crowd(count: int) -> Play:
    """As many clients, each with an endless kernel."""
    made = [(rm, started(rm), Doorbell(rm)) for rm in (Rm.start() for _ in range(count))]
    for _, channel, bell in made:
        channel.submit(bell, ENDLESS)
    yield {"clients": [rm.client for rm, _, _ in made]}


def test_ten_clients_have_one_floor(family: genl.DetShare, program: Programs, worker: Workers) -> None:
    """Of a tenth; a window for each of them would be all of it."""
    low, high = program(crowd, 10), worker("nvbackground", "--endless")
    write(family, 100)
    family.sched_set(low.pid, "low")
    family.sched_set(high.pid, "high")
    time.sleep(1)

    def part() -> float:
        before, above = gpu_us(low.clients), high.gpu_us()
        time.sleep(2)
        used, rest = gpu_us(low.clients) - before, high.gpu_us() - above
        return used / (used + rest)

    until(lambda: 0.02 < part() < 0.2)


def short_lives(count: int, us: int) -> Play:
    """Clients that were made before, each freed with a kernel that has run so long."""
    made = [(rm, started(rm), Doorbell(rm)) for rm in (Rm.start() for _ in range(count))]
    yield {"clients": [rm.client for rm, _, _ in made]}
    ran = 0
    for rm, channel, bell in made:
        channel.submit(bell, ENDLESS)
        while channel.ran_ns < us * 1000:
            time.sleep(0.0005)
        ran += channel.ran_ns // 1000
        assert rm.free(rm.client) == 0
    yield {"ran_us": ran}


def test_who_is_freed_pays_before(family: genl.DetShare, program: Programs) -> None:
    """Nobody is charged before the driver has answered; it answers too late here."""
    one = program(short_lives, 3, 120_000)
    # more than it can use: nothing is held, all is counted
    family.bucket_set(1_000_000, 10_000_000, **of(one))
    time.sleep(0.5)
    (before,) = (row(message)["used_us"] for message in family.bucket_get())
    with waiting(QUESTION, after_ms=900):
        ran = one.ask()["ran_us"]
        (after,) = (row(message)["used_us"] for message in family.bucket_get())
    assert after - before > 0.8 * ran


# ---- the first channel of all -----------------------------------------------------------------


def busy_from_birth() -> Play:
    """A fork rings its first channel before it hears that there is one."""
    rm = Rm.start()
    bell, space = Doorbell(rm), vas(rm)
    like = Channel(rm, tsg(rm, space, engine=COPY0), space=space)  # of a copy engine: memory for the one that counts
    assert rm.free(like.handle) == 0
    like.handle, like.group = rm.handle(), tsg(rm, space)
    assert like.schedule() == 0
    like.queue(ENDLESS)
    yield {"clients": [rm.client]}
    if not os.fork():
        while True:
            struct.pack_into("<I", bell.at, SIM["USERMODE_DOORBELL"], FIRST_TOKEN)
            time.sleep(0.001)
    params = Block.of("NV_CHANNEL_ALLOC_PARAMS", gpFifoEntries=ENTRIES, gpFifoOffset=like.base + 0x1000)
    params.put("hUserdMemory", like.memory, 0)
    begin = time.monotonic()
    assert rm.alloc("HOPPER_CHANNEL_GPFIFO_A", like.group, like.handle, params)[0] == 0
    yield {"moves": like.moves(), "took": time.monotonic() - begin}


def test_a_channel_that_is_busy_from_birth_teaches_nobody(worker: Workers, program: Programs) -> None:
    """The first compute channel is asked about to learn whether this driver can tell who is busy."""
    unload()
    load()
    first = program(busy_from_birth)
    with waiting(QUESTION, before_ms=200):
        said = first.ask()
    assert said["moves"]
    assert said["took"] > 0.2, "it was not asked about"
    first.end()
    with genl.DetShare() as made:
        one = worker("nvbackground", "--endless")
        made.bucket_set(RATE, BURST, **of(one))
        time.sleep(0.5)
        assert share([one.ready["client"]], 3) < ESCAPED
        made.bucket_del(**of(one))
