# SPDX-License-Identifier: Apache-2.0
"""The flow for a GPU, with programs that only speak the protocol: order, windows, and what is left behind."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from detshare.tools.demo import play
from detshare.tools.demo.choice import Pair
from detshare.tools.demo.errors import DemoError
from detshare.tools.demo.screen import Commands, Screen
from detshare.tools.demo.stages import GpuStage

pytestmark = pytest.mark.e2e

# answers in 1 ms while nobody else is there, in 5 ms beside others, in 2 ms once FILE exists
SPEAKER = """
import json, os, signal, sys, time
stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
flag, role = sys.argv[1:3]
if role == "lc": open(flag + ".lc", "w").write(str(os.getpid()))
else: open(flag + ".be", "w").write(str(os.getpid()))
print(json.dumps({"event": "ready"}), flush=True)
while not stop:
    t0 = time.monotonic(); time.sleep(0.05)
    us = 2000.0 if os.path.exists(flag) else 5000.0 if os.path.exists(flag + ".be") else 1000.0
    line = {"event": "window", "t0": t0, "t1": (t1 := time.monotonic()), "count": 10}
    line |= {"latency_us": [us] * 10} if role == "lc" else {"items": 12800 * (t1 - t0)}
    print(json.dumps(line), flush=True)
print(json.dumps({"event": "summary"}), flush=True)
"""


class Typed(Commands):
    """Remembers commands; set-priority makes the flag, release removes it."""

    def __init__(self, folder: Path, screen: Screen) -> None:
        super().__init__(folder, screen)
        self.typed: list[tuple[str, ...]] = []
        self.flag = folder / "flag"

    def ctl(self, *words: str) -> None:
        self.typed.append(words)
        if words[0] == "set-priority":
            self.flag.touch()
        if words[0] == "release":
            self.flag.unlink(missing_ok=True)

    def top(self) -> None:
        self.typed.append(("top",))


def stage(folder: Path, screen: Screen, background: list[str] | None = None) -> GpuStage:
    speak = [sys.executable, "-c", SPEAKER, str(folder / "flag")]
    pair = Pair([*speak, "lc"], background or [*speak, "be"], "decode", "training", "images/s")
    made = GpuStage(pair, screen, 80.0, folder)
    made._seconds = dict.fromkeys(made._seconds, 0.6)
    return made


def test_flow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("detshare.tools.demo.stages.SETTLE_SECONDS", 0.2)
    out = io.StringIO()
    screen = Screen(out)
    commands = Typed(tmp_path, screen)
    closing = play(stage(tmp_path, screen), commands, screen)
    latency, background = ((tmp_path / f"flag.{role}").read_text() for role in ("lc", "be"))
    assert commands.typed == [
        ("ps",),
        ("set-priority", latency, "high"),
        ("set-priority", background, "low"),
        ("ps",),
        ("top",),
        ("release", latency),
        ("release", background),
    ]
    found = {name: figures.p99_us for name, figures in closing.phases.items()}
    assert found == {"alone": 1000.0, "before": 5000.0, "after": 2000.0, "released": 5000.0}
    assert closing.phases["alone"].throughput is None
    assert closing.phases["after"].throughput == pytest.approx(12800)
    assert (closing.proof, closing.better) == ("gpu", True)
    assert "(5.00x and 2.00x alone)" in closing.verdict()
    assert not any(Path(f"/proc/{pid}").exists() for pid in (latency, background))


def test_a_background_that_fails_ends_the_latency_program_too(tmp_path: Path) -> None:
    screen = Screen(io.StringIO())
    failing = [sys.executable, "-c", "import sys; sys.exit('out of memory')"]
    with pytest.raises(DemoError, match="out of memory"):
        play(stage(tmp_path, screen, failing), Typed(tmp_path, screen), screen)
    assert not Path(f"/proc/{(tmp_path / 'flag.lc').read_text()}").exists()
