# SPDX-License-Identifier: Apache-2.0
"""A policy of the daemon over the kernel module: what it decides are the kernel's rows, and outlives nobody."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

from detshare.ctl.client import Client
from detshare.ctl.netlink.link import Link
from tests.patience import until
from tests.vm.guest.ctl_sched import FOUND, RUN, Daemon, Workers, daemon, done, setting
from tests.vm.guest.sched_tools import Worker, family, progress, worker

__all__ = ["daemon", "family", "worker"]  # fixtures

"""an emulated processor on a busy machine needs seconds for a look"""

POLICY = '''
from detshare.ctl.policy.types import Gate, Policy, Slice
class Mine(Policy):
    """Rule: {}."""
    def on_attach(self, now, tenant):
        return [{}]
'''

COUNTING = """
from detshare.ctl.policy.types import Policy
class Mine(Policy):
    kicks = "{kicks}"
    def on_launch(self, now, tenant):
        with open("{path}", "a") as file:
            file.write(f"{{tenant}}\\n")
"""


def policy(folder: Path, rule: str, action: str) -> str:
    path = folder / f"{rule}.py"
    path.write_text(POLICY.format(rule, action))
    return str(path)


def turned() -> list[str]:
    """Classes with turns, in their order."""
    rows = [row for row in Link().classes() if row.turn_us]
    return [row.name for row in sorted(rows, key=lambda row: -row.turn_rank)]


def held() -> list[int]:
    return [row.pid for row in Link().holds()]


def decided(one: Worker) -> dict[str, str]:
    found: dict[str, str] = json.loads(done("show", one.pid, "--json"))["programs"][0]["decided"]
    return found


def test_what_a_policy_decides_are_the_kernels_rows(daemon: Daemon, worker: Workers, tmp_path: Path) -> None:
    """One after the other, each taking the place of the one before, as `detshare-ctl policy set` has it."""
    one = worker("nvbackground", "--us", 2000)
    until(lambda: any(each["pid"] == one.pid for each in Client(RUN).programs()["programs"]))
    assert turned() == ["low", "idle"]

    done("policy", "set", "strict")
    until(lambda: turned() == ["normal", "low", "idle"])
    until(lambda: progress(one) > 50_000)  # nobody else wants the GPU

    short = policy(tmp_path, "short", "Slice(tenant, 500.0, 0, 'others are in a hurry')")
    done("policy", "set", short)
    until(lambda: setting(one) == (500, 0) and turned() == ["low", "idle"])
    told = " ".join(done("why", one.pid).split())
    assert f"{one.pid}: slice 500 us, level low; others are in a hurry" in told
    assert f"time slice decided by policy {short}" in told
    assert decided(one) == {"Slice": f"policy {short}"}

    both = policy(tmp_path, "both", "Slice(tenant, 500.0, 0, 'as before'), Gate(tenant, False, 'it may wait')")
    done("policy", "set", both)
    until(lambda: held() == [one.pid])
    time.sleep(0.5)  # what was queued runs on
    assert progress(one, 0.5) == 0
    assert setting(one) == (500, 0)
    assert held() == [one.pid]

    daemon.end(signal.SIGKILL)
    until(lambda: not held())
    until(lambda: progress(one) > 50_000)
    assert setting(one) == (500, 0), "the kernel's, whoever dies"
    again = Daemon()
    try:
        assert Client(RUN).policy()["policy"]["name"] == both
        until(lambda: held() == [one.pid])  # the new daemon's policy hears of it anew
        assert "it may wait" in " ".join(done("why", one.pid).split())
        mine = f"policy {both}"
        assert decided(one)["Slice"] == mine
        done("policy", "set", "static")
        until(lambda: not held() and setting(one) == FOUND)
        until(lambda: progress(one) > 50_000)
        launches_are_heard_at_once(worker("nvlatency", "--period-ms", 200, "--quiet"), tmp_path)
    finally:
        again.end()


def launches_are_heard_at_once(one: Worker, folder: Path) -> None:
    """Of a program that works for half a millisecond in 200, a look hardly ever sees more than that it works."""
    until(lambda: any(each["pid"] == one.pid for each in Client(RUN).programs()["programs"]))
    told = folder / "told"
    counting = folder / "counting.py"
    counting.write_text(COUNTING.format(kicks="always", path=told))
    done("policy", "set", counting)
    assert Client(RUN).policy()["policy"]["hears_kicks"]
    until(lambda: told.exists() and told.read_text().split().count(str(one.pid)) >= 8)
    done("policy", "set", "static")
    assert not Client(RUN).policy()["policy"]["hears_kicks"]
