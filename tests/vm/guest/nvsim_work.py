# SPDX-License-Identifier: Apache-2.0
"""Work for the simulated GPU from Python: channels with memory, kernels, doorbells, and what debugfs says of them."""

from __future__ import annotations

import mmap
import re
import struct
import time
from pathlib import Path

from tests.patience import comes, until
from tests.vm.guest.nvsim_rm import TRUTH, Block, Rm, escape, number
from tests.vm.guest.nvsim_tools import tsg, vas

_METHODS = (Path(__file__).resolve().parents[2] / "nvsim" / "methods.h").read_text()
SIM = {
    name: int(value, 0)
    for name, value in re.findall(r"^#define SIM_(\w+)\s+(0x[0-9a-f]+|\d+)(?:ull)?\b", _METHODS, re.MULTILINE)
}
"""the plain numbers of methods.h, without SIM_"""
ENDLESS = SIM["KERNEL_ENDLESS"]
MS = 1_000_000
DOORBELL_SIZE = SIM["USERMODE_SIZE"]
ENTRIES = 64
_FIXED = 1 << 15  # NVOS46_FLAGS_DMA_OFFSET_FIXED
_SLOT = 256
_AT_UNTIL, _AT_COUNT, _AT_GPFIFO, _AT_SEMAPHORE, _AT_PUSH = 0x800, 0x808, 0x1000, 0x2000, 0x3000
_SIZE = _AT_PUSH + ENTRIES * _SLOT


def table(name: str, gpu: int = 0) -> list[dict[str, str]]:
    """A debugfs file of lines with a heading: kicks, tsgs, touched, clients."""
    heading, *rows = (TRUTH / f"gpu{gpu}" / name).read_text().splitlines()
    return [dict(zip(heading.split(), row.split(), strict=True)) for row in rows]


def of(rm: Rm, name: str) -> list[dict[str, str]]:
    """The lines of a table that name a client."""
    return [row for row in table(name) if row["client"] == f"0x{rm.client:08x}"]


def order(name: str, value: int, gpu: int = 0) -> None:
    (TRUTH / f"gpu{gpu}" / name).write_text(str(value))


def usermode(rm: Rm, *, bar1: bool = False) -> int:
    handle = rm.handle()
    params = Block.of("NV_HOPPER_USERMODE_A_PARAMS", bBar1Mapping=int(bar1))
    assert rm.alloc("HOPPER_USERMODE_A", rm.subdevice, handle, params)[0] == 0
    return handle


def map_dma(rm: Rm, space: int, memory: int, length: int) -> tuple[int, int]:
    """(status, GPU address) of a mapping at an address below 1 TiB, where ring entries can point to."""
    block = Block.of(
        "NVOS46_PARAMETERS", hClient=rm.client, hDevice=rm.device, hDma=space, hMemory=memory, length=length
    )
    block.put("flags", _FIXED)
    block.put("dmaOffset", 0x2_0000_0000 + rm.handle() % 0x1000 * 0x20_0000)
    escape(rm.ctl, "NV_ESC_RM_MAP_MEMORY_DMA", block)
    return block.get("status"), block.get("dmaOffset")


class Doorbell:
    """A CPU mapping of a usermode object through a file of its own."""

    def __init__(self, rm: Rm, handle: int | None = None, *, fd: int | None = None) -> None:
        self.fd = rm.open("nvidia0") if fd is None else fd
        if fd is None:
            assert rm.map(usermode(rm) if handle is None else handle, DOORBELL_SIZE, self.fd) == 0
        self.at = mmap.mmap(self.fd, DOORBELL_SIZE)

    def kick(self, token: int) -> None:
        """Waits until the token before it was taken, as nv_ring() of the client programs does."""
        until(lambda: self.at[SIM["USERMODE_DOORBELL"] :][:4] == bytes(4))
        struct.pack_into("<I", self.at, SIM["USERMODE_DOORBELL"], token)

    def close(self) -> None:
        self.at.close()


class Channel:
    """A channel of a TSG, in a VA space of RM's own unless one is given, and work for it.

    twice: the memory of its USERD has a handle besides, by which the channel was made.
    """

    def __init__(
        self, rm: Rm, group: int | None = None, *, share: int = 0, space: int | None = None, twice: bool = False
    ) -> None:
        self.rm = rm
        self.space = vas(rm) if space is None else space
        self.group = tsg(rm, self.space) if group is None else group
        assert rm.memory(_SIZE, klass="NV01_MEMORY_SYSTEM")[0] == 0
        self.memory = self.words = rm.last
        if twice:
            self.words = rm.handle()
            assert rm.dup(rm.client, self.memory, self.words) == 0
        file = rm.open("nvidiactl")
        assert rm.map(self.memory, _SIZE, file) == 0
        self.block = mmap.mmap(file, _SIZE)
        code, self.base = map_dma(rm, self.space, self.memory, _SIZE)
        assert code == 0
        params = Block.of("NV_CHANNEL_ALLOC_PARAMS", gpFifoEntries=ENTRIES, gpFifoOffset=self.base + _AT_GPFIFO)
        params.put("hContextShare", share)
        params.put("hVASpace", 0 if share or group is None else self.space)
        params.put("hUserdMemory", self.words, 0)
        self.handle = rm.handle()
        assert rm.alloc("HOPPER_CHANNEL_GPFIFO_A", self.group, self.handle, params)[0] == 0
        token = Block.of("NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN_PARAMS")
        assert rm.control(self.handle, "NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN", token) == 0
        self.token = token.get("workSubmitToken")
        self.put = self.submitted = 0

    def compute(self) -> None:
        """The compute object, with which a graphics context comes into being."""
        params = Block.of("NV_GR_ALLOCATION_PARAMETERS")
        assert self.rm.alloc("HOPPER_COMPUTE_A", self.handle, self.rm.handle(), params)[0] == 0

    def schedule(self, on: bool = True) -> int:
        params = Block.of("NVA06F_CTRL_GPFIFO_SCHEDULE_PARAMS", bEnable=int(on))
        return self.rm.control(self.group, "NVA06C_CTRL_CMD_GPFIFO_SCHEDULE", params)

    def _methods(self, first: int, *words: int) -> bytes:
        header = SIM["PB_INC"] << 29 | len(words) << 16 | first >> 2
        return struct.pack(f"<{len(words) + 1}I", header, *words)

    def _address(self, at: int) -> tuple[int, int]:
        return (self.base + at) & 0xFFFFFFFF, (self.base + at) >> 32

    def queue(self, ns: int, sms: int = 132) -> int:
        """A kernel into the ring; an endless one runs until release(). Its number."""
        self.submitted += 1
        self.write(_AT_UNTIL, 0)
        endless = ns == ENDLESS
        push = self._methods(
            SIM["KERNEL_NS"], ns & 0xFFFFFFFF, ns >> 32, sms, *(self._address(_AT_UNTIL) if endless else (0, 0)), 0,
            *self._address(_AT_COUNT),
        )  # fmt: skip
        push += self._methods(SIM["KERNEL_LAUNCH"], 0)
        push += self.release_words(self.base + _AT_SEMAPHORE, self.submitted)
        self.entry(push)
        return self.submitted

    def release_words(self, va: int, payload: int) -> bytes:
        """Methods by which the channel stores a word to a GPU address."""
        return self._methods(SIM["SEM_ADDR_LO"], va & 0xFFFFFFFF, va >> 32, payload, 0, SIM["SEM_RELEASE"])

    def entry(self, push: bytes) -> None:
        at = _AT_PUSH + self.put * _SLOT
        assert len(push) <= _SLOT
        self.block[at : at + len(push)] = push
        va = self.base + at
        struct.pack_into(
            "<II", self.block, _AT_GPFIFO + 8 * self.put, va & ~3 & 0xFFFFFFFF, va >> 32 | len(push) // 4 << 10
        )
        self.put = (self.put + 1) % ENTRIES
        self.write(SIM["USERD_GP_PUT"], self.put)

    def submit(self, bell: Doorbell, ns: int, sms: int = 132) -> int:
        number_ = self.queue(ns, sms)
        bell.kick(self.token)
        return number_

    def read(self, at: int) -> int:
        return int(struct.unpack_from("<I", self.block, at)[0])

    def write(self, at: int, value: int) -> None:
        struct.pack_into("<I", self.block, at, value)

    @property
    def get(self) -> int:
        """GP_GET as the GPU wrote it to USERD."""
        return self.read(SIM["USERD_GP_GET"])

    @property
    def finished(self) -> int:
        return self.read(_AT_SEMAPHORE)

    @property
    def ran_ns(self) -> int:
        """Of the present kernel, its own time."""
        return int(struct.unpack_from("<Q", self.block, _AT_COUNT)[0])

    def release(self) -> None:
        self.write(_AT_UNTIL, 1)

    def wait(self, seconds: float | None = None) -> bool:
        """Whether all that was submitted finished, in so many seconds; None: as long as this machine needs for it."""
        if seconds is None:
            return comes(lambda: self.finished == self.submitted)
        end = time.monotonic() + seconds
        while not (done := self.finished == self.submitted) and time.monotonic() < end:
            time.sleep(0.002)
        return done

    def moves(self, seconds: float = 0.03) -> bool:
        """Whether its kernel makes progress."""
        before = self.ran_ns
        time.sleep(seconds)
        return self.ran_ns != before

    def row(self) -> dict[str, str]:
        """Its TSG in debugfs."""
        ours = (f"0x{self.rm.client:08x}", f"0x{self.group:08x}")
        return next(row for row in table("tsgs") if (row["client"], row["handle"]) == ours)

    def disable(self, off: bool, *, by: Rm | None = None) -> int:
        """FIFO_DISABLE_CHANNELS on this channel, by any client's subdevice."""
        by = by or self.rm
        params = Block.of("NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS", bDisable=int(off), numChannels=1)
        params.put("hClientList", self.rm.client, 0)
        params.put("hChannelList", self.handle, 0)
        return by.control(by.subdevice, number("NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS"), params)

    def close(self) -> None:
        self.block.close()
