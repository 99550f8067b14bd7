# SPDX-License-Identifier: Apache-2.0
"""`dirty` beside PyTorch: what it reports of each training step and token, and what changed by sums made on the GPU."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from detshare.ctl.rm.nvml import architectures
from detshare.ebpf.dirty import DirtyTracer
from detshare.ebpf.epochs import Epoch
from detshare.tools.bench.catalog import WORKLOADS
from detshare.tools.bench.ebpf.part import Line, Part, main, of, say
from detshare.tools.bench.ebpf.told import Told
from detshare.tools.results import Row

_CHANGED = "allocations that changed"
_NAMES = {
    "resnet": "ResNet-50 training step",
    "gpt": "GPT training step",
    "decode": "decode token",
    "plain": "a fill of one of eight allocations",
}


def missed(changed: Sequence[tuple[int, int]], dirty: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Of ranges (address, bytes) those that do not lie within reported ones, neighbours taken together."""
    joined: list[list[int]] = []
    for address, size in sorted(dirty):
        if joined and address <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], address + size)
        else:
            joined.append([address, address + size])
    return [(a, n) for a, n in changed if not any(low <= a and a + n <= high for low, high in joined)]


def _ranges(epoch: Epoch, dirty: bool) -> list[tuple[int, int]]:
    return [(each.address, each.size) for each in (epoch.dirty if dirty else epoch.allocations)]


def steps(model: str, quick: bool, *words: str, strict: bool = False) -> None:
    """Steps of a model, an epoch each."""
    tracer = DirtyTracer(devices=architectures(), strict=strict)
    time.sleep(0.05)  # a program's begin is known to a hundredth of a second
    spent = 0.0

    def note() -> None:
        nonlocal spent
        begun = time.process_time()
        tracer.poll(0.002)
        spent += time.process_time() - begun

    begun = time.monotonic()
    argv = [sys.executable, str(WORKLOADS / "steps.py"), "--model", model, *words]
    try:
        with Told(model, argv) as program:
            ready = program.answer(170, note)
            started = tracer.end_epoch(program.pid)
            say(
                "began",
                model=model,
                strict=strict,
                seconds=time.monotonic() - begun,
                reading_s=spent,
                ready=ready,
                epoch=started.to_json(),
                loader=tracer.how,
                notes=tracer.notes(),
                architectures=sorted(tracer_devices(tracer)),
                images=images(tracer, program.pid),
            )
            for number in range(3 if quick else 8):
                program.say(json.dumps({"do": "run"}), 60, note)
                found = tracer.end_epoch(program.pid)
                say("ran", model=model, strict=strict, number=number, **_told(found))
            for number in range(3 if quick else 8):
                also = _ranges(found, False)
                answer = program.say(json.dumps({"do": "step", "also": also}), 90, note)
                found = tracer.end_epoch(program.pid)
                changed = [(a, n) for a, n, _, _ in answer["changed"]]
                lost = missed(changed, _ranges(found, True))
                unknown = missed([(a, n) for a, n in answer["segments"]], _ranges(found, False))
                say(
                    "stepped",
                    model=model,
                    strict=strict,
                    number=number,
                    **_told(found),
                    compared=answer["compared"],
                    changed=len(changed),
                    changed_bytes=sum(n for _, n in changed),
                    changed_blocks=sum(b for _, _, b, _ in answer["changed"]) << 21,
                    missed=len(lost),
                    missed_ranges=[[hex(a), n] for a, n in lost[:10]],
                    unknown=len(unknown),
                    unknown_ranges=[[hex(a), n] for a, n in unknown[:10]],
                    fresh=len(answer["fresh"]),
                    gone=answer["gone"],
                )
            trouble = tracer.trouble()
            say(
                "ended",
                model=model,
                strict=strict,
                lost=trouble.lost,
                full=trouble.full,
                unread=trouble.unread,
                notes=tracer.notes(),
                reading_s=spent,
            )
    finally:
        tracer.close()


def tracer_devices(tracer: DirtyTracer) -> frozenset[int]:
    """Architectures that images are read for."""
    return tracer._devices


def images(tracer: DirtyTracer, pid: int) -> dict[str, Any]:
    """What was understood of a program's modules, for whoever asks why everything is dirty."""
    process = tracer._processes.get(pid)
    if process is None:
        return {}
    kernels = [each for each in process.functions.values() if each is not None]
    return {
        "modules": len(process.modules),
        "not_understood": dict(process.unknown),
        "functions": len(process.functions),
        "unknown_functions": sum(each is None for each in process.functions.values()),
        "anywhere": sorted({f"{each.name[:80]}: {each.anywhere}" for each in kernels if each.anywhere})[:20],
        "assumed": sum(bool(each.assumed) for each in kernels),
        "image_bytes": process.kept,
        "image_seconds": round(process.spent, 2),
        "contexts": len(process.contexts),
        "calls": len(process.calls),
    }


def _told(epoch: Epoch) -> dict[str, Any]:
    told = epoch.to_json()
    del told["pid"]
    told["partial"] = [text[:400] for text in told["partial"]]
    told["reasons"] = [text[:400] for text in told["reasons"]]
    return told


def resnet(quick: bool) -> None:
    """ResNet-50."""
    steps("resnet", quick)


def gpt(quick: bool) -> None:
    """A small GPT, its optimizer in one kernel."""
    steps("gpt", quick)


def decode(quick: bool) -> None:
    """Tokens, each a CUDA graph."""
    steps("decode", quick, *(("--layers", "4") if quick else ()))


def plain(quick: bool) -> None:
    """No PyTorch; of which everything is known."""
    on_host = () if Path("/dev/nvidiactl").exists() else ("--on-host",)
    steps("plain", quick, *on_host)


PARTS = {
    "plain": Part(plain, 60),
    "decode": Part(decode, 150),
    "resnet": Part(resnet, 180),
    "gpt": Part(gpt, 180),
}


def rows(lines: list[Line]) -> list[Row]:
    """Figures of what was measured."""
    found: list[Row] = []
    for model, what in _NAMES.items():
        both = [line for line in lines if line["event"] in ("ran", "stepped") and line.get("model") == model]
        if not both:
            continue
        total, dirty = (median(x[name] for x in both) for name in ("total_bytes", "dirty_bytes"))
        found.append(Row(f"{what}: bytes allocated, median epoch", total, "bytes"))
        found.append(Row(f"{what}: bytes that may be dirty, median epoch", dirty, "bytes"))
        found.append(Row(f"{what}: share of them, median epoch", 100 * median(x["share"] for x in both), "%"))
        whole = sum(bool(x["reasons"]) for x in both)
        found.append(Row(f"{what}: epochs in which all memory had to be called dirty", whole, f"of {len(both)}"))
        partial = sum(bool(x["partial"]) for x in both)
        found.append(Row(f"{what}: epochs that were called partial", partial, f"of {len(both)}"))
        if checked := of(both, "stepped"):
            missing, unknown = (sum(x[name] for x in checked) for name in ("missed", "unknown"))
            reported, summed = (sum(x[name] for x in checked) for name in ("dirty_bytes", "changed_blocks"))
            blocks, unit = median(x["changed_blocks"] for x in checked), "allocations"
            found += [
                Row(f"{what}: epochs with sums of all memory before and after", len(checked), "epochs", target=">= 3"),
                Row(f"{what}: {_CHANGED}, median", median(x["changed"] for x in checked), unit, target="> 0"),
                Row(f"{what}: bytes of blocks of 2 MiB in them that changed, median", blocks, "bytes"),
                Row(f"{what}: bytes reported for each of them, these epochs", reported / max(1, summed), "x"),
                Row(f"{what}: {_CHANGED} and were not reported", missing, unit, target="== 0"),
                Row(f"{what}: memory of its own that was not known", unknown, unit, target="== 0"),
            ]
        for line in of(lines, "ended", model=model):
            found.append(
                Row(f"{what}: events lost", line["lost"] + line["full"] + line["unread"], "events", target="== 0")
            )
    return found


if __name__ == "__main__":
    main(PARTS)
