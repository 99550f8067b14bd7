# SPDX-License-Identifier: Apache-2.0
"""pause: how long it takes to stop and to resume a running kernel, and whether a long pause harms its results.

Two clocks: what the daemon says its driver calls took, and when the kernel's progress counter really stopped and
went on, sampled by the program itself without rest (its own longest time between two looks is reported).
"""

from __future__ import annotations

import random
import time

from detshare.tools.bench.catalog import kernels
from detshare.tools.bench.process import Program, ProgramError
from detshare.tools.bench.session import Session
from detshare.tools.bench.stats import percentile

GAP_US = 2000.0


def cycles(session: Session, endless: Program) -> None:
    """Pause and resume the endless kernel over and over."""
    count = 30 if session.options.quick else 120
    choose = random.Random(session.options.seed)
    driver: dict[str, list[float]] = {"pause": [], "resume": []}
    real: dict[str, list[float]] = {"pause": [], "resume": []}
    missed = 0
    for _ in range(count):
        for verb, event in (("pause", "stopped"), ("resume", "advanced")):
            asked = time.monotonic()
            answer = session.steer.verb(verb, endless.pid)
            driver[verb].append(float(answer["seconds"]) * 1e6)
            try:
                line = endless.wait_for(event, 2.0, asked - 0.001)  # `stopped` names the last advance
            except ProgramError:
                missed += 1
            else:
                real[verb].append(max(0.0, line["t"] - asked) * 1e6)
                session.mark(verb, asked=round(asked, 6), seconds=answer["seconds"], seen=line["t"])
            time.sleep(choose.uniform(0.01, 0.05))
    session.row("pause and resume cycles", count, "cycles", target=">= 30" if session.options.quick else ">= 100")
    session.row("pauses or resumes without effect on the counter within 2 s", missed, "times", target="== 0")
    for verb, said in (("pause", "stops"), ("resume", "goes on")):
        for percent in (50, 99):
            session.row(f"{verb}: driver calls, p{percent}", percentile(driver[verb], percent), "us")
            if real[verb]:
                what = f"{verb}: command to the daemon until the kernel {said}, p{percent}"
                session.row(what, percentile(real[verb], percent), "us")
    looks = [ln["sample_us"] for ln in endless.lines("window")]
    session.row("counter: longest time between two looks, p50 of windows", percentile(looks, 50), "us", target="<= 100")
    session.row("counter: longest time between two looks, p99 of windows", percentile(looks, 99), "us")


def long_pause(session: Session) -> None:
    """A program in the middle of checked work is paused for a minute and goes on."""
    seconds = 5 if session.options.quick else 60
    [verify] = session.start_all({"verify": kernels("verify", "--us", 2000)})
    session.steer.adopted(verify.pid)
    verify.wait_for("window", 10.0)
    session.steer.ctl("pause", str(verify.pid))
    paused = time.monotonic()
    time.sleep(seconds)
    moved = verify.lines("window", paused + 0.1, "t0")
    shown = session.steer.program(verify.pid)
    session.row(f"paused for {seconds} s: windows that ended meanwhile", len(moved), "windows", target="== 0")
    session.row("paused: ps says so", float(shown is not None and shown["state"] == "paused"), "", target="== 1")
    session.steer.ctl("resume", str(verify.pid))
    resumed = time.monotonic()
    after = verify.wait_for("window", 10.0, resumed, "t0")
    session.row(
        f"after {seconds} s of pause: kernels per second", after["items"] / (after["t1"] - after["t0"]), "kernels/s"
    )
    time.sleep(1.0)
    summary = verify.stop()
    session.row(f"after {seconds} s of pause: wrong answers", int(summary["wrong"]), "kernels", target="== 0")
    session.row(f"after {seconds} s of pause: right answers", int(summary["correct"]), "kernels", target=">= 1")


def run(session: Session) -> None:
    """The whole experiment."""
    session.manage()
    [endless] = session.start_all({"endless": kernels("endless", "--gap-us", GAP_US)})
    session.steer.adopted(endless.pid)
    cycles(session, endless)
    session.finish(endless)
    long_pause(session)
