# SPDX-License-Identifier: Apache-2.0
"""GPU time, turns and rotations in words, from the JSON of a snapshot: for ps, show and top alike.

What is not as it should be gives nothing: the JSON may come from another version's daemon.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

Json = Mapping[str, Any]

STALLED_S: Final = 1.0
"""without progress, although there is work: from then on it is said"""
SERVED: Final = "mps"
"""in the place of a share that is in the one of an MPS server"""
_BLOCKS: Final = "▁▂▃▄▅▆▇█"
_ASCII: Final = "_.:-=+*#"
_ORDER: Final = ("holds", "window", "waits", "rests")
"""of the places on several GPUs the first of these is shown"""
_MODES: Final = {
    "free": "no rotation",
    "turns": "turns",
    "windows": "windows",
}
_PATTERNS: Final = {
    "none": "no foreground",
    "bursts": "foreground in bursts",
    "stream": "foreground a stream of small kernels",
    "full": "foreground without useful gaps",
}


def _items(value: object) -> list[Json]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list | tuple) else []


def _number(value: object) -> float | None:
    known = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if known else None  # type: ignore[arg-type]  # a number, as was just asked


def _text(value: object) -> str:
    """Tenants choose their names: no control code may reach a terminal."""
    return "".join(c if c.isprintable() else "?" for c in value) if isinstance(value, str) else ""


def seconds(value: float) -> str:
    """A time in five characters or so: 40ms, 1.2s, 12s."""
    if value < 0.9995:
        return f"{value * 1e3:.0f}ms"
    return f"{value:.1f}s" if value < 9.95 else f"{value:.0f}s"


def _us(value: float) -> str:
    return f"{value:.0f} us" if value < 999.5 else f"{value / 1e3:.3g} ms"


def spark(values: Sequence[object], width: int, ascii_only: bool = False, whole: int = 0) -> str:
    """The last values, 0..1 each, as blocks: one for each cell, the newest to the right. A space: nothing at all.

    Several values that fall into one cell are their mean. `whole`: so many values fill the width; fewer, a part of it.
    """
    known = [min(max(_number(value) or 0.0, 0.0), 1.0) for value in values]
    if not known or width <= 0:
        return ""
    each = math.ceil(max(len(known), whole) / width)
    groups = [known[max(end - each, 0) : end] for end in range(len(known), 0, -each)][::-1]
    means = [sum(group) / len(group) for group in groups]
    marks = _ASCII if ascii_only else _BLOCKS
    return "".join(" " if mean <= 0 else marks[min(int(mean * len(marks)), len(marks) - 1)] for mean in means)


def history(program: Json) -> Sequence[object]:
    """Shares of each tenth of a second, oldest first, on the GPU where the program has most."""
    best = max(_items(program.get("gpu_time")), key=lambda each: _number(each.get("share")) or 0.0, default={})
    found = best.get("history")
    return found if isinstance(found, list | tuple) else ()


def servers(program: Json, everybody: Sequence[Json]) -> list[str]:
    """PIDs of the MPS servers in whose share that of a client is: the log has the work of all clients as one. None of a
    program that has a share of its own, as NVML may say.
    """
    served = program.get("state") == "mps-client" or bool(program.get("spatial"))
    gpus = program.get("gpus")
    if not served or not isinstance(gpus, list | tuple) or _items(program.get("gpu_time")):
        return []
    if _number(program.get("gpu_share")):
        return []
    return [
        _text(str(each.get("pid")))
        for each in everybody
        if each.get("state") == "mps-server" and any(time.get("gpu") in gpus for time in _items(each.get("gpu_time")))
    ]


def stalled(program: Json) -> float:
    """Seconds for which a program that DetShare manages had work and made no progress; 0 below a second."""
    if not (program.get("class") or program.get("weight")) or program.get("state") in ("paused", "gated"):
        return 0.0
    longest = max((_number(each.get("stalled_s")) or 0.0 for each in _items(program.get("gpu_time"))), default=0.0)
    return longest if longest >= STALLED_S else 0.0


def turn(program: Json) -> str:
    """Its place in the rotation, in eight characters: "holds", "in 1.2s", "waits", "rests", "window"; empty: none."""
    places = {_text(each.get("standing")): each for each in reversed(_items(program.get("places")))}
    standing = next((name for name in _ORDER if name in places), "")
    later = _number(places[standing].get("next_s")) if standing == "waits" else None
    return standing if later is None else f"in {seconds(later)}"


def places(program: Json, numbers: Mapping[str, str]) -> list[str]:
    """Each place in a rotation in a sentence; `numbers`: GPU UUID -> its number."""
    told = {
        "holds": "has its turn",
        "waits": "waits for its turn",
        "rests": "had no work when it was its turn",
        "window": "runs in a window of its floor",
    }
    lines = []
    for each in _items(program.get("places")):
        later = _number(each.get("next_s"))
        when = "" if later is None else f"; its next begins in {seconds(later)}"
        standing = _text(each.get("standing"))
        tenant = _text(each.get("tenant"))
        whose = f" (tenant {tenant})" if tenant and tenant != str(program.get("pid")) else ""
        lines.append(f"GPU {numbers.get(_text(each.get('gpu')), '?')}: {told.get(standing, standing)}{whose}{when}")
    return lines


def floor(program: Json, numbers: Mapping[str, str]) -> list[str]:
    """What it has at least, in a phrase; none for a program above the background, which needs no floor."""
    share, apart = _number(program.get("floor")), program.get("floors")
    known = {gpu: _number(each) for gpu, each in apart.items()} if isinstance(apart, Mapping) else {}
    several = sorted((numbers.get(gpu, "?"), each) for gpu, each in known.items() if each is not None)
    most = max([share or 0.0, *(each for _, each in several)])
    if share is None or (not most and program.get("class") not in ("low", "idle")):
        return []
    while_ = "of the time, while a higher class leaves nothing"
    return [f"GPU {number}: {each:.1%} {while_}" for number, each in several] or [f"{share:.1%} {while_}"]


def gpu_times(program: Json, numbers: Mapping[str, str]) -> list[str]:
    """What it had of each GPU over the last seconds, in a sentence each."""
    lines = []
    for each in _items(program.get("gpu_time")):
        share, useful, rate = (_number(each.get(name)) for name in ("share", "useful", "switches_s"))
        if share is None or useful is None or rate is None:
            continue
        length, gap = (_number(each.get(name)) or 0.0 for name in ("run_us", "gap_us"))
        over = _number(each.get("seconds")) or 0.0
        runs = f", {rate:.0f} runs a second" + (f" of {_us(length)}" if length else "")
        gaps = f", {_us(gap)} between them" if gap else ""
        lines.append(
            f"GPU {numbers.get(_text(each.get('gpu')), '?')}: {share:.1%} of the last {seconds(over)}"
            f" ({useful:.1%} useful){runs}{gaps}"
        )
    return lines


def schedule(each: Json) -> str:
    """The rotation of a GPU in a line: mode, how the foreground comes, who holds, who comes then."""
    mode, pattern = _text(each.get("mode")), _text(each.get("pattern"))
    gap, floor = _number(each.get("gap_us")), _number(each.get("floor"))
    holder, after = _text(each.get("holder")), _text(each.get("next"))
    left = _number(each.get("left_s"))
    parts = [_MODES.get(mode, mode)]
    if holder and mode == "free":
        parts.append(f"{holder} alone in the background")
    elif holder:
        parts.append(f"{holder} has its turn" + ("" if left is None else f" for {seconds(left)}"))
    if after:
        parts.append(f"then {after}")
    if pattern != "unknown":
        parts.append(_PATTERNS.get(pattern, pattern))
    if gap and pattern not in ("", "none", "unknown"):
        parts[-1] += f" (gaps of {_us(gap)})"
    if slice_us := _number(each.get("slice_us")):
        parts.append(f"slice {_us(slice_us)}")
    if mode == "windows" and floor is not None:
        parts.append(f"floor {floor:.1%}")
    return ", ".join(part for part in parts if part)


def why(each: Json) -> str:
    """The measurement that decided a GPU's mode and slice."""
    return _text(each.get("why"))


def policies(status: Json) -> dict[str, str]:
    """Name and failure of the policies that decide, in a line each: that of all, then those of single GPUs."""
    names, failures = [str(status["name"])], [str(status.get("failed") or "")]
    for each in status.get("gpus", ()):
        where = each["gpu"] if each.get("gpu") is not None else each["uuid"]
        names.append(f"GPU {where}: {each['name']}")
        failures.append(f"GPU {where}: {each['failed']}" if each.get("failed") else "")
    return {"name": ", ".join(names), "failed": "; ".join(filter(None, failures))}


def mig(gpu: Json, brief: bool = False) -> str:
    """What MIG made of a GPU; empty for a whole one. `brief`: without the instances' names."""
    if not isinstance(cut := gpu.get("mig"), list | tuple):
        return ""
    profiles = [_text(each.get("profile")) or "?" for each in _items(cut)]
    parts = [
        f"{profile} {_text(each.get('uuid'))}".rstrip() for profile, each in zip(profiles, _items(cut), strict=True)
    ]
    if brief:
        parts = [f"{count} x {profile}" for profile, count in Counter(profiles).items()]
    return "MIG: " + (", ".join(parts) or "no instance, so nothing can run on it")


def schedules(snapshot: Json) -> list[Json]:
    """The rotations of a snapshot."""
    return _items(snapshot.get("schedules"))


def warning(program: Json, numbers: Mapping[str, str]) -> list[str]:
    """One sentence where it has work and makes no progress, else none."""
    if not (longest := stalled(program)):
        return []
    times = _items(program.get("gpu_time"))
    on = next((_text(each.get("gpu")) for each in times if _number(each.get("stalled_s")) == longest), "")
    told = f"it has work on GPU {numbers.get(on, '?')} and made no progress for {seconds(longest)}"
    return [f"{told}: detshare-ctl why {program.get('pid')}"]
