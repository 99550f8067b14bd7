# SPDX-License-Identifier: Apache-2.0
"""Backend root on a real GPU, without module and preload, looking once a minute: how soon a program has its class."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from detshare.ctl.adopt import Adopter
from detshare.ctl.rm.abi import for_version
from detshare.ctl.rm.kernel import KernelDriver
from detshare.ebpf.errors import EbpfError
from detshare.ebpf.latency import LatencyTracer
from detshare.tools.bench.catalog import decode
from detshare.tools.bench.ebpf import native
from detshare.tools.bench.ebpf.part import Line, Part, PartError, main, of, say
from detshare.tools.bench.ebpf.told import Told
from detshare.tools.bench.ebpf.witness import Witness
from detshare.tools.bench.stats import percentile
from detshare.tools.results import Row

CLASS, SLICE_US = "low", 50
_WITNESSED = 3
"""every which birth has a witness, whose questions delay it"""
WITHIN_MS = 10.0
_CONFIG = f"""
[daemon]
backend = "root"
interval = 60.0
observers = true
log_level = "debug"
[daemon.classes]
"*launcher*" = "{CLASS}"
"*decode.py*" = "{CLASS}"
"""
_SAID = r"change {pid}: a new context .* ([\d.]+) ms after"


class Daemon:
    """A detshared of its own; PartError where it does not come up. Use as a context."""

    def __init__(self, folder: Path) -> None:
        config, self.log = folder / "detshare.toml", folder / "log"
        config.write_text(_CONFIG)
        words = [sys.executable, "-P", "-m", "detshare.ctl.detshared", "--config", str(config)]
        with self.log.open("w") as writing:
            self._process = subprocess.Popen([*words, "--run-dir", str(folder / "run")], stderr=writing)
        if not eventually(lambda: "ready on" in self.text or self._process.poll() is not None, 60.0):
            self._process.kill()
            raise PartError(f"detshared is not ready: {self.text[-900:]}")
        if self._process.poll() is not None:
            raise PartError(f"detshared ended: {self.text[-900:]}")

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def text(self) -> str:
        """Its log so far."""
        return self.log.read_text(errors="replace")

    def told(self, pid: int, seconds: float) -> float | None:
        """Milliseconds from the first TSG of a program to its class, once it says so."""
        said = re.compile(_SAID.format(pid=pid))
        eventually(lambda: said.search(self.text) is not None, seconds)
        found = said.search(self.text)
        return float(found[1]) if found else None

    def legs(self, pid: int) -> dict[str, float]:
        """The way to a class of one program: step -> ms after its first TSG was made."""
        said = re.search(rf"PID {pid}, ms after its first TSG was made: (.*)", self.text)
        steps = (step.rpartition(" ") for step in said[1].split(", ")) if said else ()
        return {what: float(ms) for what, _, ms in steps}

    def end(self) -> int:
        """Its status."""
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


def eventually(true: Callable[[], bool], seconds: float) -> bool:
    """Whether it became true within that time."""
    until = time.monotonic() + seconds
    while not true():
        if time.monotonic() > until:
            return False
        time.sleep(0.002)
    return True


def slices(pid: int) -> list[dict[str, Any]]:
    """Compute TSGs of a program as a backend of our own asks for them."""
    driver = KernelDriver()
    try:
        holders = [each for each in driver.holders() if each.id.pid == pid]
        adopted = Adopter(driver, for_version(driver.version)).refresh(holders, driver.resource_count())
        return [
            {"client": tsg.client, "tsg": tsg.handle, "slice_us": tsg.slice_us, "shares": len(tsg.context_shares)}
            for adoption in adopted.values()
            for tsg in adoption.tsgs
            if tsg.context_shares
        ]
    finally:
        driver.close()


def _births(kind: str, programs: int, argv: Sequence[str], ready_s: float) -> None:
    with tempfile.TemporaryDirectory() as made:
        daemon = Daemon(Path(made))
        try:
            for number in range(programs):
                witness = Witness(SLICE_US) if number % _WITNESSED == _WITNESSED - 1 else None
                with ExitStack() as stack:
                    if witness is not None:
                        stack.callback(witness.close)
                    program = stack.enter_context(Told(kind, argv))
                    if witness is not None:
                        witness.pid = program.pid
                    program.answer(ready_s, witness.poll if witness is not None else None)
                    ready = time.monotonic()
                    while witness is not None and not witness.done and time.monotonic() < ready + 2.0:
                        witness.poll()
                    ms = daemon.told(program.pid, 5.0)
                    time.sleep(0.05)
                    seen = slices(program.pid)
                    kept = eventually(
                        lambda pid=program.pid: all(each["slice_us"] == SLICE_US for each in slices(pid)), 3.0  # type: ignore[misc]
                    )
                    say(
                        "birth",
                        kind=kind,
                        number=number,
                        ms=ms,
                        legs=daemon.legs(program.pid),
                        witness=witness.found if witness is not None else None,
                        slices=seen,
                        kept=kept and bool(seen),
                        settled_s=round(time.monotonic() - ready, 3),
                    )
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
        [sys.executable, "-P", "-m", "detshare.ebpf.cli", "doctor", "--json"],
        capture_output=True, text=True, check=False, timeout=60,
    )
    say("doctor", status=done.returncode, text=done.stdout + done.stderr)
    try:
        tracer = LatencyTracer()
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
        times = [line["ms"] for line in births if line["ms"] is not None]
        alone = [line["ms"] for line in births if line["ms"] is not None and not line.get("witness")]
        seen = [line["witness"]["seen"] for line in births if "seen" in (line.get("witness") or ())]
        told = [line["legs"]["told"] for line in births if "told" in line.get("legs", ())]
        found.append(Row(f"{what}: given their class at birth", len(times), "programs", target=f"== {len(births)}"))
        kept = sum(bool(line["kept"]) for line in births)
        found.append(Row(f"{what}: whose compute TSG has the class's slice, by asking", kept, "programs",
                         target=f"== {len(births)}"))
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
        found.append(Row("daemons that ended well", sum(line["status"] == 0 for line in ended), "daemons",
                         target=f"== {len(ended)}"))
    for line in of(lines, "latency"):
        found.append(Row("probes on nvidia.ko's functions that this kernel refuses", len(line["notes"]), "reasons"))
    return found


if __name__ == "__main__":
    main(PARTS)
