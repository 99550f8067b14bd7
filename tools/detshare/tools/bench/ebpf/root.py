# SPDX-License-Identifier: Apache-2.0
"""Backend root on a real GPU, without module and preload, looking once a minute: how soon a program has its class."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from detshare.ctl.abi.versions import for_version
from detshare.ctl.backends.root.adopt import Adopter
from detshare.ctl.netlink import genl
from detshare.ctl.rm.kernel import KernelDriver
from detshare.ebpf.errors import EbpfError
from detshare.ebpf.latency import LatencyTracer
from detshare.tools.bench.births import SLICE_US, Daemon, eventually
from detshare.tools.bench.catalog import decode
from detshare.tools.bench.ebpf import native
from detshare.tools.bench.ebpf.part import Line, Part, PartError, main, of, say
from detshare.tools.bench.ebpf.told import Told
from detshare.tools.bench.ebpf.witness import Witness
from detshare.tools.bench.stats import percentile
from detshare.tools.results import Row

COMMANDS = ("*launcher*", "*decode.py*")
_WITNESSED = 3
"""every which birth has a witness, whose questions delay it"""
WITHIN_MS = 10.0
LATE_MS = 500
"""no program may be ready for longer and not have its class, whoever gives it: a look comes once a minute. To ask for a
program's slices takes some 100 ms by itself"""


def slices(pid: int) -> list[dict[str, Any]]:
    """Compute TSGs of a program as a backend of our own asks for them."""
    driver = KernelDriver()
    try:
        openers = [each for each in driver.openers() if each.id.pid == pid]
        adopted = Adopter(driver, for_version(driver.version)).refresh(openers, driver.counts())
        return [
            {"client": tsg.client, "tsg": tsg.handle, "slice_us": tsg.slice_us, "shares": len(tsg.context_shares)}
            for adoption in adopted.values()
            for tsg in adoption.tsgs
            if tsg.context_shares
        ]
    finally:
        driver.close()


def steered(seen: list[dict[str, Any]]) -> bool:
    """Whether there is a compute TSG, and all have the class's slice. A level cannot be read back on a GPU."""
    return bool(seen) and all(each["slice_us"] == SLICE_US for each in seen)


def _birth(kind: str, number: int, daemon: Daemon, argv: Sequence[str], ready_s: float) -> None:
    witness = Witness(SLICE_US) if number % _WITNESSED == _WITNESSED - 1 else None
    with ExitStack() as stack:
        if witness is not None:
            stack.callback(witness.close)
        program = stack.enter_context(Told(kind, argv))
        if witness is not None:
            witness.pid = program.pid
        program.answer(ready_s, witness.poll if witness is not None else None)
        ready = time.monotonic()
        # who found no TSG by now will see nothing more
        while witness is not None and witness.found and not witness.done and time.monotonic() < ready + 2.0:
            witness.poll()
        # the driver says whether it has its class, whoever set it; the log how long that took, where that was early
        had = eventually(lambda: steered(slices(program.pid)), 3.0)
        had_ms = (time.monotonic() - ready) * 1e3 if had else None
        told = daemon.tells_of(program.pid, 5.0)
        legs = daemon.legs(program.pid)
        time.sleep(0.05)
        seen = slices(program.pid)
        say(
            "birth",
            kind=kind,
            number=number,
            had_ms=had_ms,
            told=told,
            early=bool(legs),
            ms=legs.get("set"),
            legs=legs,
            witness=witness.found if witness is not None else None,
            slices=seen,
            kept=steered(seen),
        )


def _births(kind: str, programs: int, argv: Sequence[str], ready_s: float) -> None:
    with tempfile.TemporaryDirectory() as made, Daemon(Path(made), *COMMANDS) as daemon:
        try:
            if not daemon.ready(60.0):
                raise PartError(f"detshared is not ready: {daemon.text[-900:]}")
            for number in range(programs):
                _birth(kind, number, daemon, argv, ready_s)
        finally:
            status = daemon.end()
            say("daemon", kind=kind, status=status, log=daemon.text[-12000:])


def light(quick: bool) -> None:
    """Programs by the driver's interface."""
    _births("light", 5 if quick else 30, [native.path("launcher")], 60)


def torch(quick: bool) -> None:
    """PyTorch."""
    argv = decode(20, "--layers", 2, "--seconds", 4)
    _births("PyTorch", 2 if quick else 6, argv, 120)


def refused(quick: bool) -> None:
    """What of the observers this kernel refuses, by their own words."""
    del quick
    os.environ.setdefault("DETSHARE_EBPF", "libbpf")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "detshare.ctl.trace.cli", "doctor", "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    say("doctor", status=done.returncode, text=done.stdout + done.stderr)
    try:
        tracer = LatencyTracer(partial(getattr, genl))
        say("latency", how=tracer.how, notes=tracer.notes())
        tracer.close()
    except EbpfError as error:
        say("latency", how="", notes=[str(error)])


PARTS = {
    "refused": Part(refused, 60),
    "light": Part(light, 150),
    "torch": Part(torch, 240),
}


def rows(lines: list[Line]) -> list[Row]:
    """Figures of what was measured."""
    found: list[Row] = []
    for kind, what in (("light", "programs by the driver's interface"), ("PyTorch", "PyTorch programs")):
        births = of(lines, "birth", kind=kind)
        if not births:
            continue
        alone = [line["ms"] for line in births if line["ms"] is not None and not line.get("witness")]
        seen = [line["witness"]["seen"] for line in births if "seen" in (line.get("witness") or ())]
        told = [line["legs"]["told"] for line in births if "told" in line.get("legs", ())]
        soon = sum(line["had_ms"] is not None and line["had_ms"] <= LATE_MS for line in births)
        text = f"{what}: whose compute TSG had the class's slice within {LATE_MS} ms of their being ready, by asking"
        found.append(Row(text, soon, "programs", target=f"== {len(births)}"))
        first = sum(line["had_ms"] is not None and not line["early"] for line in births)
        found.append(Row(f"{what}: that a look gave it before it was heard of", first, "programs"))
        kept = sum(line["kept"] for line in births)
        found.append(
            Row(
                f"{what}: whose compute TSG has it when it is asked again", kept, "programs", target=f"== {len(births)}"
            )
        )
        if alone:
            found += [
                Row(f"{what}: first TSG to class, median", median(alone), "ms", target=f"<= {WITHIN_MS:g}"),
                Row(f"{what}: first TSG to class, p90", percentile(alone, 90), "ms"),
                Row(f"{what}: first TSG to class, longest", max(alone), "ms"),
            ]
        if told:
            text = f"{what}: of it until the program made what tells that the TSG is for compute, median"
            found.append(Row(text, median(told), "ms"))
        if seen:
            text = f"{what}: first TSG to class as another process reads the slice back, median of {len(seen)}"
            found.append(Row(text, median(seen), "ms"))
    if ended := of(lines, "daemon"):
        found.append(
            Row(
                "daemons that ended well",
                sum(line["status"] == 0 for line in ended),
                "daemons",
                target=f"== {len(ended)}",
            )
        )
    for line in of(lines, "latency"):
        found.append(Row("probes on nvidia.ko's functions that this kernel refuses", len(line["notes"]), "reasons"))
    return found


if __name__ == "__main__":
    main(PARTS)
