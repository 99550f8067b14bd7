# SPDX-License-Identifier: Apache-2.0
"""The command that tells how much of its memory a program writes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any, Final

import click

from detshare.ctl.cli import tables
from detshare.ctl.cli.command import command
from detshare.ctl.cli.link import Place
from detshare.ctl.core import options
from detshare.ctl.core.errors import ControlError
from detshare.ebpf import show
from detshare.ebpf.epochs import KEPT

_INTERVAL: Final = 1.0
_PATIENCE: Final = 30.0
"""seconds that cutting an epoch may take on a loaded machine"""
_MORE: Final = """\
What was allocated before the watch began is not known: such rows say partial. A daemon that watches from the
start (daemon.dirty in its configuration) knows programs from their begin on; it is asked where there is one.
Exit codes: 0 told, 1 not told, 2 cannot be meant.
"""


@command("dirty", "sudo detshare-ctl dirty 4242 --epochs 3", _MORE)
@click.argument("pid", type=click.IntRange(1, 4_194_304))
@click.option("--epochs", type=click.IntRange(1, KEPT), default=1, show_default=True, help="How many.")
@click.option(
    "--interval",
    type=options.Seconds(0.1, 3600),
    metavar="SECONDS",
    help=f"Of an epoch; asks no daemon.  [default: {_INTERVAL:g}]",
)
@click.option("--strict", is_flag=True, help="A kernel of which there is only machine code writes anywhere; no daemon.")
@click.option("--libcuda", multiple=True, metavar="FILE", help="Watch this libcuda.so.1 too; asks no daemon.")
def dirty(
    place: Place, as_json: bool, pid: int, epochs: int, interval: float | None, strict: bool, libcuda: tuple[str, ...]
) -> None:
    """Show how much of its GPU memory a program may have written, by epochs.

    Never too little, unless the row says partial. By the daemon where that watches, the last epochs; else by itself,
    those to come, which needs root.
    """
    asked = f"dirty {pid}"
    if not os.path.exists(f"/proc/{pid}"):
        raise ControlError(asked, "there is no such process", "see which hold a GPU: detshare-ctl ps")
    client = place.client()
    told: dict[str, Any] = {"watching": False, "why": "it is not asked"}
    if interval is None and not strict and not libcuda and client.alive():
        told = client.dirty(pid)
        if told["watching"] and not told["epochs"]:
            raise ControlError(asked, "the daemon has seen no call of it to CUDA", "see who does: detshare-ctl ps")
    answer: dict[str, Any] = {"pid": pid, "by": "daemon" if told["watching"] else "detshare-ctl"}
    if not as_json:
        click.echo(f"{'EPOCH':>6} {'MEMORY':>7} {'DIRTY':>7} SHARE ALLOCATIONS")
    if told["watching"]:
        answer |= {"interval": told["interval"], "epochs": told["epochs"][-epochs:], "partial": told["partial"]}
        rows: Iterator[dict[str, Any]] = iter(answer["epochs"])
        _print(rows, as_json)
    else:
        if os.geteuid() != 0:
            stopped = f"watching needs root (you are uid {os.geteuid()}), and of the daemon: {told['why']}"
            raise ControlError(asked, stopped, "run it with sudo, or set daemon.dirty in the daemon's configuration")
        notes: list[str] = []
        rows = _watched(asked, pid, epochs, interval or _INTERVAL, notes, strict, libcuda)
        answer |= {"interval": interval or _INTERVAL, "epochs": _print(rows, as_json), "partial": notes}
    if as_json:
        click.echo(json.dumps(answer, indent=1))
    else:
        show.partial(answer["partial"])


def _print(rows: Iterator[dict[str, Any]], as_json: bool) -> list[dict[str, Any]]:
    seen = []
    for each in rows:
        seen.append(each)
        if as_json:
            continue
        why = tables.clean("; ".join([*each["reasons"], *(f"partial: {text}" for text in each["partial"])]))
        click.echo(
            f"{each['epoch']:6d} {show.amount(each['total_bytes']):>7} {show.amount(each['dirty_bytes']):>7} "
            f"{each['share']:5.0%} {each['dirty']:4d}/{each['allocations']:<4d} {why}".rstrip()
        )
    return seen


def _watched(
    asked: str, pid: int, epochs: int, interval: float, notes: list[str], strict: bool, libcuda: tuple[str, ...]
) -> Iterator[dict[str, Any]]:
    """Epochs as they end; `notes` is filled at the end."""
    # not at the top: no other command is to wait for them
    from detshare.ctl.rm import nvml
    from detshare.ebpf import checks
    from detshare.ebpf.dirty_watch import DirtyWatch
    from detshare.ebpf.errors import EbpfError

    if foreign := checks.foreign_pids():
        raise ControlError(asked, foreign, "run in the host's pid namespace (docker: --pid=host)")
    try:
        watch = DirtyWatch(interval, only=pid, libcuda=libcuda, devices=nvml.architectures(), strict=strict)
    except EbpfError as error:
        raise ControlError(asked, error.why, error.advice) from error
    try:
        last = -1
        for _ in range(epochs):
            found = watch.wait(pid, last, interval + _PATIENCE)
            if not found:
                stopped = "; ".join(watch.notes()) or "no epoch ended in time"
                raise ControlError(asked, stopped, "try again; what can be watched here: detshare-trace doctor")
            last = found[0].number
            yield found[0].to_json()
            if not os.path.exists(f"/proc/{pid}"):
                notes.append(f"PID {pid} has ended")
                break
        notes += watch.notes()
    finally:
        watch.close()
