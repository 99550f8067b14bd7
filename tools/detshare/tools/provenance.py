# SPDX-License-Identifier: Apache-2.0
"""Which sources a result measures, and whether they are today's: git's hash of each path, then and now."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Final

from detshare.tools.machine import ask_git

__all__ = ["CURRENT", "OLDER", "PRODUCT", "UNKNOWN", "hashes", "lines_changed", "paths", "state"]

PRODUCT: Final = ("ctl", "ebpf", "kmod", "runtime")
"""what an experiment measures of which nothing else is said"""
_ROOT: Final = ("ctl",)
_MODULE: Final = ("kmod",)
_SPATIAL: Final = ("ctl", "runtime")
MEASURES: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(
        ("adoption", "gang", "harmless", "mix", "pause", "scale", "sweep", "temporal", "weights"), _ROOT
    ),
    **dict.fromkeys(
        ("compatibility", "determinism", "gang-spatial", "isolation", "lane-choice", "live-change", "migrate",
         "mps-faults", "overhead", "pair", "park", "park-incremental", "park-deep", "park-lazy", "park-compat",
         "park-faults", "oversubscribe", "models", "field"),
        _SPATIAL,
    ),
    **dict.fromkeys(("gates", "launch-path"), ("runtime",)),
    **dict.fromkeys(
        (
            "conformance", "forwarded", "fuzz", "hostile", "interception", "kill-storm", "quota-attack", "review",
            "sched", "stress", "unload",
        ),
        _MODULE,
    ),
    "daemon-recovery": ("ctl", "kmod"),
    **dict.fromkeys(("driver-calls", "rm-core"), ("kmod/rm",)),
    **dict.fromkeys(("dirty", "ebpf-counts", "ebpf-objects", "ebpf-overhead"), ("ebpf",)),
    "root-backend": ("ctl", "ebpf"),
    "containers": ("ctl/detshare/ctl/cdi", "ctl/detshare/ctl/backends/module"),
    "dra": ("ctl/detshare/ctl/kubernetes", "ctl/detshare/ctl/cdi", "packaging/kubernetes"),
    "monitoring": ("ctl/detshare/ctl/daemon", "packaging"),
    "packages": ("packaging/debian", "packaging/detshared.service", "tools/detshare/tools/release"),
    "page": ("ctl/detshare/ctl/daemon/page",),
    "policies": ("ctl/detshare/ctl/policy", "ctl/detshare/ctl/sim"),
    "sim-validation": ("ctl/detshare/ctl/sim",),
}  # fmt: skip
"""experiment -> paths of the repository; its variants (NAME-h200, NAME-2, NAME-debug) measure the same"""

MOVED: Final[Mapping[str, str]] = {
    "ctl/detshare/ctl/policy": "ctl/policy",
    "ctl/detshare/ctl/sim": "ctl/sim",
}
"""path -> where it was in commits that have not got it; what did not change as it moved has the same hash"""

CURRENT: Final = "current"
OLDER: Final = "older"
UNKNOWN: Final = "unknown"

_COMMIT: Final = re.compile(r"[0-9a-f]{7,40}")


def paths(name: str) -> tuple[str, ...]:
    """What the result of this name measures."""
    known = [kind for kind in MEASURES if name == kind or name.startswith(f"{kind}-")]
    return MEASURES[max(known, key=len)] if known else PRODUCT


@cache
def _hash(commit: str, path: str) -> str:
    """Git's hash of a path in a commit; empty where this checkout cannot say."""
    found = ask_git("rev-parse", "--verify", "--quiet", f"{commit}:{path}")
    return found or (_hash(commit, MOVED[path]) if path in MOVED else "")


def hashes(name: str, commit: str) -> dict[str, str]:
    """Path -> hash of what a result of that commit measures; {} where the history has not all of it."""
    if commit != "HEAD" and not _COMMIT.fullmatch(commit):
        return {}
    found = {path: _hash(commit, path) for path in paths(name)}
    return found if all(found.values()) else {}


def state(measures: Mapping[str, str]) -> str:
    """CURRENT, OLDER, or UNKNOWN where the result carries no hash or this is no checkout."""
    if not measures or not ask_head():
        return UNKNOWN
    return CURRENT if all(_hash("HEAD", path) == told for path, told in measures.items()) else OLDER


@cache
def ask_head() -> str:
    """The commit of this checkout, short; empty outside git."""
    return ask_git("rev-parse", "--short", "HEAD")


@cache
def lines_changed(commit: str, path: str) -> tuple[int, int] | None:
    """Lines added and taken away in a path since a commit; None where this history cannot say."""
    if not _COMMIT.fullmatch(commit) or not _hash(commit, path):
        return None
    both = [f":/{each}" for each in (path, MOVED.get(path)) if each]
    said = ask_git("diff", "--shortstat", "-M", commit, "HEAD", "--", *both)
    added, gone = (re.search(rf"(\d+) {word}", said) for word in ("insertion", "deletion"))
    return (int(added[1]) if added else 0, int(gone[1]) if gone else 0)
