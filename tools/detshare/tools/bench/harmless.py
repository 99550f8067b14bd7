# SPDX-License-Identifier: Apache-2.0
"""harmless: steering changes no bit of a program's output, costs nothing on launches, and dies without a trace."""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from pathlib import Path

from detshare.tools.bench.catalog import decode, kernels
from detshare.tools.bench.process import Program
from detshare.tools.bench.session import Session
from detshare.tools.bench.stats import percentile, spread
from detshare.tools.bench.steer import SteerError

CALM = {True: 0.3, False: 1.0}
"""seconds without a standstill until a program counts as running, by whether it stood after the kill"""
LEVELS = ("low", "medium", "high")
LOOP_SETTLE = 4.0
"""seconds from a daemon's start to a slot of the launch loop: adoption is over, what stays is the daily look"""
GAP_US = 5000.0
"""a standstill of the endless kernel that is longer than this is a pause"""


def shake(session: Session, choose: random.Random, programs: list[Program], changes: int) -> dict[str, int]:
    """``changes`` random changes of each program, which ends resumed; how many of each kind."""
    done = {"slice": 0, "level": 0, "pause": 0, "resume": 0}
    paused: dict[int, bool] = {}
    left = {program.pid: changes for program in programs}
    while left:
        pid = choose.choice(list(left))
        kind = "resume" if paused.get(pid) else choose.choice(("slice", "slice", "level", "pause"))
        level = choose.choice(LEVELS)
        slice_us = int(20 * 10 ** choose.uniform(0, 4.0))  # 20 us to 200 ms
        match kind:
            case "slice":
                session.steer.verb("set-slice", pid, slice_us=slice_us)
            case "level":
                session.steer.verb("set-slice", pid, slice_us=slice_us, level=level)
            case _:
                session.steer.verb(kind, pid)
                paused[pid] = kind == "pause"
        session.mark("change", pid=pid, kind=kind, slice_us=slice_us, level=level)
        done[kind] += 1
        left[pid] -= 1
        if left[pid] <= 0 and not paused.get(pid):
            del left[pid]
        time.sleep(choose.uniform(0.0, 0.02))
    return done


def bits(session: Session) -> None:
    """Digests of decode and answers of integer kernels: alone, and under random changes beside a saturating program."""
    changes = 250 if session.options.quick else 1000
    iterations, _us = session.calibrate(687)
    [lc] = session.start_all({"decode digest": decode(0, "--digest", "--tokens", 32)})
    until = time.monotonic() + (4 if session.options.quick else 10)
    while time.monotonic() < until or len(lc.lines("digest")) < 3:
        lc.wait_for("digest", 60.0, time.monotonic())
    alone = [ln["sha256"] for ln in lc.lines("digest")]
    session.manage()
    others = session.start_all(
        {
            "verify": kernels("verify", "--iterations", iterations),
            "load: kernels": kernels("saturate", "--iterations", iterations),
        }
    )
    verify = others[0]
    for program in (lc, *others):
        session.steer.adopted(program.pid)
    begin = time.monotonic()
    done = shake(session, random.Random(session.options.seed), [lc, verify], changes)
    for program in (lc, verify):
        session.steer.release(program.pid)
    end = time.monotonic()
    lc.wait_for("digest", 60.0, end)  # the repeat that the last change fell into
    under = [ln["sha256"] for ln in lc.lines("digest") if ln["t"] > begin]
    summary = verify.stop()
    session.finish(others[1], lc)
    session.row("decode: digests taken alone", len(alone), "digests", target=">= 3")
    session.row("decode: digests taken under changes", len(under), "digests", target=">= 3")
    session.row(
        "decode: digests alone that differ from the first",
        sum(one != alone[0] for one in alone),
        "digests",
        target="== 0",
    )
    session.row(
        "decode: digests under changes that differ", sum(one != alone[0] for one in under), "digests", target="== 0"
    )
    session.row("changes made to both programs", sum(done.values()), "changes", 2 * changes, ">= 1 x baseline")
    for kind, count in done.items():
        session.row(f"changes made: {kind}", count, "changes")
    session.row("changes: time they took", end - begin, "s")
    session.row("verify: wrong answers under changes", int(summary["wrong"]), "kernels", target="== 0")
    session.row("verify: right answers under changes", int(summary["correct"]), "kernels", target=">= 1")


def pin(pid: int, cpu: int) -> None:
    """All threads of ``pid`` to ``cpu``; a thread that ends meanwhile is let go."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(task.name), {cpu})


def launches(session: Session) -> None:
    """Nanoseconds per launch without a daemon and with one that manages the program, in turns.

    The loop is pinned to one CPU: where the scheduler puts it is worth more than what is measured here. Daemon and
    host threads may run on that CPU as on any other.
    """
    seconds = 1.0 if session.options.quick else 2.5
    [loop] = session.start_all({"launch loop": kernels("launchloop")})
    pin(loop.pid, max(os.sched_getaffinity(0)))
    ratios, plain, managed = [], [], []
    session.steer.stop()
    for turn in range(3 if session.options.quick else 10):
        pair: dict[bool, float] = {}
        for with_daemon in (False, True) if turn % 2 else (True, False):
            if with_daemon:
                session.steer.start()
                session.steer.adopted(loop.pid)
                session.steer.ctl("set-priority", str(loop.pid), "high")
            slot = session.slot(f"launch loop, daemon {with_daemon}", seconds, loop, settle=LOOP_SETTLE)
            pair[with_daemon] = percentile([ln["ns_per_launch"] for ln in slot.windows[loop.name]], 50)
            if with_daemon:
                session.steer.release(loop.pid)
                session.steer.stop()
        plain.append(pair[False])
        managed.append(pair[True])
        ratios.append(pair[True] / pair[False])
    session.finish(loop)
    session.row("launch loop without a daemon, median", spread(plain).median, "ns per launch")
    session.row("launch loop managed, median", spread(managed).median, "ns per launch", spread(plain).median)
    session.spread_rows("launch loop: managed / without", spread(ratios), "", target="<= 1.01")


def deaths(session: Session) -> None:
    """kill -9 of the daemon at random moments around a pause: when the kernel's counter advances again."""
    count = 20 if session.options.quick else 100
    choose = random.Random(session.options.seed)
    [endless] = session.start_all({"endless": kernels("endless", "--gap-us", GAP_US)})
    waits, late = [], 0
    for turn in range(count):
        session.steer.start()
        session.steer.adopted(endless.pid)
        pause = threading.Thread(target=_pause, args=(session, endless.pid))
        pause.start()
        # half of them within the pause itself, which takes a few milliseconds; half while the program is paused
        time.sleep(choose.uniform(0.0, 0.02) if turn % 2 else choose.uniform(0.05, 0.4))
        killed = session.steer.kill()
        pause.join()
        wait = _until_running(endless, killed)
        session.mark("killed", t=round(killed, 6), turn=turn, seconds=wait)
        if wait is None:
            late += 1
            session.say(f"kill {turn + 1}: the program stood still for 20 s; it is started again")
            session.steer.start()  # a new daemon takes up what the old one left
            session.steer.verb("resume", endless.pid)
            session.steer.stop()
            continue
        waits.append(wait)
    stood = [wait for wait in waits if wait > 0]
    session.finish(endless)
    session.row("kill -9 of the daemon", len(waits) + late, "times", count, ">= 1 x baseline")
    session.row("kills that found the program paused", len(stood) + late, "times", target=">= 1")
    session.row("kills after which the program did not run within 20 s", late, "times", target="== 0")
    if stood:
        session.row("kill -9 to the program running again, median of those paused", percentile(stood, 50), "s")
        session.row("kill -9 to the program running again, longest", max(stood), "s", target="<= 2")


def _pause(session: Session, pid: int) -> None:
    try:
        session.steer.verb("pause", pid)
    except SteerError as error:
        session.mark("pause cut off", reason=str(error))  # the daemon died in it, as was meant


def _until_running(endless: Program, killed: float) -> float | None:
    """Seconds from the kill to the end of its last standstill: 0 where it never stood, None where it stands after 20 s.

    It runs for sure once it went on for a second without a standstill: a guardian may still be at work before that.
    """
    until = killed + 20.0
    while time.monotonic() < until:
        time.sleep(0.05)
        moves = [float(ln["t"]) for ln in endless.lines("advanced")]
        if len(endless.lines("stopped")) > len(moves):
            continue  # it stands
        last = max([killed, *(t for t in moves if t > killed)])
        if time.monotonic() - last > CALM[last > killed]:
            return max(0.0, last - killed)
    return None


def run(session: Session) -> None:
    """The whole experiment."""
    bits(session)
    launches(session)
    deaths(session)
