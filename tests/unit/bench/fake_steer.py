# SPDX-License-Identifier: Apache-2.0
"""A daemon for experiments without one: remembers what it was told, and has a context-switch log of its own making."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from detshare.tools.bench.steer import SteerError


class FakeSteer:
    def __init__(self, run_dir: Path, old: bool = False, logged: bool = True) -> None:
        self.run_dir = run_dir
        self.told: list[tuple[Any, ...]] = []
        self.classes: dict[int, dict[str, Any]] = {}
        self.old, self.logged = old, logged
        self.running = False
        self.config: Path | None = None
        self.began_with: list[str] = []
        """the name of each start's configuration"""
        self.pid = os.getpid()

    def start(self) -> None:
        self.running = True
        self.began_with.append("None" if self.config is None else self.config.name)

    def stop(self) -> None:
        self.running = False

    def threads(self) -> dict[str, float]:
        return {}

    def verb(self, name: str, pid: int, **arguments: Any) -> dict[str, Any]:
        given = {key: value for key, value in arguments.items() if value is not None}
        if self.old and name == "set-priority" and set(given) - {"klass"}:
            raise SteerError('set-priority has no argument "weight"; it takes who, class')
        self.told.append((name, pid, given))
        self.classes.setdefault(pid, {}).update(given)
        return {"changed": [{"pid": pid}]}

    def release(self, pid: int) -> None:
        self.told.append(("release", pid, {}))
        self.classes.pop(pid, None)

    def policy(self, name: str, params: dict[str, str] | None = None) -> dict[str, Any]:
        self.told.append(("policy", 0, {"name": name, **(params or {})}))
        return {}

    def policy_status(self) -> dict[str, Any]:
        counts = {"actions": len(self.told), "refused": len(self.told)}
        return {"counts": counts, "refused": [{"when": 0.0, "text": "on_tick: no module"}]}

    def let_decide(self, pid: int) -> None:
        self.told.append(("let decide", pid, {}))

    def deadline(self, pid: int, us: float | None) -> None:
        self.told.append(("deadline", pid, {"us": us}))

    def ps(self) -> dict[str, Any]:
        """Who is high has 0.1 of the GPU, all who are low have 0.88 by their weights."""
        now = time.monotonic()
        low = {pid: one.get("weight", 1) for pid, one in self.classes.items() if one.get("klass") == "low"}
        programs: list[dict[str, Any]] = [{"pid": 1, "gpu_time": []}]
        for pid, one in self.classes.items():
            share = 0.1 if one.get("klass") == "high" else 0.88 * low.get(pid, 0) / max(1, sum(low.values()))
            log = [{"gpu": "GPU-0", "seconds": 0.2, "share": share + 0.002, "useful": share, "switches_s": now}]
            programs.append({"pid": pid, "gpu_time": log if self.logged else []})
        return {"proof": "model", "taken": now, "programs": programs, "schedules": [], "gpus": []}

    def log_end(self) -> str:
        return "(no log)"
