# SPDX-License-Identifier: Apache-2.0
"""``detshare bench forwarded``: judges what a packed guest saw of detshare.ko on a real GPU (`nvfwd/claims`).

The host's own account is the truth: NVML's memory of the helper, through which all programs of the guest go.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from detshare.tools import results
from detshare.tools.results import Row

__all__ = ["forwarded", "read", "rows"]

NAME: Final = "forwarded"
MIB: Final = 1 << 20
OUT_OF_MEMORY: Final = 2
"""CUDA_ERROR_OUT_OF_MEMORY (cuda.h)"""
PLATEAU: Final = 2
"""readings of the host that are alike"""
Line = dict[str, Any]


def _mib(processes: str) -> int:
    """Of all that nvidia-smi names, a PID and MiB for each."""
    return sum(int(used) for used in re.findall(r"\d+, (\d+)", processes))


def read(folder: Path) -> list[Line]:
    """All that a run left, a line each. OSError, ValueError where it is none."""
    lines: list[Line] = [json.loads(text) for text in (folder / "guest" / "stdout").read_text().splitlines()]
    for text in (folder / "host-memory").read_text().splitlines():
        at, _, rest = text.partition(" ")
        lines.append({"step": "host", "t": float(at), "mib": _mib(rest)})
    lines.append({"step": "helper", **json.loads((folder / "guest" / "helper.log").read_text().splitlines()[-1])})
    said = int((folder / "log-after").read_text()) - int((folder / "log-before").read_text())
    return [*lines, {"step": "after", "mib": _mib((folder / "memory-after").read_text()), "log_lines": said}]


def _memory(some: list[Line], host: list[Line]) -> Iterator[Row]:
    seen = Counter(line["mib"] for line in host)
    steady = [mib for mib, times in seen.items() if times >= PLATEAU]
    for what, key in (("a context", "before"), ("a context and 256 MiB", "after")):
        for line in some:
            if key in line:
                mine = sum(each["memory_used"] for each in line[key]) / MIB
                nearest = min(steady, key=lambda mib, mine=mine: abs(mib - mine), default=0)  # type: ignore[misc]
                yield Row(f"memory: {what}, by the module", mine, "MiB", float(nearest))
                yield Row(f"memory: {what}: distance from the host's figure", abs(mine - nearest), "MiB", None, "< 1")


def _limit(some: list[Line]) -> Iterator[Row]:
    asked = [line for line in some if "answer" in line]
    for number, line in enumerate(asked, 1):
        allowed = number in (2, 4)  # 256 beyond it, 64 below, 64 beyond, 256 without a limit
        what = f"limit: allocation {number} of {line['answer']['mib']} MiB, {'allowed' if allowed else 'beyond it'}"
        wanted = "== 0" if allowed else f"== {OUT_OF_MEMORY}"
        yield Row(f"{what}: libcuda answers", line["answer"]["result"], "CUresult", None, wanted)
        yield Row(f"{what}: took", line["answer"]["us"], "us")


def _hold(name: str, some: list[Line]) -> Iterator[Row]:
    held, _released, last = (line for line in some if "took" not in line)
    yield Row(f"{name}: the call", held["call_ms"], "ms")
    yield Row(f"{name}: requests before it in 1.5 s", held["before"], "requests", None, "> 0")
    yield Row(f"{name}: requests after it in 1.5 s", held["after"], "requests", None, "== 0")
    yield Row(f"{name}: requests in the second after it is let go", last["again"], "requests", None, "> 0")
    lost = last["rest"]["launched"] - last["rest"]["ran"]
    yield Row(f"{name}: kernels launched and not run, of {last['rest']['launched']}", lost, "kernels", None, "== 0")


def _steer(some: list[Line]) -> Iterator[Row]:
    orders = [line[key] for line in some for key in ("answer", "preempt") if key in line]
    refused = sum(not order["tsgs_set"] or bool(order["tsgs_failed"]) for order in orders)
    what = f"slices, levels and a preemption: refused by the driver, of {len(orders)}"
    yield Row(what, refused, "orders", None, "== 0")
    for line in some:
        if "rest" in line:
            rest = line["rest"]
            lost = rest["launched"] - rest["ran"]
            yield Row(f"meanwhile: kernels launched and not run, of {rest['launched']}", lost, "kernels", None, "== 0")


def _mix(some: list[Line]) -> Iterator[Row]:
    by_scheme = {line["scheme"]: line for line in some if "scheme" in line}
    alone = by_scheme.get("alone")
    for scheme, line in by_scheme.items():
        what = f"mix, {scheme}"
        base = None if alone is None or scheme == "alone" else float(alone["p99"])
        yield Row(f"{what}: p50", line["p50"], "us")
        yield Row(f"{what}: p99 of {line['requests']} requests", line["p99"], "us", base)
        yield Row(f"{what}: background", line["useful"] / line["seconds"], "of the time")


def rows(lines: list[Line]) -> list[Row]:
    """What was claimed, and what was seen."""
    by_step: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        by_step[line["step"]].append(line)
    failed = {line["step"]: line["failed"] for line in lines if "failed" in line}
    whole = {name: some for name, some in by_step.items() if name not in failed}
    found = [*_memory(by_step["memory"], by_step["host"]), *_limit(by_step["limit"])]
    for name in ("gate", "pause"):
        if name in whole:
            found += _hold(name, whole[name])
    found += _steer(whole.get("steer", []))
    found += _mix(by_step["mix"])
    killed = sum("ended" in line for line in by_step["storm"])
    (helper,), (after,) = by_step["helper"], by_step["after"]
    left = sum(helper[name] for name in ("handles", "maps", "pins", "waits"))
    what = f"storm: {killed} programs killed: what the helper holds at the end"
    found.append(Row(what, left, "objects", None, "== 0"))
    found.append(Row("the GPU's memory after all ended, by the host", after["mib"], "MiB", None, "== 0"))
    found.append(Row("calls that the host's driver answered", helper["calls"], "calls"))
    found.append(Row("lines in the host's kernel log", after["log_lines"], "lines", None, "== 0"))
    found.append(Row("steps that were not done", len(failed), "steps", None, "== 0"))
    return found


@click.command(NAME, epilog="Example: detshare bench forwarded first-claims")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False, exists=True))
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("docs/results"),
    show_default=True,
    help="Folder of the results.",
)
@click.option("--json", "as_json", is_flag=True, help="One line of JSON, for programs.")
def forwarded(folder: Path, out: Path, as_json: bool) -> None:
    """What detshare.ko does on a real GPU, from the raw output of `nvfwd/claims` (FOLDER, see detshare-vm pack).

    Writes forwarded.json. Exit code 1 where a target is missed.
    """
    try:
        lines = read(folder)
        machine = "; ".join((folder / "machine").read_text().split("\n")).strip("; ")
        commit = (folder / "commit").read_text().strip()
        made = rows(lines)
    except (OSError, ValueError, KeyError) as error:
        raise click.ClickException(
            f"bench {NAME} {folder}: {type(error).__name__}: {error}; name a folder that nvfwd/claims wrote to its end"
        ) from error
    raw = out / "raw" / f"{NAME}.jsonl.gz"
    raw.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(raw, "wt", encoding="utf-8") as stream:
        stream.write("".join(json.dumps(line) + "\n" for line in lines))
    command = f"detshare bench {NAME} FOLDER, of nvfwd/claims FOLDER CHECKOUT"
    result = results.Result(NAME, "gpu, forwarded", command, commit, machine, results.now(), tuple(made))
    path = results.write(result, out)
    missed = [row for row in made if row.ok is False]
    if as_json:
        click.echo(json.dumps({"wrote": str(path), "rows": len(made), "missed": [row.what for row in missed]}))
    else:
        for row in made:
            judged = "" if row.ok is None else "pass" if row.ok else "FAIL"
            click.echo(f"{row.what:80} {row.value:10.5g} {row.unit:12} {judged}")
        click.echo(f"wrote {path}")
    raise SystemExit(1 if missed else 0)
