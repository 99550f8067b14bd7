# SPDX-License-Identifier: Apache-2.0
"""Backend root with the observer `objects` as its listener: what it hears beside what others know, and how soon."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from detshare.ctl.abi.versions import Abi, for_version
from detshare.ctl.backends.root.adopt import Adopter
from detshare.ctl.core.snapshot import Level
from detshare.ctl.rm.client import channel_classes
from detshare.ctl.rm.kernel import KernelDriver
from detshare.ebpf.objects import ObjectTracer
from detshare.tools.bench.births import SLICE_US, Daemon, eventually
from detshare.tools.bench.vm.inside import guest

STEERED = (SLICE_US, Level.LOW)
_GPU = Path("/sys/kernel/debug/nvsim/gpu0")
_MODULE = Path("/sys/kernel/debug/detshare/objects")


def _program() -> tuple[subprocess.Popen[str], str]:
    """One with a context that does next to nothing, and the line by which it said that it has it."""
    process = subprocess.Popen(
        ["tenant", "--period-us", "1000000"], executable=guest.client("nvkick"), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, process.stdout.readline()


def _need(true: Callable[[], bool], what: str, seconds: float = 120.0) -> None:
    if not eventually(true, seconds):
        raise guest.GuestError(f"within {seconds:g} s: {what}")


def _groups(tracer: ObjectTracer, abi: Abi) -> dict[tuple[int, int], Any]:
    """(client, TSG) -> (descriptor, channels, context shares) as they were heard of."""
    group, share = abi.klass("KEPLER_CHANNEL_GROUP_A"), abi.klass("FERMI_CONTEXT_SHARE_A")
    channels = channel_classes(abi)
    found = {}
    for client in tracer.world.clients.values():
        for handle, each in client.objects.items():
            if each.number == group:
                below = [(h, o.number) for h, o in client.objects.items() if o.parent == handle]
                found[client.handle, handle] = (
                    client.fd,
                    sorted(h for h, number in below if number in channels),
                    sorted(h for h, number in below if number == share),
                )
    return found


def agreement(rounds: int) -> None:
    """Births and deaths of programs, and after each what everybody knows of."""
    driver = KernelDriver()
    abi = for_version(driver.version)
    tracer, adopter = ObjectTracer(abi), Adopter(driver, abi)
    running: list[subprocess.Popen[str]] = []
    for number in range(rounds):
        if len(running) < 3 or number % 2:
            running.append(_program()[0])
        else:
            guest.stop(running.pop(0))
        tracer.drain()
        heard = _groups(tracer, abi)
        adopted = adopter.refresh(driver.openers(), driver.counts()).values()
        asked = {
            (tsg.client, tsg.handle): (tsg.fd, sorted(tsg.channels), sorted(tsg.context_shares))
            for adoption in adopted
            for tsg in adoption.tsgs
        }
        # the adopter has a client of its own, which the tracer leaves out
        clients = {*tracer.world.clients}
        objects = sum(len(client.objects) for client in tracer.world.clients.values())
        guest.say(
            event="agreement",
            round=number,
            programs=len(running),
            groups=len(heard),
            differ=len({key for key in heard.keys() | asked.keys() if heard.get(key) != asked.get(key)}),
            objects=objects,
            driver=int((_GPU / "objects").read_text()),
            module=int(_MODULE.read_text()) - len(clients) - 1,
        )
    guest.stop(*running)
    guest.say(event="heard", lost=tracer.trouble().lost, notes=tracer.notes())
    tracer.close()
    driver.close()


def _steering(client: int, tsg: int) -> tuple[int, int] | None:
    """(slice in microseconds, level) of a TSG as the simulated driver has them; None where it has it no more."""
    lines = (_GPU / "tsgs").read_text().splitlines()
    names = lines[0].split()
    places = names.index("slice_us"), names.index("level")
    found = (line.split() for line in lines[1:] if [int(word, 16) for word in line.split()[:2]] == [client, tsg])
    return next(((int(words[places[0]]), int(words[places[1]])) for words in found), None)


LAST: Final = 3000
"""characters that are kept of a daemon's log where something is wrong"""


def births(programs: int, observers: bool, interval: float) -> None:
    """Programs one after another under a detshared that looks so often; when the driver had each with its class.

    `ms` is from before the program asked for its TSG until the driver's table was read with the class in it: no less
    than it took. `waited_ms` begins when its context was made."""
    with (
        tempfile.TemporaryDirectory() as made,
        Daemon(Path(made), "tenant *", observers=observers, interval=interval) as daemon,
    ):
        if not daemon.ready(120.0):
            raise guest.GuestError(f"detshared is not ready: {daemon.text}")
        for number in range(programs):
            tenant, line = _program()
            begun, ready = time.monotonic_ns(), json.loads(line)
            where = (ready["client"], ready["tsg"])
            if not eventually(lambda where=where: _steering(*where) == STEERED, 120.0):  # type: ignore[misc]
                told = f"{_steering(*where)} after 120 s, observers {observers}; the daemon: {daemon.text[-LAST:]}"
                raise guest.GuestError(f"program {number} has no class but {told}")
            seen = time.monotonic_ns()
            # the driver's table says when, whoever set it; the log tells of the steps, where it was set early
            if not daemon.tells_of(tenant.pid, 120.0):
                raise guest.GuestError("detshared does not tell of a class that the driver has")
            legs = daemon.legs(tenant.pid)
            guest.say(
                event="birth",
                number=number,
                observers=observers,
                waited_ms=(seen - begun) / 1e6,
                ms=(seen - ready["tsg_asked_ns"]) / 1e6,
                early=bool(legs),
                legs=legs,
            )
            guest.stop(tenant)
            _need(lambda where=where: _steering(*where) is None, "the driver has forgotten the program")  # type: ignore[misc]
        status = daemon.end()
        guest.say(event="ended", observers=observers, status=status, log=daemon.text[-LAST:] if status else "")


def _body() -> None:
    parser = argparse.ArgumentParser(description=__doc__, epilog="example: root_backend --amount 20")
    parser.add_argument("--amount", type=int, default=20)
    amount = parser.parse_args().amount
    os.environ.setdefault("DETSHARE_EBPF", "libbpf")
    agreement(amount)
    guest.unload()
    births(amount, True, 60.0)
    births(amount, False, 0.25)


if __name__ == "__main__":
    guest.main(_body)
