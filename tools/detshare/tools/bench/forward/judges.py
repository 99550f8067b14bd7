# SPDX-License-Identifier: Apache-2.0
"""Programs, memory, gates, storms: what was claimed, and what was seen. The host's own account is the truth."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final

from detshare.tools.bench.forward.folder import GUESTS, Line
from detshare.tools.results import Row

__all__ = ["gate", "memory", "of", "programs", "storm", "undone"]

MIB: Final = 1 << 20
OUT_OF_MEMORY: Final = 2
"""CUDA_ERROR_OUT_OF_MEMORY (cuda.h)"""
KILLED: Final = -9
REFUSED: Final = "managed memory"
"""what nvfwd's documentation says that it refuses"""
SHARED: Final = ("ipc", "export")
"""of two programs: whether the driver lets them is the result"""


def of(lines: list[Line], *steps: str) -> list[Line]:
    """Those of these steps."""
    return [line for line in lines if line["step"] in steps]


def undone(lines: list[Line], *steps: str) -> Iterator[Row]:
    """Steps that failed, were not begun or not ended."""
    whole = {line["step"] for line in of(lines, *steps) if "took" in line}
    failed = {line["step"] for line in of(lines, *steps) if "failed" in line}
    yield Row("steps that were not done", len(set(steps) - (whole - failed)), "steps", None, "== 0")


def _lost(what: str, some: list[Line]) -> Iterator[Row]:
    rests = [line["rest"] for line in some if "rest" in line]
    if rests:
        launched = sum(rest["launched"] for rest in rests)
        lost = launched - sum(rest["ran"] for rest in rests)
        yield Row(f"{what}: kernels launched and not run, of {launched}", lost, "kernels", None, "== 0")


# ---- programs ----


def _parts(some: list[Line]) -> dict[str, Line]:
    found = {}
    for line in some:
        if "program" not in line:
            continue
        for each in line["lines"]:
            if each.get("event") == "part":
                found[each["part"]] = each
            elif each.get("event") == "failed" and "step" in each:
                found[f"{line['program']}: {each['step']}"] = {"result": each["result"], "at": each["step"], "right": 0}
        if line["program"] == "vectoradd":
            sums = [each["wrong"] for each in line["lines"] if "wrong" in each]
            found["vector add"] = {"result": line["code"], "at": "", "right": int(sums == [0])}
    return found


def programs(lines: list[Line]) -> Iterator[Row]:
    """What programs use; the module changes no answer."""
    alone, with_it = (_parts(of(lines, step)) for step in ("programs-alone", "programs"))
    for which, parts, others in (("no module", alone, {}), ("detshare.ko", with_it, alone)):
        for part, seen in parts.items():
            refused_at = f", refused by {seen['at']}" if seen["result"] else ""
            what = f"{part}, {which}{refused_at}: libcuda answers"
            if which != "no module":
                base = others.get(part)
                yield Row(what, seen["result"], "CUresult", None if base is None else base["result"],
                          None if base is None else "== 1 x baseline")  # fmt: skip
            else:
                shared = part.partition(":")[0] in SHARED
                wanted = None if shared else "> 0" if part == REFUSED else "== 0"
                yield Row(what, seen["result"], "CUresult", None, wanted)
        wrong = sum(not seen["right"] for seen in parts.values() if not seen["result"])
        yield Row(f"{which}: parts that say they worked and computed something wrong, of {len(parts)}", wrong, "parts",
                  None, "== 0")  # fmt: skip


# ---- memory ----


def _host(lines: list[Line], state: Line) -> int | None:
    """What the host had of all its programs while a state held: the most frequent of its samples."""
    seen = Counter(
        sum(line["used"].values())
        for line in of(lines, "host")
        if line["used"] is not None and line["lines"].get(state["guest"]) == state["n"]
    )
    return seen.most_common(1)[0][0] if seen else None


def memory(lines: list[Line]) -> Iterator[Row]:
    """Accounting to the byte, and a limit."""
    blind = 0
    for state in of(lines, "kinds"):
        if "used" not in state:
            continue
        host = _host(lines, state)
        if host is None:
            blind += 1
            continue
        yield Row(f"memory: {state['what']}: by the module", state["used"], "bytes", float(host))
        off = abs(state["used"] - host)
        yield Row(f"memory: {state['what']}: distance from the host's figure", off, "bytes", None, "== 0")
    yield Row("states of which the host had no figure", blind, "states", None, "== 0")
    for line in of(lines, "kinds"):
        if "answer" in line and line["answer"]["result"]:
            yield Row(f"libcuda refuses: {line['asked']}", line["answer"]["result"], "CUresult", None, "== 0")
    yield from _limit(of(lines, "limit"))


def _limit(some: list[Line]) -> Iterator[Row]:
    asked = [line for line in some if "answer" in line]
    for number, line in enumerate(asked, 1):
        allowed = number in (2, 4)  # 256 beyond it, 64 below, 64 beyond, 256 without a limit
        what = f"limit: allocation {number} of {line['answer']['mib']} MiB, {'allowed' if allowed else 'beyond it'}"
        wanted = "== 0" if allowed else f"== {OUT_OF_MEMORY}"
        yield Row(f"{what}: libcuda answers", line["answer"]["result"], "CUresult", None, wanted)
        yield Row(f"{what}: took", line["answer"]["us"], "us")


# ---- gates ----


def _hold(name: str, some: list[Line]) -> Iterator[Row]:
    held, _released, last = (line for line in some if not {"took", "begins"} & line.keys())
    yield Row(f"{name}: the call", held["call_ms"], "ms")
    yield Row(f"{name}: requests before it in 1.5 s", held["before"], "requests", None, "> 0")
    yield Row(f"{name}: requests after it in 1.5 s", held["after"], "requests", None, "== 0")
    yield Row(f"{name}: requests in the second after it is let go", last["again"], "requests", None, "> 0")
    yield from _lost(name, some)


def _steer(some: list[Line]) -> Iterator[Row]:
    orders = [line[key] for line in some for key in ("answer", "preempt") if key in line]
    refused = sum(not order["tsgs_set"] or bool(order["tsgs_failed"]) for order in orders)
    what = f"slices, levels and a preemption: refused by the driver, of {len(orders)}"
    yield Row(what, refused, "orders", None, "== 0")
    yield from _lost("meanwhile", some)


def gate(lines: list[Line]) -> Iterator[Row]:
    """Gates, pauses and orders for channel groups."""
    failed = {line["step"] for line in lines if "failed" in line}
    for name in ("gate", "pause"):
        some = of(lines, name)
        if name not in failed and any("rest" in line for line in some):
            yield from _hold(name, some)
    if "steer" not in failed and of(lines, "steer"):
        yield from _steer(of(lines, "steer"))


# ---- storms ----


def _unload(some: list[Line]) -> Iterator[Row]:
    by_words: dict[str, list[Line]] = defaultdict(list)
    for line in some:
        if "words" in line:
            by_words[line["words"]].append(line)
    for words, each in by_words.items():
        what = f"{words} under load, {len(each)} times"
        yield Row(f"{what}: longest", max(line["took_ms"] for line in each), "ms")
        yield Row(f"{what}: requests in the 0.8 s after it, least", min(line["requests"] for line in each), "requests",
                  None, "> 0")  # fmt: skip
        yield Row(f"{what}: kernels of a busy program in that time, least", min(line["kernels"] for line in each),
                  "kernels", None, "> 0")  # fmt: skip
    for line in some:
        if "adopted" in line:
            alone = sum(not each for each in line["adopted"])
            yield Row("programs that the module does not know after its return, of 2", alone, "programs", None, "== 0")
    yield from _lost("unload", some)


def storm(lines: list[Line]) -> Iterator[Row]:
    """What kills and reloads leave."""
    rounds = [line for line in of(lines, "storm") if "left" in line]
    if rounds:
        killed = sum(line["killed"] for line in rounds)
        what = f"storm: {killed} programs killed in {len(rounds)} rounds"
        left = sum(sum(map(abs, line["left"].values())) for line in rounds)
        yield Row(f"{what}: objects that the helper holds more after a round, sum", left, "objects", None, "== 0")
        known = sum(line["vctxs"] for line in rounds)
        yield Row(f"{what}: contexts that the module still knows, sum", known, "contexts", None, "== 0")
        ended = sum(line["ended"] != KILLED for line in of(lines, "storm") if "ended" in line)
        yield Row(f"{what}: of these ended by themselves", ended, "programs", None, "== 0")
        early = sum(not line["ready"] for line in of(lines, "storm") if "ready" in line)
        yield Row(f"{what}: of these before they had a context", early, "programs")
    yield from _unload(of(lines, "unload"))
    for helper in of(lines, "helper"):
        left = sum(helper[name] for name in ("handles", "maps", "pins", "waits"))
        what = f"guest {GUESTS.index(helper['guest']) + 1} of {len(GUESTS)}, at its end"
        yield Row(f"{what}: what the helper holds", left, "objects", None, "== 0")
        yield Row(f"{what}: calls that the host's driver answered", helper["calls"], "calls")
    for after in of(lines, "after"):
        yield Row("the GPU's memory after all ended, by the host", after["mib"], "MiB", None, "== 0")
        yield Row("lines in the host's kernel log", len(after["log"]), "lines", None, "== 0")
