# SPDX-License-Identifier: Apache-2.0
"""Values and names that cannot be meant; programs that are left alone; notes."""

from __future__ import annotations

import os

from stage import Stage, left_alone, makes

from detshare.ctl.backends.model import scenario
from detshare.ctl.backends.model.process import ModelProcess
from detshare.ctl.backends.root import actuator
from detshare.ctl.backends.root.backend import RootBackend
from detshare.ctl.core import procfs, sizes
from detshare.ctl.core.driver import ProcessId
from detshare.ctl.rm import kernel
from tests.unit.model import programs
from tests.unit.root.conftest import Clock
from tests.unit.root.helpers import program, take_all


@makes("WHO '...' is empty or too long")
def _(stage: Stage) -> str:
    return stage.ctl("set-priority", "", "high")


@makes("N is no PID: they run from 1 to 4194304")
def _(stage: Stage) -> str:
    return stage.ctl("pause", "99999999", "--foreground")


@makes("who ... holds characters that cannot be printed", "who is ...; it is a string")
def _(stage: Stage) -> str:
    return stage.asked("pause", "a\x1b[0m") + stage.asked("pause", 4242)


@makes("'X' is no class: use one of high, normal, low, idle")
def _(stage: Stage) -> str:
    return stage.ctl("set-priority", "1000", "urgent")


@makes("weight X is out of range: 1 to 1000", "slice X is out of range")
def _(stage: Stage) -> str:
    return stage.asked("set-weight", weight=1001) + stage.asked("set-slice", slice_us=0)


@makes("'X' is no rate", "'X' is no number of SMs")
def _(stage: Stage) -> str:
    return stage.ctl("set-bucket", "4242", "much") + stage.ctl("reserve", "some")


@makes("'X' is no size: write 4G, 512M, ...", "a limit of N bytes is out of range")
def _(stage: Stage) -> str:
    return stage.ctl("set-memory", "4242", "four") + stage.refused(lambda: sizes.check(1 << 64))


@makes("a limit of 0 would refuse all memory; to have no limit say max")
def _(stage: Stage) -> str:
    return stage.ctl("set-memory", "4242", "0")


@makes("GPU N is out of range")
def _(stage: Stage) -> str:
    return stage.asked("set-memory", limit=1 << 30, gpu=64)


@makes("level is X; it is one of low, medium, high")
def _(stage: Stage) -> str:
    return stage.asked("set-slice", slice_us=2048, level="top")


@makes("VERB needs NAME, a string", "VERB needs NAME, a whole number", "VERB: NAME is far out of range")
def _(stage: Stage) -> str:
    return "".join(
        [
            stage.asked("set-priority", **{"class": 5}),
            stage.asked("set-weight", weight="3"),
            stage.asked("set-weight", weight=1 << 70),
        ]
    )


@makes("VERB has no argument X; it takes ...", "there is no verb X")
def _(stage: Stage) -> str:
    return stage.asked("pause", hard=True) + stage.asked("freeze")


@makes("it needs either WHO or --all")
def _(stage: Stage) -> str:
    return stage.ctl("release")


@makes("N is no number of seconds")
def _(stage: Stage) -> str:
    return stage.ctl("set-priority", "4242", "low", "--wait", "nan")


# -- programs that are left alone -------------------------------------------------------------------------------


@makes("there is no process P")
def _(stage: Stage) -> str:
    return stage.ctl("set-priority", "4000000", "high")


@makes("no GPU program runs in a container ID...")
def _(stage: Stage) -> str:
    return stage.ctl("set-priority", "deadbeefcafe", "high")


@makes("no GPU program's command matches 'X'")
def _(stage: Stage) -> str:
    return stage.ctl("set-priority", "nobody.py", "high")


@makes("no program that holds a GPU matches")
def _(stage: Stage) -> str:
    return stage.ctl("show", "nobody.py")


@makes("it uses no GPU (no descriptor of /dev/nvidia*)")
def _(stage: Stage) -> str:
    idle = stage.driver.machine.spawn("sleep")
    return left_alone(stage.backend().pause(str(idle.id.pid)))


@makes("it has no GPU context, so there is nothing to pause", "it has no compute TSG ...")
def _(stage: Stage) -> str:
    reader = str(programs.nvml_process(stage.driver).id.pid)
    backend = stage.backend()
    return left_alone(backend.pause(reader)) + left_alone(backend.preempt(reader))


@makes("it is not paused", "it is not managed: nothing to put back", "it uses no GPU and nothing was set for it")
def _(stage: Stage) -> str:
    who, idle = str(stage.program().id.pid), str(stage.driver.machine.spawn("sleep").id.pid)
    backend = stage.backend()
    return left_alone(backend.resume(who)) + left_alone(backend.release(who)) + left_alone(backend.release(idle))


def _odd(stage: Stage, name: str) -> ModelProcess:
    """A program about which the driver answers each control with one status."""
    odd = stage.program("odd")
    status, real = stage.driver.abi.status(name), stage.driver.rm.control

    def control(*args: object) -> int:
        return status if any(args[0] is file for file in odd.fds.values()) else real(*args)  # type: ignore[arg-type]

    stage.driver.rm.control = control  # type: ignore[method-assign,assignment]
    return odd


@makes("not understood: ...", "DOING X: the driver answered NV_ERR_... (0x..)", "NV_ERR_GPU_IS_LOST")
def _(stage: Stage) -> str:
    odd = _odd(stage, "NV_ERR_GPU_IS_LOST")
    return left_alone(stage.backend().set_priority(str(odd.id.pid), "high"))


@makes("NV_ERR_NOT_SUPPORTED")
def _(stage: Stage) -> str:
    odd = _odd(stage, "NV_ERR_NOT_SUPPORTED")
    return left_alone(stage.backend().set_priority(str(odd.id.pid), "high"))


@makes("NV_ERR_INSUFFICIENT_PERMISSIONS")
def _(stage: Stage) -> str:
    odd = _odd(stage, "NV_ERR_INSUFFICIENT_PERMISSIONS")
    return left_alone(stage.backend().set_priority(str(odd.id.pid), "high"))


@makes("none of its nvidiactl descriptors owns an RM client")
def _(stage: Stage) -> str:
    process = stage.driver.machine.spawn("broker")
    process.open("/dev/nvidiactl")
    process.open("/dev/nvidia0")
    backend = stage.backend()
    while "still looking" in (said := " ".join(program(backend, process).notes)):
        pass
    return said


@makes("an MPS process cannot be paused", "MPS: one TSG with PID ...")
def _(stage: Stage) -> str:
    server = programs.mps_server(stage.driver)
    client = programs.mps_client(stage.driver, server)
    backend = stage.backend()
    backend.look()
    said = left_alone(backend.pause(str(client.id.pid)))
    return said + " ".join(program(backend, client).notes)


@makes("PID P has ended", "... its number may belong to another process now", "descriptor F of PID P has been closed")
def _(stage: Stage) -> str:
    me = os.getpid()
    found = kernel.KernelDriver._pidfd
    said = [stage.refused(lambda: found(ProcessId(4_194_304, 1))), stage.refused(lambda: found(ProcessId(me, 1)))]
    return "".join([*said, stage.refused(lambda: kernel.KernelDriver._refused(ProcessId(me, 1), 3, 9))])


@makes("duplicating descriptor F of PID P was refused (...)")
def _(stage: Stage) -> str:
    return stage.refused(lambda: kernel.KernelDriver._refused(ProcessId(4242, 1), 3, 1))


@makes("shares descriptors with PID P, which owns what they reach")
def _(stage: Stage) -> str:
    owner = stage.program("owner")
    child = stage.driver.machine.spawn("child")
    take_all(child, owner)
    backend = stage.backend()
    for _ in range(4):
        backend.look()
    return " ".join(program(backend, child).notes)


@makes("it has no GPU context yet; will be applied when it makes one", "it uses no GPU yet; ...")
def _(stage: Stage) -> str:
    reader, idle = programs.nvml_process(stage.driver), stage.driver.machine.spawn("sleep")
    backend = stage.backend()
    backend.look()
    notes = [backend.set_priority(str(each.id.pid), "high").changed[0].note for each in (reader, idle)]
    return " ".join(notes)


@makes("TSG H is another one by now")
def _(stage: Stage) -> str:
    process = stage.program()
    backend = stage.backend()
    backend.look()
    stage.patch.setattr(actuator, "still_there", lambda *_: False)  # its program freed it and made another
    return left_alone(backend.set_priority(str(process.id.pid), "high"))


@makes("handles outside one block ...: some of its objects may be unseen")
def _(stage: Stage) -> str:
    process = stage.driver.machine.spawn("odd library")
    _, file, client = scenario.new_client(stage.driver, process)
    klass = stage.driver.abi.klass
    rows = [
        (0x02, 0, klass("NV01_DEVICE_0"), 0),
        (0x03, 0x02, klass("NV20_SUBDEVICE_0"), 0),
        (0x01000000, 0x02, klass("KEPLER_CHANNEL_GROUP_A"), 1),
    ]
    for row in rows:
        scenario.alloc(stage.driver, process, file, client, row, scenario.CUDA_BASE, 0)
    backend = stage.backend()
    return " ".join(program(backend, process).notes)


@makes("still looking for its RM client (N % of handles tried)")
def _(stage: Stage) -> str:
    process = stage.program()
    stage.driver.rm.next_client += 200_000
    stage.run_dir.mkdir(mode=0o700, exist_ok=True)
    backend = RootBackend(stage.driver, stage.run_dir, name="model", clock=Clock(1e-3))
    return " ".join(program(backend, process).notes)


@makes("descriptor F of PID P is no /dev/nvidiactl any more")
def _(stage: Stage) -> str:
    stage.patch.setattr(kernel.KernelDriver, "__init__", lambda self: None)
    driver = kernel.KernelDriver()
    driver._abi = stage.driver.abi
    stage.patch.setattr(kernel, "getfd", lambda *_: os.open("/dev/null", os.O_RDONLY))
    start = procfs.start_time(os.getpid())
    assert start is not None

    def borrow() -> None:
        with driver.borrow(ProcessId(os.getpid(), start), 3):
            pass

    return stage.refused(borrow)
