# SPDX-License-Identifier: Apache-2.0
"""Who is no administrator reaches nobody's channels by a control, and holds no lock of the driver for long."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import pytest

from detshare.ctl.netlink import genl
from tests.patience import until
from tests.vm.guest.kmod_tools import PID
from tests.vm.guest.nvsim_rm import Block, Rm, address, escape, number, status
from tests.vm.guest.nvsim_steering import close, running
from tests.vm.guest.nvsim_tools import in_child, rm
from tests.vm.guest.nvsim_work import ENDLESS, Channel, Doorbell
from tests.vm.guest.sched_tools import family

__all__ = ["family", "rm"]  # fixtures

DISABLE = number("NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS")
KEYS = number("NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS_FOR_KEY_ROTATION")
IDLE = "NV0080_CTRL_CMD_FIFO_IDLE_CHANNELS"
REFUSED = status("NV_ERR_INSUFFICIENT_PERMISSIONS")
FORCE_BUSY_CHECK = 3 | 5 << 8
HUGE_US = 900_000
TRIES = 5
"""the shortest counts: the others may have waited for a processor"""


@pytest.fixture
def neighbour(rm: Rm) -> Iterator[Channel]:
    """It runs an endless kernel."""
    (channel,), bell = running(rm)
    channel.submit(bell, ENDLESS)
    until(channel.moves)
    yield channel
    close([channel], bell)


def as_tenant(work: Callable[[Rm], int], *, managed: bool = False) -> int:
    """What `work` returns for an ordinary user's client in a child."""
    for device in ("nvidiactl", "nvidia0"):
        os.chmod(f"/dev/{device}", 0o666)

    def play() -> int:
        if managed:
            with genl.DetShare() as family:
                family.sched_set(kind=PID, pid=os.getpid(), slice_us=1000)
        os.setgroups([])
        os.setuid(65534)
        return work(Rm.start())

    return in_child(play)


def off_by_keys(of: Channel) -> bytearray:
    words = [1, of.rm.client, *[0] * 63, of.handle, *[0] * 63, 0]
    return bytearray(b"".join(word.to_bytes(4, "little") for word in words))


def off(of: Channel) -> Block:
    params = Block.of("NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS", bDisable=1, numChannels=1)
    params.put("hClientList", of.rm.client, 0)
    params.put("hChannelList", of.handle, 0)
    return params


@pytest.mark.parametrize("managed", [False, True])
def test_channels_are_not_switched_off_as_for_new_keys(neighbour: Channel, managed: bool) -> None:
    code = as_tenant(lambda own: own.control(own.subdevice, KEYS, off_by_keys(neighbour)), managed=managed)
    until(neighbour.moves)
    assert code == REFUSED
    legacy = as_tenant(lambda own: own.control(own.subdevice, KEYS | 0x8000, off_by_keys(neighbour)), managed=managed)
    until(neighbour.moves)
    assert legacy == REFUSED
    own = neighbour.rm
    assert own.control(own.subdevice, KEYS, off_by_keys(neighbour)) == 0, "an administrator's right"
    assert neighbour.disable(False) == 0


@pytest.mark.parametrize("group", [0x1234, 0x2081, 0x2080, 0x0000, 0xA06C])
def test_a_raw_interface_takes_every_class_for_its_own(neighbour: Channel, group: int) -> None:
    def raw(own: Rm) -> int:
        handle = own.handle()
        assert own.alloc("NV2081_BINAPI", own.subdevice, handle, bytearray(4))[0] == 0
        return own.control(handle, group << 16 | DISABLE & 0xFFFF, off(neighbour))

    code = as_tenant(raw)
    until(neighbour.moves)
    assert code == REFUSED


def test_a_client_has_so_many_raw_interfaces(rm: Rm) -> None:
    """Each control of anybody is looked for among all that there are."""

    def made(own: Rm) -> int:
        def one() -> tuple[int, int]:
            handle = own.handle()
            return own.alloc("NV2081_BINAPI", own.subdevice, handle, bytearray(4))[0], handle

        found = [one() for _ in range(65)]
        if found[-1][0] != status("NV_ERR_NO_MEMORY") or own.free(found[0][1]) or one()[0]:
            return -1
        return [code for code, _ in found].count(0)

    assert as_tenant(made) == 64


def asks(own: Rm, channel: Channel, door: str) -> int:
    """FORCE_BUSY_CHECK of its own channel with a huge time limit."""
    if door == "control" or door == "legacy":
        params = Block.of(
            "NV0080_CTRL_FIFO_IDLE_CHANNELS_PARAMS", numChannels=1, flags=FORCE_BUSY_CHECK, timeout=HUGE_US
        )
        params.put("hChannels", channel.handle, 0)
        return own.control(own.device, number(IDLE) | (0x8000 if door == "legacy" else 0), params)
    clients, channels = bytearray(own.client.to_bytes(4, "little")), bytearray(channel.handle.to_bytes(4, "little"))
    single = door == "escape of one"
    block = Block.of(
        "NVOS30_PARAMETERS", hClient=own.client, hDevice=own.device, hChannel=channel.handle,
        flags=FORCE_BUSY_CHECK | (1 << 4 if single else 0), timeout=HUGE_US,
    )  # fmt: skip
    if not single:
        block.put("numChannels", 1)
        block.put("phClients", address(clients))
        block.put("phChannels", address(channels))
    escape(own.ctl, "NV_ESC_RM_IDLE_CHANNELS", block)
    return block.get("status")


@pytest.mark.parametrize("door", ["control", "legacy", "escape", "escape of one"])
def test_waiting_for_idle_channels_is_short(door: str) -> None:
    def wait(own: Rm) -> int:
        channel, bell = Channel(own), Doorbell(own)
        assert channel.schedule() == 0
        channel.submit(bell, ENDLESS)
        until(channel.moves)
        took = []
        for _ in range(TRIES):
            begin = time.monotonic()
            code = asks(own, channel, door)
            took.append(time.monotonic() - begin)
            assert code == status("NV_ERR_TIMEOUT"), code
        channel.release()
        return int(min(took) > HUGE_US / 2e6)

    assert as_tenant(wait) == 0


@pytest.mark.parametrize(("managed", "code"), [(False, REFUSED), (True, REFUSED)])
def test_lists_behind_pointers_are_not_waited_for(managed: bool, code: int) -> None:
    assert as_tenant(lambda own: own.control(own.client, 0x283, bytearray(48)), managed=managed) == code


@pytest.mark.parametrize(
    "command",
    [
        0x20801103,
        0x20801208,
        0x20801209,
        0x2080123A,
        0x20801102,
        0x208F0506,
        0x208001A9,
        0x208001AA,
        0x208001AD,
        0x83DE031D,
        0x801805,
        0x410116,
        0xB0CC010A,
        0xB06F0102,
        0x20801709,
    ],
)
def test_who_is_managed_steers_nothing_by_these(command: int) -> None:
    sizes = {0x20801103: 132, 0x20801209: 40, 0x2080123A: 16}
    params = bytearray(sizes.get(command, 24))
    assert as_tenant(lambda own: own.control(own.subdevice, command, params), managed=True) == REFUSED
    assert as_tenant(lambda own: own.control(own.subdevice, command, params)) != REFUSED, "the driver's own answer"


# size of the parameters, which word names a client
NAMING = {0x20801208: (24, 0), 0x20801209: (40, 0), 0x2080123A: (16, 0), 0x208001A6: (1832, 0)}


@pytest.mark.parametrize("managed", [False, True])
@pytest.mark.parametrize("command", NAMING)
def test_nobody_names_a_neighbour_in_rare_controls(rm: Rm, command: int, managed: bool) -> None:
    """The client handle counts up, so a neighbour's is guessed."""

    def name(own: Rm) -> int:
        size, at = NAMING[command]
        params = bytearray(size)
        params[4 * at : 4 * at + 4] = rm.client.to_bytes(4, "little")
        return own.control(own.subdevice, command, params)

    assert as_tenant(name, managed=managed) == REFUSED


def test_nobody_asks_for_rights_to_a_neighbours_objects(rm: Rm) -> None:
    def ask(own: Rm) -> int:
        params = Block.of("NV0000_CTRL_CLIENT_GET_ACCESS_RIGHTS_PARAMS", hObject=rm.device, hClient=rm.client)
        return own.control(own.client, 0xD03, params)

    assert as_tenant(ask) == REFUSED


@pytest.mark.parametrize(("command", "size"), [(0x2080121C, 24), (0xB04, 16012)])
def test_who_is_managed_is_not_told_who_else_is_there(command: int, size: int) -> None:
    def ask(own: Rm) -> int:
        return own.control(own.subdevice if command >> 16 else own.client, command, bytearray(size))

    assert as_tenant(ask, managed=True) == REFUSED
    assert as_tenant(ask) != REFUSED, "the driver's own answer"
