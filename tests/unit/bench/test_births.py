# SPDX-License-Identifier: Apache-2.0
"""What the log of a detshared tells of births, and how such a daemon is begun and ended."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

from detshare.ctl.core import classes
from detshare.tools.bench import births

EARLY = """
DEBUG detshared.births: PID 96, ms after its first TSG was made: told 0.3, set 17.0
DEBUG detshared.births: PID 97, ms after its first TSG was made: told 0.3, heard 0.4, desired found 0.8, set 19.3
INFO detshared: change 97: a new context brought to class low, 19.3 ms after its first TSG was made
INFO detshared: change 98: 1 TSG(s) brought to class low
INFO detshared: change 99: brought back to class low, 0.8 ms after it set a slice of 2048 us itself
"""


def test_legs_are_of_programs_that_got_it_early() -> None:
    assert births.legs(97, EARLY) == {"told": 0.3, "heard": 0.4, "desired found": 0.8, "set": 19.3}
    assert [births.legs(pid, EARLY) for pid in (7, 9, 98, 99)] == [{}] * 4


@pytest.mark.parametrize(("pid", "told"), [(97, True), (98, True), (99, False), (9, False), (96, False)])
def test_a_class_is_told_of_whoever_gave_it(pid: int, told: bool) -> None:
    assert births.told_of(pid, EARLY) is told


def test_the_class_has_the_slice_that_is_asked_for() -> None:
    assert classes.setting(births.CLASS).slice_us == births.SLICE_US


def test_what_never_becomes_true_is_waited_for_no_longer() -> None:
    answers = iter([False, False, True])
    assert births.eventually(lambda: next(answers), 60.0)
    assert not births.eventually(lambda: False, 0.0)


def _stand_in(monkeypatch: pytest.MonkeyPatch, folder: Path, text: str) -> None:
    """Instead of detshared: a program of this text."""
    made = folder / "stand-in"
    made.write_text(f"#!{sys.executable}\n{text}\n")
    made.chmod(0o755)
    monkeypatch.setattr(births.sys, "executable", str(made))


def test_a_daemon_that_comes_up_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said = "import signal, sys; signal.signal(15, lambda *_: sys.exit(3))"
    _stand_in(monkeypatch, tmp_path, f"{said}; print('ready on a socket', file=sys.stderr, flush=True); signal.pause()")
    with births.Daemon(tmp_path, "tenant *", "*decode.py*", observers=False, interval=0.25) as daemon:
        assert daemon.ready(30.0)
        assert not daemon.tells_of(97, 0.0)
        assert (daemon.end(), daemon.end()) == (3, 3)
    asked = tomllib.loads((tmp_path / "detshare.toml").read_text())["daemon"]
    assert (asked["interval"], asked["observers"], asked["backend"]) == (0.25, False, "root")
    assert asked["classes"] == {"tenant *": "low", "*decode.py*": "low"}


def test_a_daemon_that_ends_at_once_is_not_ready(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _stand_in(monkeypatch, tmp_path, "import sys; sys.exit('ready on nothing: there is no driver')")
    with births.Daemon(tmp_path, "*") as daemon:
        assert births.eventually(lambda: daemon._process.poll() is not None, 30.0)
        assert not daemon.ready(30.0)
        assert "there is no driver" in daemon.text
