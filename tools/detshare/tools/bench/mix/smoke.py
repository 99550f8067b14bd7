# SPDX-License-Identifier: Apache-2.0
"""Each workload of the mixes for some seconds, and a line for each: does it start here, and how quick is it?"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from detshare.tools.bench.mix.figures import server
from detshare.tools.bench.mix.random_mix import KINDS, again
from detshare.tools.bench.mix.worker import BACKGROUNDS, SERVERS, Worker, command, rest, start, warm
from detshare.tools.bench.process import Program, ProgramError
from detshare.tools.bench.session import Session

__all__ = ["smoke"]

PERIOD_MS = 20.0


def smoke(session: Session, seconds: float, kinds: Sequence[str] = (), say: Callable[[str], None] = print) -> int:
    """Start all side by side, then each alone in turn; how many did not work."""
    wanted = [name for name in (*SERVERS, *BACKGROUNDS) if not kinds or name in kinds]
    small = [name for name in KINDS if not kinds or f"again-{name}" in kinds]
    begun = time.monotonic()
    repeating = {name: session.start(f"again-{name}", again(name), told=True) for name in small}
    workers = warm(session, [start(session, name, command(name)) for name in wanted])
    failed = len(wanted) - len(workers)
    session.say(f"{len(workers)} programs are warm after {time.monotonic() - begun:.0f} s")
    failed += sum(not _digests(name, program, say) for name, program in repeating.items())
    session.drop(*repeating.values())
    for name, worker in workers.items():
        try:
            say(_server(worker, seconds) if name in SERVERS else _background(worker, seconds))
        except (ProgramError, ValueError) as error:
            failed += 1
            say(f"{name}: FAILED: {error}")
        finally:
            rest(session, [worker])
    say(f"smoke: {failed} of {len(wanted) + len(small)} workloads do not work, {time.monotonic() - begun:.0f} s")
    return failed


def _words(worker: Worker) -> str:
    ready = worker.program.lines("ready")[0]
    instead = f", INSTEAD since {ready['instead']}" if ready.get("instead") else ""
    return f"({ready['what']}, started in {ready.get('started_s', 0)} s{instead})"


def _interval(worker: Worker, seconds: float, **how: float) -> tuple[float, float]:
    worker.go(**how)
    worker.answered()
    time.sleep(0.3)
    begin = time.monotonic()
    time.sleep(seconds)
    end = time.monotonic()
    worker.stop()
    worker.answered()
    return begin, end


def _server(worker: Worker, seconds: float) -> str:
    found = []
    for period in (0.0, PERIOD_MS):
        begin, end = _interval(worker, seconds / 2, period_ms=period)
        some = worker.requests(begin, end)
        one = server(some.latency_us, some.own_us, end - begin, some.dropped, None)
        what = f"every {period:g} ms" if period else "back to back"
        found.append(f"{what}: p50 {one.p50:.0f} p99 {one.p99:.0f} us, {one.rate:.1f}/s")
    return f"{worker.name}: {'; '.join(found)} {_words(worker)}"


def _background(worker: Worker, seconds: float) -> str:
    begin, end = _interval(worker, seconds)
    steps = worker.steps(begin, end)
    if not steps:
        raise ValueError(f"not one step in {seconds:g} s")
    each = (end - begin) / len(steps) * 1000
    return f"{worker.name}: {len(steps) / (end - begin):.2f} steps/s, {each:.1f} ms each {_words(worker)}"


def _digests(name: str, program: Program, say: Callable[[str], None]) -> bool:
    """Two digests that are alike."""
    try:
        first = program.wait_for("digest", 90.0)
        second = program.wait_for("digest", 60.0, first["t"] + 1e-6)
    except ProgramError as error:
        say(f"again-{name}: FAILED: {error}")
        return False
    alike = bool(first["sha256"] == second["sha256"])
    took = second["t"] - first["t"]
    why = program.lines("ready")[0].get("instead")
    instead = f" (INSTEAD since {why})" if why else ""
    say(f"again-{name}: {'two digests alike' if alike else 'DIGESTS DIFFER'}, {took:.2f} s for one{instead}")
    return alike
