# SPDX-License-Identifier: Apache-2.0
"""``python -m detshare.tools.replay.conformance``: both recorded programs against the simulated driver, in guests.

Each trace is replayed on each kernel, without and with detshare.ko (where no limit is set, it must change nothing).
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from detshare.tools.replay.convert import convert
from detshare.tools.replay.records import read
from detshare.tools.replay.run import CHECKOUT, CLIENTS, Report, RunError, build, parse
from detshare.tools.results import Result, ResultError, Row, commit, machine, now, write

__all__ = ["Setting", "convert_all", "main", "rows", "run_guest"]

TRACES = CHECKOUT / "tests" / "data" / "traces"
KERNELS = ("6.1", "6.12")
TIMEOUT_S = 180
EXAMPLE = "example: python -m detshare.tools.replay.conformance --out docs/results"


@dataclass(frozen=True, slots=True)
class Setting:
    """Where a replay runs."""

    kernel: str
    module: bool

    def __str__(self) -> str:
        return f"Linux {self.kernel}{', with detshare.ko' if self.module else ''}"


def convert_all(folder: Path) -> list[Path]:
    """The scripts of all traces of the checkout, written to `folder`. Raises OSError, TraceError."""
    scripts = []
    for trace in sorted(TRACES.glob("*.jsonl.gz")):
        script = folder / f"{trace.name.split('.')[0]}.nvr"
        script.write_bytes(convert(read(trace), script.stem).pack())
        scripts.append(script)
    return scripts


def run_guest(setting: Setting, folder: Path, scripts: Sequence[Path], clients: Path = CLIENTS) -> list[Report]:
    """Replay the scripts, which lie in `folder`, one after the other in one guest. Raises RunError."""
    words = [sys.executable, "-P", "-m", "detshare.tools.vm.cli", "run", "--quiet", "--kernel", setting.kernel]
    words += [
        "--driver",
        "sim",
        "--timeout",
        str(TIMEOUT_S),
        "--mount",
        str(folder),
        *(["--load"] if setting.module else []),
    ]
    each = "; ".join(f"{clients / 'nvreplay'} {script}" for script in scripts)
    done = subprocess.run([*words, "--", "sh", "-c", each], capture_output=True, text=True, check=False)
    # 1: answers differ, which the reports tell. The kernel's own faults are told on standard error.
    if done.returncode not in (0, 1) or "the kernel reported a fault" in done.stderr:
        raise RunError(f"replay on {setting}: detshare-vm ended with {done.returncode}\n{done.stderr.strip()}")
    reports = parse(done.stdout)
    if len(reports) != len(scripts):
        raise RunError(
            f"replay on {setting}: {len(reports)} of {len(scripts)} replays came to an end\n{done.stderr.strip()}"
        )
    return reports


def rows(setting: Setting, reports: Sequence[Report]) -> list[Row]:
    """What a result says of one guest."""
    found = []
    for report in reports:
        where = f"{report.trace}, {setting}"
        accepted, values = float(report.accepted), float(len(report.mismatches))
        calls = float(report.calls)
        found.append(Row(f"{where}: calls with the recorded status", accepted, "calls", calls, ">= 1 x baseline"))
        found.append(Row(f"{where}: values that differ", values, f"of {report.checks}", None, "== 0"))
    return found


def _save(out: Path, name: str, table: list[Row], raw: list[dict[str, Any]], command: str) -> Path:
    where = f"QEMU guest (TCG), simulated driver 580.159.04; host: {machine()}"
    path = write(Result(name, "model", command, commit(), where, now(), tuple(table)), out)
    (out / "raw").mkdir(exist_ok=True)
    with gzip.GzipFile(out / "raw" / f"{name}.jsonl.gz", "wb", mtime=0) as stream:
        for line in raw:
            stream.write((json.dumps(line) + "\n").encode())
    return path


def main(argv: Sequence[str] | None = None) -> int:
    """0: all agree with the records; 1: not, or they could not be replayed; 2: bad usage."""
    parser = argparse.ArgumentParser(
        prog="python -m detshare.tools.replay.conformance", description=__doc__, epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--out", type=Path, metavar="DIR", help="write conformance.json and its raw output there")
    parser.add_argument("--kernel", action="append", choices=KERNELS, help="only this one; may be repeated")
    parser.add_argument("--without-module", action="store_true", help="leave out the runs with detshare.ko")
    parser.add_argument("--json", action="store_true", help="print all reports as one JSON document")
    args = parser.parse_args(argv)
    settings = [
        Setting(kernel, module)
        for kernel in args.kernel or KERNELS
        for module in ((False,) if args.without_module else (False, True))
    ]
    table: list[Row] = []
    raw: list[dict[str, Any]] = []
    try:
        build()
        with tempfile.TemporaryDirectory(prefix="conformance-") as name:
            scripts = convert_all(Path(name))
            for setting in settings:
                reports = run_guest(setting, Path(name), scripts)
                table += rows(setting, reports)
                raw += [{"kernel": setting.kernel, "module": setting.module, **r.to_json()} for r in reports]
                if not args.json:
                    for report in reports:
                        print(f"{setting}: {report}", flush=True)
        if args.out is not None:
            _save(args.out, "conformance", table, raw, "python -m detshare.tools.replay.conformance")
    except (OSError, ValueError, RunError, ResultError) as error:
        print(error, file=sys.stderr)
        return 1
    if args.json:
        print(json.dumps(raw))
    return 0 if all(row.ok for row in table) else 1


if __name__ == "__main__":
    sys.exit(main())
