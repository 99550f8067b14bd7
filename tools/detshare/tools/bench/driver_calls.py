# SPDX-License-Identifier: Apache-2.0
"""driver-calls: what detshare.ko asks of the driver, asked of a real GPU from user space by the same C code.

First the acts (slice, level, preempt, pause, ceiling) on living programs: do they answer NV_OK, how long do they take,
do they act? Then probes of what the module could use, or must refuse.
"""

from __future__ import annotations

import os
import random
import re
import struct
import time
from collections import Counter
from collections.abc import Callable
from functools import partial

from detshare.ctl.abi.versions import for_version
from detshare.ctl.rm.kernel import KernelDriver
from detshare.ctl.rm.session import ControlFile
from detshare.tools.bench import userd
from detshare.tools.bench.acts import Acts, ActsError, Answer, Recorded, Tenant, tenant
from detshare.tools.bench.catalog import kernels
from detshare.tools.bench.process import Program, ProgramError
from detshare.tools.bench.rm_objects import objects
from detshare.tools.bench.session import Session
from detshare.tools.bench.stats import percentile, rate

GAP_US = 2000.0
NOBODY = 65534
DEFAULT_SLICE_US = 2048
BEFORE = {
    "get slice": (None, None),
    "set slice": (260.0, 470.0),
    "set level": (227.0, 227.0),
    "preempt": (274.0, 475.0),
    "restart run list": (None, None),
    "pause": (None, 578.0),
    "resume": (None, 282.0),
    "TPC mode": (614.0, 614.0),
    "TPC table": (12.0, 12.0),
}
"""p50 in microseconds on another H100 with this driver, idle and busy: the reference that rows are compared with"""

MEANS = {0x00: "idle", 0x65: "busy", 0x03: "busy"}
"""NV_OK, NV_ERR_TIMEOUT, NV_ERR_BUSY_RETRY, as busy.c takes them"""


class Acting:
    """Programs of the session as tenants, and the acts on them in the module's order."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.driver = KernelDriver()
        session.proof = self.driver.proof
        model = re.search(r"\b[A-Z]+\d+\b", self.driver.gpus()[0].name)
        session.variant = f"-{model[0].lower()}" if model else ""
        self.acts = Acts(self.driver.version, session.folder)
        self.failed: dict[str, int] = {}

    def tenant(self, program: Program) -> Tenant:
        return tenant(self.driver, program.pid)

    def send(self, name: str, of: Tenant, step: object) -> Answer:
        """Send one step and keep what came of it."""
        answer = of.send(step)  # type: ignore[arg-type]
        self.session.mark("call", name=name, of_pid=of.pid, status=answer.status, us=round(answer.us, 2))
        if answer.status:
            self.failed[name] = self.failed.get(name, 0) + 1
        return answer

    def order(self, of: Tenant, slice_us: int, level: int) -> list[Answer]:
        """A standing order, as sched.c carries it out: the slice that was, the slice, the level."""
        a, tsg = self.acts, of.tsg.handle
        steps = (
            ("get slice", a.get_slice(of.client, tsg)),
            ("set slice", a.set_slice(of.client, tsg, slice_us)),
            ("set level", a.set_level(of.client, tsg, level)),
        )
        return [self.send(name, of, step) for name, step in steps]

    def switch(self, of: Tenant, off: bool) -> Answer:
        """A pause or a resume, as pause.c does it: all compute channels in one call."""
        step = self.acts.disable(of.client, of.tsg.subdevice, of.channels, off)
        return self.send("pause" if off else "resume", of, step)


def calls(acting: Acting, of: Tenant, where: str, column: int) -> None:
    """Every act over and over: statuses and latencies."""
    session, a = acting.session, acting.acts
    count = 20 if session.options.quick else 100
    took: dict[str, list[float]] = {}
    acting.failed.clear()
    for number in range(count):
        answers = dict(zip(("get slice", "set slice", "set level"), acting.order(of, 1000 + number, 1), strict=True))
        read = acting.send("get slice", of, a.get_slice(of.client, of.tsg.handle))
        if a.slice_us(read) != 1000 + number:
            acting.failed["slice read back"] = acting.failed.get("slice read back", 0) + 1
        answers["preempt"] = acting.send("preempt", of, a.preempt(of.client, of.tsg.handle))
        restart = a.restart_runlist(of.client, of.tsg.channels[0], False)
        answers["restart run list"] = acting.send("restart run list", of, restart)
        answers["pause"] = acting.switch(of, True)
        answers["resume"] = acting.switch(of, False)
        for name, answer in answers.items():
            took.setdefault(name, []).append(answer.us)
    acting.order(of, DEFAULT_SLICE_US, 1)
    for name, values in took.items():
        session.row(f"{name}, {where}: p50", percentile(values, 50), "us", BEFORE[name][column])
        session.row(f"{name}, {where}: p99", percentile(values, 99), "us")
        session.row(f"{name}, {where}: calls not NV_OK", acting.failed.get(name, 0), "calls", None, "== 0")
    session.row(f"slices read back otherwise, {where}", acting.failed.get("slice read back", 0), "times", None, "== 0")


def pauses(acting: Acting, endless: Program, of: Tenant) -> None:
    """Does a device counter stand still while its channels are off?"""
    session = acting.session
    count = 10 if session.options.quick else 40
    choose = random.Random(session.options.seed)
    real: dict[bool, list[float]] = {True: [], False: []}
    missed = 0
    for _ in range(count):
        for off, event in ((True, "stopped"), (False, "advanced")):
            asked = time.monotonic()
            acting.switch(of, off)
            try:
                line = endless.wait_for(event, 2.0, asked - 0.001)
            except ProgramError:
                missed += 1
            else:
                real[off].append(max(0.0, line["t"] - asked) * 1e6)
            time.sleep(choose.uniform(0.01, 0.03))
    session.row("pause and resume of a running kernel: cycles", count, "cycles", None, ">= 10")
    session.row("pauses and resumes without effect on its counter", missed, "times", None, "== 0")
    for off, text in ((True, "from the call until it stands still"), (False, "from the call until it goes on")):
        for percent in (50, 99):
            if real[off]:
                session.row(f"counter, {text}, p{percent}", percentile(real[off], percent), "us")
    # the driver counts: off twice, on once
    for off in (True, True, False):
        acting.switch(of, off)
    time.sleep(0.1)
    asked = time.monotonic()
    time.sleep(0.2)
    moved = [line for line in endless.lines("advanced", asked - 0.1) if line["t"] >= asked - 0.1]
    session.row("off twice, on once: the kernel goes on", float(bool(moved)), "yes")
    asked = time.monotonic()
    acting.switch(of, False)
    try:
        endless.wait_for("advanced", 2.0, asked - 0.001)
        goes_on = True
    except ProgramError:
        goes_on = bool(moved)
    session.row("off twice, on twice: the kernel goes on", float(goes_on), "yes", None, "== 1")


def idleness(acting: Acting, of: Tenant, where: str, busy: bool | None) -> None:
    """The question of busy.c, over and over: answers and latencies. `busy`: what is so, None: now and then."""
    session = acting.session
    question = acting.acts.ask_idle(of.client, of.tsg.device, of.tsg.channels)
    answers = []
    for _ in range(20 if session.options.quick else 200):
        answers.append(acting.send("ask idle", of, question))
        time.sleep(0.0017)
    took = [answer.us for answer in answers]
    told = Counter(MEANS.get(answer.status, "unknown") for answer in answers)
    session.mark("idleness", where=where, statuses=dict(Counter(hex(answer.status) for answer in answers)))
    session.row(f"ask idle, {where}: p50", percentile(took, 50), "us")
    session.row(f"ask idle, {where}: p99", percentile(took, 99), "us")
    session.row(f"ask idle, {where}: answers that are no answer", told["unknown"], "answers", None, "== 0")
    target = None if busy is None else "== 1" if busy else "== 0"
    session.row(f"ask idle, {where}: answered busy", told["busy"] / len(answers), "part", None, target)


def unhurt(acting: Acting, endless: Program) -> None:
    """After the questions the kernel that they were about still counts."""
    asked = time.monotonic()
    try:
        before = endless.wait_for("window", 3.0, asked)
        endless.wait_for("window", 3.0, asked, "t0", lambda line: line["progress"] > before["progress"])
        goes_on = True
    except ProgramError:
        goes_on = False
    acting.session.row("ask idle, an endless kernel: it goes on", float(goes_on), "yes", None, "== 1")


def idle_otherwise(acting: Acting, of: Tenant) -> None:
    """A program that rests beside an endless kernel is idle; what is said of one whose channels are off is a probe."""
    session = acting.session
    [rest] = session.start_all({"rest": kernels("periodic", "--us", 50, "--period-ms", 5000, "--iterations", 1000)})
    with acting.tenant(rest) as resting:
        idleness(acting, resting, "at rest beside an endless kernel", False)
    session.finish(rest)
    acting.switch(of, True)
    idleness(acting, of, "an endless kernel, its channels off", None)
    acting.switch(of, False)


def idle_waiting(acting: Acting) -> None:
    """What is said of a program whose only work is to wait for a semaphore: nothing runs, its channel is not done."""
    session = acting.session
    [program] = session.start_all({"parked": kernels("parked")})
    with acting.tenant(program) as of:
        idleness(acting, of, "a stream that waits for a word", None)
    session.finish(program)
    [summary] = program.lines("summary")
    what = "ask idle, a stream that waits for a word: it waited all the time"
    session.row(what, float(summary["waited"]), "yes", None, "== 1")


def subdevices(acting: Acting) -> None:
    """A device has one at most, and the driver chooses its handle: the module makes one where nobody has any."""
    abi, session = for_version(acting.driver.version), acting.session
    none_left = abi.status("NV_ERR_INSUFFICIENT_RESOURCES")
    with objects(abi) as own:
        status, device = own.alloc("NV01_DEVICE_0", own.client, zeros=True)
        session.row("a device of a client of ours: status", status, "NV_STATUS", None, "== 0")
        status, first = own.alloc("NV20_SUBDEVICE_0", device)
        session.row("a subdevice of it by the handle 0: status", status, "NV_STATUS", None, "== 0")
        session.row("a subdevice of it by the handle 0: the driver chose one", float(first != 0), "yes", None, "== 1")
        status, _ = own.alloc("NV20_SUBDEVICE_0", device)
        session.row("a second one: status", status, "NV_STATUS", none_left, f"== {none_left}")
        session.row("the first one freed: status", own.free(first), "NV_STATUS", None, "== 0")
        status, _ = own.alloc("NV20_SUBDEVICE_0", device)
        session.row("another in its place: status", status, "NV_STATUS", None, "== 0")


def shares(acting: Acting, programs: tuple[Program, Program]) -> None:
    """Two programs that could fill the GPU; their parts of the kernels follow their slices."""
    session = acting.session
    seconds = max(1.0, session.options.seconds)
    with acting.tenant(programs[0]) as one, acting.tenant(programs[1]) as other:
        for first, second in ((2000, 2000), (2000, 6000), (1000, 16000)):
            for of, us in ((one, first), (other, second)):
                acting.order(of, us, 1)
            slot = session.slot(f"slices {first}:{second}", seconds, *programs, settle=0.3)
            rates = [rate(slot.windows[program.name], "count") for program in programs]
            wanted, got = second / first, rates[1] / rates[0]
            what = f"slices {first} us : {second} us, kernels of the second for one of the first"
            session.row(what, got, "ratio", wanted)
            session.row(f"{what}: away from the slices by", abs(got / wanted - 1), "part", None, "<= 0.1")
        for of in (one, other):
            acting.order(of, DEFAULT_SLICE_US, 1)


def ceiling(acting: Acting, program: Program, of: Tenant) -> None:
    """The two steps of a TPC ceiling; the second needs kernel privilege, which nobody has here."""
    session, a = acting.session, acting.acts
    before = _rate(session, program)
    took = []
    for mode, text in ((2, "dynamic"), (1, "static"), (0, "none")):
        answer = acting.send("TPC mode", of, a.tpc_mode(of.client, of.tsg.handle, mode, mode == 0))
        took.append(answer.us)
        session.row(f"probe: TPC mode {text} on a living channel group: status", answer.status, "NV_STATUS")
        if mode and of.tsg.context_shares:
            table = acting.send("TPC table", of, a.tpc_table(of.client, of.tsg.context_shares[0], 33))
            session.row(f"probe: TPC table as root in mode {text}: status", table.status, "NV_STATUS", 0x1B)
        part = _rate(session, program) / before
        session.row(f"probe: kernels per second in mode {text}, of before", part, "part")
    session.row("TPC mode, busy: p50", percentile(took, 50), "us", BEFORE["TPC mode"][1])


def ceiling_between(acting: Acting, mode: int, text: str, back: bool, off: bool) -> None:
    """A mode for a channel group that rests, or whose channels are off, on a program that may be lost by it."""
    session = acting.session
    where = "while its channels are off" if off else "between its kernels"
    what = f"probe: TPC mode {text} {where}{', then none' if back else ''}"
    [program] = session.start_all({f"{text} {where} {back}": kernels("periodic", "--us", 50, "--period-ms", 2)})
    with acting.tenant(program) as of:
        if off:
            acting.switch(of, True)
        answer = acting.send("TPC mode", of, acting.acts.tpc_mode(of.client, of.tsg.handle, mode, False))
        session.row(f"{what}: status", answer.status, "NV_STATUS")
        if back:
            answer = acting.send("TPC mode", of, acting.acts.tpc_mode(of.client, of.tsg.handle, 0, True))
            session.row(f"{what}: status of none", answer.status, "NV_STATUS")
        if off:
            acting.switch(of, False)
    begin = time.monotonic()
    time.sleep(1.5)
    moved = [line for line in program.lines("window", begin + 0.3, "t0") if line["count"]]
    session.row(f"{what}: the program goes on", float(bool(moved)), "yes")
    program.end(2.0)
    session.drop(program)


def _rate(session: Session, program: Program) -> float:
    slot = session.slot("rate", 0.6, program, settle=0.2)
    return rate(slot.windows[program.name], "count")


def questions(acting: Acting, of: Tenant, foreign: Tenant) -> None:
    """Controls that the module does not send: what do they answer, also about handles of others?"""
    session, known = acting.session, Recorded(of.abi.table)
    channel = of.tsg.channels[0]
    state = "NVB06F_CTRL_CMD_GET_CHANNEL_HW_STATE"
    for text, off in (("running", None), ("paused", True), ("resumed", False)):
        if off is not None:
            acting.switch(of, off)
        answer = acting.send(state, of, known.ask(of.client, channel, state))
        session.row(f"probe: GET_CHANNEL_HW_STATE, {text}: status", answer.status, "NV_STATUS")
        session.row(f"probe: GET_CHANNEL_HW_STATE, {text}: value", int.from_bytes(answer.params[:4], "little"), "word")
    subdevice = of.tsg.subdevice
    group = "NV2080_CTRL_CMD_FIFO_GET_CHANNEL_GROUP_UNIQUE_ID_INFO"
    asked = {"hClient": [foreign.client], "hChannelOrTsg": [foreign.tsg.handle]}
    answer = acting.send(group, of, known.ask(of.client, subdevice, group, asked))
    session.row("probe: unique ids of another program's channel group: status", answer.status, "NV_STATUS")
    told = int.from_bytes(answer.params[known.at(group, "numChannels") :][:4], "little")
    session.row("probe: its channels that were told", told, "channels", len(foreign.tsg.channels))
    single = "NV2080_CTRL_CMD_FIFO_QUERY_CHANNEL_UNIQUE_ID"
    asked = {"hClients": [foreign.client], "hChannels": [foreign.tsg.channels[0]], "numChannels": [1]}
    answer = acting.send(single, of, known.ask(of.client, subdevice, single, asked))
    session.row("probe: unique id of another program's channel: status", answer.status, "NV_STATUS")


def modes(acting: Acting, of: Tenant) -> None:
    """How a context leaves the GPU: a program may choose for itself, and CUDA chose CILP.

    With WFI what cannot end within the driver's patience is killed: an endless kernel was, by Xid 109.
    """
    session, known = acting.session, Recorded(of.abi.table)
    mode = "NV2080_CTRL_CMD_GR_SET_CTXSW_PREEMPTION_MODE"
    for number, text in ((2, "CILP"), (1, "CTA"), (0, "WFI"), (2, "CILP again")):
        asked = {"flags": [1], "hChannel": [of.tsg.handle], "cilpPreemptMode": [number]}
        answer = acting.send(mode, of, known.ask(of.client, of.tsg.subdevice, mode, asked))
        session.row(f"probe: preemption mode {text} by the program itself: status", answer.status, "NV_STATUS")
        took: dict[str, list[float]] = {"preempt": [], "pause": []}
        for _ in range(15):
            took["preempt"].append(acting.send("preempt", of, acting.acts.preempt(of.client, of.tsg.handle)).us)
            time.sleep(0.011)
            took["pause"].append(acting.switch(of, True).us)
            acting.switch(of, False)
            time.sleep(0.011)
        for name, values in took.items():
            session.row(f"probe: {name} in mode {text}, kernels of 5 ms: p50", percentile(values, 50), "us")
            session.row(f"probe: {name} in mode {text}, kernels of 5 ms: longest", max(values), "us")


def registers(acting: Acting, program: Program, of: Tenant) -> None:
    """USERD and doorbells of a program as /proc/PID/mem shows them; then with its channels off and a launch waiting."""
    session, pid = acting.session, program.pid
    found = userd.moving(pid, 0.5)
    # between two launches nothing is pending: what moved and is equal before and after is no accident
    steady = [after for before, after in found if before.get == before.put and after.get == after.put]
    sure = [
        slot for slot in steady if slot.path[-1].isdigit()
    ]  # CUDA's lie in device memory, mapped by the device's file
    session.row("probe: mappings of the driver's files", len(userd.mappings(pid)), "mappings")
    session.row("probe: slots of 512 bytes in which a word at GPPut's place moved in 0.5 s", len(found), "slots")
    session.row("probe: of them, GPGet equal to it before and after: a USERD", len(sure), "slots", None, ">= 1")
    bells = userd.doorbells(pid)
    session.row("probe: doorbells of the program", len(bells), "mappings", 2)
    readable = [data for each in bells if (data := userd.read(pid, each, 0x100))]
    session.row("probe: doorbells that /proc/PID/mem reads", len(readable), "mappings")
    acting.switch(of, True)
    time.sleep(0.3)
    pairs = []
    for slot in sure:
        data = userd.read(pid, userd.Mapping(slot.address, userd.SLOT, slot.path)) or bytes(userd.SLOT)
        pairs.append(struct.unpack_from("<II", data, userd.GET))
    acting.switch(of, False)
    session.mark(
        "userd", slots=[[each.path, each.get, each.put, *pair] for each, pair in zip(sure, pairs, strict=True)]
    )
    waiting = sum(get != put for get, put in pairs)
    session.row("probe: of these, GPGet behind GPPut while the channels are off", waiting, "slots", None, ">= 1")
    time.sleep(0.2)


def intrusion(acting: Acting, endless: Program, victim: Tenant, intruder: Tenant) -> None:
    """A process without any privilege names another program's channels in a pause; both programs are ours."""
    session = acting.session
    descriptor = intruder.descriptor
    assert isinstance(descriptor, ControlFile)
    asked = time.monotonic()
    statuses = []
    for off in (True, False):
        step = acting.acts.disable(intruder.client, intruder.tsg.subdevice, victim.channels, off)
        statuses.append(_as_nobody(lambda step=step: intruder.send(step).status))  # type: ignore[misc]
        time.sleep(0.3)
    stopped = [line for line in endless.lines("stopped", asked - 0.001) if line["t"] >= asked - 0.001]
    session.mark("intrusion", statuses=statuses, stopped=len(stopped))
    session.row("probe: pause of another's channels without any privilege: status", statuses[0], "NV_STATUS")
    session.row("probe: it stopped the other program", float(bool(stopped)), "yes")
    session.row("probe: resume by the same: status", statuses[1], "NV_STATUS")


def _as_nobody(call: Callable[[], int]) -> int:
    """What `call` returns in a process with uid 65534 and no capability; 0xffffffff where the ioctl failed."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        status = 0xFFFFFFFF
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            status = call()
        finally:
            os.write(write, status.to_bytes(4, "little"))
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        data = answer.read(4)
    os.waitpid(child, 0)
    return int.from_bytes(data, "little")


def _try(session: Session, what: str, part: Callable[[], None]) -> None:
    """A probe may fail as a whole; that is a result too."""
    try:
        part()
    except (ActsError, ProgramError, OSError, ValueError, KeyError) as error:
        session.mark("probe failed", what=what, error=str(error))
        session.say(f"{what}: {type(error).__name__}: {error}")
        session.row(f"{what}: could not be tried", 1, "times", None, "== 0")


def run(session: Session) -> None:
    """The whole experiment."""
    acting = Acting(session)
    iterations, _ = session.calibrate(687.0)
    saturate = kernels("saturate", "--us", 687, "--iterations", iterations)

    [idle] = session.start_all({"idle": kernels("periodic", "--us", 50, "--period-ms", 200, "--iterations", 1000)})
    with acting.tenant(idle) as of:
        calls(acting, of, "idle", 0)
        _try(session, "ask idle", lambda: idleness(acting, of, "a kernel of 50 us each 200 ms", None))
        _try(session, "subdevices", lambda: subdevices(acting))
    session.finish(idle)
    _try(session, "ask idle", lambda: idle_waiting(acting))

    [endless] = session.start_all({"endless": kernels("endless", "--gap-us", GAP_US)})
    with acting.tenant(endless) as of:
        _try(session, "ask idle", lambda: idleness(acting, of, "an endless kernel", True))
        _try(session, "ask idle", lambda: unhurt(acting, endless))
        pauses(acting, endless, of)
        [other] = session.start_all({"other": saturate})
        calls(acting, of, "beside another program", 1)
        _try(session, "ask idle", lambda: idleness(acting, of, "an endless kernel beside another program", True))
        with acting.tenant(other) as second:
            _try(session, "ask idle", lambda: idle_otherwise(acting, of))
            _try(session, "probe: foreign pause", lambda: intrusion(acting, endless, of, second))
            _try(session, "probe: questions", lambda: questions(acting, of, second))
    session.finish(endless)
    with acting.tenant(other) as second:
        _try(session, "probe: ceiling", lambda: ceiling(acting, other, second))
    [partner] = session.start_all({"partner": saturate})
    shares(acting, (other, partner))
    session.finish(other, partner)

    [periodic] = session.start_all({"periodic": kernels("periodic", "--us", 50, "--period-ms", 2)})
    with acting.tenant(periodic) as of:
        _try(session, "probe: USERD", lambda: registers(acting, periodic, of))
    session.finish(periodic)
    # last: what it does to its program is not known
    [slow] = session.start_all({"slow": kernels("saturate", "--us", 5000, "--iterations", iterations * 7)})
    with acting.tenant(slow) as of:
        _try(session, "probe: preemption modes", lambda: modes(acting, of))
    session.drop(slow)
    for mode, text, back, off in (
        (2, "dynamic", False, False),
        (1, "static", False, False),
        (1, "static", True, False),
        (1, "static", False, True),
    ):
        _try(session, f"probe: TPC mode {text}", partial(ceiling_between, acting, mode, text, back, off))
