# SPDX-License-Identifier: Apache-2.0
"""Which policy decides for which GPU, and for which program: at any time just one for each.

A program that is on several GPUs is its policy's that decides for the lowest-numbered GPU that it computes on. On GPUs
of other policies it is not seen, so no two policies ever act on one program.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from detshare.ctl.checkpoint.gpumap import chosen
from detshare.ctl.core.driver import Gpu
from detshare.ctl.core.errors import ControlError
from detshare.ctl.core.snapshot import Program
from detshare.ctl.policy.seat import Seat

__all__ = ["Seats", "row_gpu", "row_key"]

_KEY = re.compile(r"[^@]+@([0-9]+)")


def row_key(klass: str, gpu: int | None) -> str:
    """What a ledger calls the row of a class: "low", or "low@1" of one GPU alone; no class has an @ in its name."""
    return klass if gpu is None else f"{klass}@{gpu}"


def row_gpu(key: str) -> int | None:
    """The number of the GPU that a row is of; None: of all."""
    found = _KEY.fullmatch(key)
    return None if found is None else int(found[1])


class Seats:
    """For the engine's thread; others may read."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self.default = Seat(limit_s=limit_s)
        self.own: dict[str, Seat] = {}
        """what `Seat.gpu` says -> it"""
        self._gpus: tuple[Gpu, ...] = ()
        """as the last look had them"""
        self._numbers: dict[str, int] = {}

    def __iter__(self) -> Iterator[Seat]:
        yield self.default
        yield from tuple(self.own.values())

    def of(self, gpu: str) -> Seat:
        """Who decides for a GPU, by its UUID."""
        return self.own.get(gpu, self.default)

    def mine(self, program: Program) -> tuple[str, ...]:
        """Of its GPUs those on which its policy sees it."""
        gpus = program.gpus
        if not self.own or len(gpus) < 2:
            return gpus
        far = len(self._numbers)
        seat = self.of(min(gpus, key=lambda gpu: (self._numbers.get(gpu, far), gpu)))
        return tuple(gpu for gpu in gpus if self.of(gpu) is seat)

    def has_row(self, seat: Seat, key: str) -> bool:
        """Whether a row in the ledger is a seat's: of one GPU that has no policy of its own it is the default's."""
        number, owner = row_gpu(key), self.default
        if number is not None:
            owner = next((each for each in tuple(self.own.values()) if each.number == number), owner)
        return owner is seat

    def see(self, gpus: Sequence[Gpu]) -> list[Seat]:
        """The GPUs of a look: seats whose GPU is there from now on, and was not."""
        self._gpus = tuple(gpus)
        self._numbers = {gpu.uuid: gpu.minor for gpu in gpus}
        found = []
        for key, seat in tuple(self.own.items()):
            gpu = chosen(gpus, key)
            if gpu is not None and seat.number is None and (gpu.uuid == key or gpu.uuid not in self.own):
                del self.own[key]
                seat.gpu = gpu.uuid
                self.own[gpu.uuid] = seat
                found.append(seat)
            seat.number = None if gpu is None else gpu.minor
        return found

    def add(self, key: str) -> Seat:
        """A seat of its own for a GPU."""
        seat = self.own[key] = Seat(key, self._numbers.get(key), self._limit_s)
        return seat

    def name_of(self, text: str) -> str:
        """What a seat of that GPU is called: its UUID, where it is there; else as it was given."""
        gpu = chosen(self._gpus, text)
        return text if gpu is None else gpu.uuid

    def find(self, asked: str, text: str, there: bool = False) -> str:
        """The same of a GPU that is there, or has a seat and need not be `there`. ControlError: none is such."""
        if text.startswith("MIG-"):
            following = "give the number of the GPU that it was cut of: its instances share one policy"
            raise ControlError(asked, "a policy is of a whole GPU, not of a MIG instance", following, usage=True)
        found = self.name_of(text)
        if found in self._numbers or (found in self.own and not there):
            return found
        absent = [key for key in self.own if text and key.startswith(text) and not there]
        if len(absent) == 1:
            return absent[0]
        listed = ", ".join(f"{each.minor} ({each.uuid})" for each in self._gpus) or "none"
        stopped = f"there is no GPU {text[:60]!r}; there are {listed}"
        raise ControlError(asked, stopped, "see: detshare-ctl ps", usage=True)
