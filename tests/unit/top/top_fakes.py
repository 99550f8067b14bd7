# SPDX-License-Identifier: Apache-2.0
"""Snapshots as the API gives them, and a source that answers from memory."""

from __future__ import annotations

from typing import Any

from detshare.ctl.top.source import SourceError

GPU = "GPU-710ea6b1-2c2f-4f9e-8a3a-0123456789ab"


def tsg(slice_us: object = 2048, level: object = None, **more: Any) -> dict[str, Any]:
    return {
        "gpu": GPU, "fd": 5, "client": 0xC1D00019, "handle": 0x5C000015, "device": 1, "subdevice": 2,
        "tsg_id": 3, "kind": "compute", "engine": "GR0", "channels": list(range(8)), "context_shares": [1],
        "slice_us": slice_us, "level": level, **more,
    }  # fmt: skip


def program(pid: object = 4242, **more: Any) -> dict[str, Any]:
    return {
        "pid": pid, "start": 100, "command": "python3 serve.py", "user": "alice", "container": "",
        "state": "running", "class": None, "weight": None, "gpus": [GPU], "tsgs": [tsg()],
        "memory_bytes": 3 << 30, "gpu_share": 0.25, "adopted_ms": 31.0, "notes": [], **more,
    }  # fmt: skip


def snapshot(*programs: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "backend": "root", "proof": "gpu", "driver": "580.159.04", "taken": 1.0, "seconds": 0.004,
        "gpus": [{"uuid": GPU, "minor": 0, "name": "NVIDIA H100 80GB HBM3", "pci": "0",
                  "memory_bytes": 80 << 30}],
        "programs": list(programs), "warnings": [], **more,
    }  # fmt: skip


class FakeSource:
    """Answers looks from `programs`; remembers verbs; `fails` is the message of the next refusal."""

    def __init__(self, *programs: dict[str, Any], can_act: bool = True) -> None:
        self.programs = list(programs)
        self.can_act = can_act
        self.verbs: list[tuple[str, str, dict[str, Any]]] = []
        self.fails = ""

    def look(self) -> dict[str, Any]:
        if self.fails == "look":
            raise SourceError("list programs: no root\nnext: sudo")
        return snapshot(*self.programs)

    def act(self, verb: str, who: str, args: dict[str, Any]) -> dict[str, Any]:
        self.verbs.append((verb, who, args))
        if self.fails:
            raise SourceError(self.fails)
        change = {"gpu": GPU, "handle": 0x5C000015, "slice_us": 1_000_000, "level": "high", "before_us": 2048}
        return {
            "verb": verb,
            "changed": [{"pid": int(who), "tsgs": [change], "note": ""}],
            "skipped": [],
            "seconds": 0.001,
        }


def spatial(**more: Any) -> dict[str, Any]:
    return {
        "sms": 132, "idle": "first 32", "busy": "held", "idle_sms": 32, "percent": 25, "memory_limit": None,
        "held": False, "waiting": False, "epoch": 1, "acknowledged": True, "launches": 0, "graph_launches": 0,
        "remaps": 0, "full_runs": 0, "in_flight": 0, "held_ms": 0.0, "pool_bytes": 0, "idle_set": "first:32",
        "exclusive": "", "step": 8, "busy_sms": 0, "kernels": None, "graphs": None,
        "delays": [0] * 32, "blocks": 0, "shapes": [], **more,
    }  # fmt: skip


RATES = {"launches_per_s": 45_200.0, "held": 0.12, "queue_p99_us": 8192.0, "door_p99_us": None}


def counted(pid: int = 4242, **more: Any) -> dict[str, Any]:
    """A program of the spatial lane as the collector hands it on."""
    return program(pid, state="spatial", pctx="25%", memory_limit=4 << 30, spatial=spatial(), rates=RATES, **more)


def decision(text: str, tenant: int = 4242, when: float = 0.0) -> dict[str, Any]:
    return {"when": when, "what": "decision", "text": text, "tenant": str(tenant), "fate": "done", "policy": "strict"}
