# SPDX-License-Identifier: Apache-2.0
"""``python -m detshare.tools.replay TRACE``: say a recorded program to this machine's driver, compare the answers."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from detshare.tools.replay.convert import convert
from detshare.tools.replay.records import TraceError, read
from detshare.tools.replay.run import CLIENTS, Report, RunError, build, replay

EXAMPLE = """example, in a virtual machine with the simulated driver:
  detshare-vm run --driver sim -- .venv/bin/python -m detshare.tools.replay tests/data/traces/NAME.jsonl.gz
"""
SHOWN = 40


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m detshare.tools.replay",
        description="Replay a recorded trace: every call once more, every returned status, handle and size compared.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("trace", type=Path, help="recorded trace, .jsonl or .jsonl.gz")
    parser.add_argument("--json", action="store_true", help="print the report as one JSON document")
    parser.add_argument("--script", type=Path, metavar="FILE", help="only convert: write nvreplay's script to FILE")
    parser.add_argument("--layout", default="580.142", metavar="VERSION", help="ABI table of the recording (580.142)")
    parser.add_argument("--clients", type=Path, metavar="DIR", help=f"where nvreplay is or is built ({CLIENTS})")
    return parser.parse_args(argv)


def _print(report: Report) -> None:
    for mismatch in report.mismatches[:SHOWN]:
        print(mismatch)
    if len(report.mismatches) > SHOWN:
        print(f"... and {len(report.mismatches) - SHOWN} more; --json lists all")
    print(report)


def main(argv: Sequence[str] | None = None) -> int:
    """0: the driver answered as recorded; 1: it did not, or it could not be asked; 2: bad usage."""
    args = _arguments(argv)
    try:
        script = convert(read(args.trace), args.trace.name.split(".")[0], args.layout).pack()
    except (OSError, TraceError) as error:
        print(f"convert {args.trace}: {error}", file=sys.stderr)
        return 1
    except KeyError as error:
        print(f"convert {args.trace}: no ABI table has {error}; name a --layout that does", file=sys.stderr)
        return 2
    try:
        if args.script is not None:
            args.script.write_bytes(script)
            return 0
        if not Path("/dev/nvidiactl").exists():
            raise RunError("replay: /dev/nvidiactl is not there; load a driver, or run this in detshare-vm")
        clients = args.clients or CLIENTS
        if not (clients / "nvreplay").exists():
            build(clients)
        with tempfile.NamedTemporaryFile(suffix=".nvr") as file:
            file.write(script)
            file.flush()
            report = replay(Path(file.name), clients)
    except (OSError, RunError) as error:
        print(error, file=sys.stderr)
        return 1
    if args.json:
        print(json.dumps(report.to_json()))
    else:
        _print(report)
    return 0 if report.agrees else 1


if __name__ == "__main__":
    sys.exit(main())
