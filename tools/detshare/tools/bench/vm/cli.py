# SPDX-License-Identifier: Apache-2.0
"""The experiments of ``detshare bench`` that run in guests of this machine, without a GPU."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

from detshare.tools.bench.ebpf import experiment
from detshare.tools.bench.ebpf.part import PartError
from detshare.tools.bench.vm import (
    daemon_recovery,
    fuzz,
    hostile,
    interception,
    kill_storm,
    observers,
    quota_attack,
    root_backend,
    sched,
    stress,
    unload,
)
from detshare.tools.bench.vm.machines import (
    ALL,
    GENUINE_550,
    MACHINES,
    SIM_DEBUG,
    SIMULATED,
    ExperimentError,
    Machine,
    given,
)
from detshare.tools.bench.vm.report import Report

__all__ = ["COMMANDS"]

GPU = "gpu"
"""this machine with its GPU, instead of a guest"""


@dataclass(frozen=True)
class _Scale:
    """How much an experiment does: in full, and with --quick."""

    summary: str
    option: str
    meaning: str
    full: int
    quick: int
    on: tuple[str, ...]
    takes: str
    can: tuple[str, ...] = tuple(MACHINES)
    """machines that --on accepts"""
    seeded: bool = False
    """whether there is a --seed"""


_SCALES = {
    "interception": _Scale(
        "What the module adds to an ioctl.", "--rounds", "With and without.", 5, 2, ("535", "550", "sim"), "5 min"
    ),
    "quota-attack": _Scale(
        "Threads that race for more memory than a limit allows.",
        "--seconds",
        "Of attack.",
        600,
        60,
        ("sim",),
        "15 min",
        tuple(SIMULATED),
    ),
    "kill-storm": _Scale(
        "kill -9 of clients in mid-allocation.", "--clients", "Killed.", 1000, 100, ("sim",), "5 min", tuple(SIMULATED)
    ),
    "sched": _Scale(
        "Latency by class, shares, buckets, gates, events and floors of the module.",
        "--seconds",
        "Of one measurement.",
        10,
        3,
        ("sim", "sim-6.1"),
        "12 min",
        tuple(SIMULATED),
    ),
    "sched-mixes": _Scale(
        "A high class beside one, two and three programs of a low one: slices alone, turns.",
        "--seconds",
        "Of one measurement.",
        6,
        3,
        ("sim", "sim-6.1"),
        "5 min",
        tuple(SIMULATED),
    ),
    "hostile": _Scale(
        "A hostile tenant against its orders, holds and neighbours.",
        "--people",
        "That it plays on each kernel: 1, root as in a container on 6.12, an ordinary user on 6.1; 2, both.",
        2,
        1,
        ("sim", "sim-6.1"),
        "40 min",
        tuple(SIMULATED),
    ),
    "daemon-recovery": _Scale(
        "kill -9 of the daemon at random points under load.",
        "--kills",
        "Of daemons.",
        100,
        8,
        ("sim",),
        "40 min",
        ("sim",),
        seeded=True,
    ),
    "stress": _Scale(
        "Random orders, limits, births, deaths and reloads at once, on the instrumented kernel.",
        "--seconds",
        "Of each machine.",
        1800,
        120,
        ("sim-debug",),
        "40 min",
        tuple(SIMULATED),
        seeded=True,
    ),
    "unload": _Scale(
        "insmod and rmmod while programs call the driver.",
        "--rounds",
        "Of both.",
        100,
        8,
        ("535", "550", "sim"),
        "25 min",
    ),
    "ebpf-counts": _Scale(
        "Known numbers of launches, copies, allocations, births and deaths, as observers see them.",
        "--rounds",
        "Of the one set.",
        1,
        1,
        ("sim", "sim-6.1"),
        "10 min",
        tuple(SIMULATED),
    ),
    "root-backend": _Scale(
        "Backend root that hears of births by eBPF: what it hears of, and how soon programs have their class.",
        "--births",
        "Of programs, in each part.",
        50,
        6,
        ("sim", "sim-6.1"),
        "15 min",
        ("sim", "sim-6.1", GPU),
    ),
    "ebpf-objects": _Scale(
        "RM objects as the observer tells of them beside a recorder in the program, and storms of RM calls.",
        "--rounds",
        "Of the one set.",
        1,
        1,
        (GPU,),
        "5 min",
        (GPU,),
    ),
    "ebpf-overhead": _Scale(
        "What observers add to a launch and, in guests, to a call.",
        "--rounds",
        "With and without.",
        5,
        1,
        ("here",),
        "5 min",
        ("here", *SIMULATED, GPU),
    ),
    "dirty": _Scale(
        "Memory that observers call dirty beside what random programs wrote.",
        "--programs",
        "Random ones, 5 epochs each.",
        200,
        20,
        ("here",),
        "5 min",
        ("here", *SIMULATED, GPU),
    ),
    "fuzz": _Scale(
        "Random ioctls, with and without the module.",
        "--calls",
        "Of all seeds.",
        1_000_000,
        40_000,
        ("535", "sim"),
        "45 min",
        tuple(ALL),
    ),
}


def _measure(name: str, report: Report, machine: Machine, amount: int, seed: int) -> None:
    """The rows of one machine."""
    if name == "daemon-recovery":
        daemon_recovery.measure(report, amount, seed)
    elif name == "root-backend":
        root_backend.measure(report, machine, amount)
    elif name in observers.MEASURES:
        observers.MEASURES[name](report, machine, amount)
    elif name == "stress":
        stress.measure(report, machine, amount, seed)
    elif name == "hostile":
        hostile.measure(report, machine, hostile.people(machine)[:amount])
    elif name == "sched":
        sched.measure(report, machine, amount)
    elif name == "sched-mixes":
        sched.measure(report, machine, amount, sched.MIXES)
    elif name == "interception":
        interception.measure(report, machine, amount)
    elif name == "unload":
        unload.measure(report, machine, amount)
    elif name == "fuzz":
        fuzz.measure(report, machine, amount // 4, (1, 2, 3, 4))
    elif name == "kill-storm":
        kill_storm.measure(report, amount // 10, 9, amount // 10, machine)
    else:
        control = min(30, amount)
        quota_attack.measure(report, amount, control, machine=machine)
        quota_attack.measure(report, max(20, amount // 5), control, threads=4, processes=2, machine=machine)


def _terminated(number: int, _frame: object) -> None:
    """Leave by an exception, so that no guest outlives the experiment."""
    raise SystemExit(128 + number)


def _run(
    name: str, machines: tuple[str, ...], amount: int, seed: int | None, option: str, out: Path, driver: Path | None
) -> None:
    """One result for each level of proof: NAME for the stronger one, NAME-sim beside it. The instrumented kernel alone
    makes NAME-debug, a driver of a folder NAME-BRANCH.
    """
    signal.signal(signal.SIGTERM, _terminated)
    try:
        chosen = [ALL[each] for each in machines] if driver is None else [given(driver)]
    except ExperimentError as error:
        raise click.ClickException(f"bench {name}: {error}") from error
    proofs = sorted({machine.proof for machine in chosen})
    where = [f"--on {each}" for each in machines] if driver is None else [f"--driver {chosen[0].label}"]
    words = (option, str(amount), *where, *(("--seed", str(seed)) if seed else ()))
    command = " ".join(("detshare bench", name, *words))
    missed = 0
    for proof in proofs:
        own = f"-{chosen[0].name}" if driver is not None else ""
        suffix = (
            own or "-debug" if own or chosen == [SIM_DEBUG] else "" if len(proofs) == 1 or proof == "driver" else "-sim"
        )
        report = Report(f"{name}{suffix}", proof, command)
        try:
            for machine in chosen:
                if machine.proof == proof:
                    _measure(name, report, machine, amount, seed or 1)
        except ExperimentError as error:
            raise click.ClickException(f"bench {name} stopped, nothing was written: {error}") from error
        path = report.write(out)
        judged = [row.ok for row in report.rows if row.ok is not None]
        click.echo(f"{path}: {sum(judged)} of {len(judged)} targets met, {len(report.rows)} rows")
        for row in report.missed:
            click.echo(f"  not met: {row.what}: {row.value:g} {row.unit}, target {row.target}")
        missed += len(report.missed)
    if missed:
        raise SystemExit(1)


def _run_on_gpu(name: str, out: Path, quick: bool, parts: tuple[str, ...]) -> None:
    if os.geteuid() or not Path("/dev/nvidiactl").exists():
        missing = "root" if os.geteuid() else "an NVIDIA GPU with its driver loaded: there is no /dev/nvidiactl here"
        raise click.ClickException(f"bench {name} --on {GPU} needs {missing}")
    signal.signal(signal.SIGTERM, _terminated)
    try:
        rows = experiment.measure(name, out, quick, parts)
    except PartError as error:
        raise click.ClickException(f"bench {name} on the GPU: {error}") from error
    judged = [row.ok for row in rows if row.ok is not None]
    click.echo(f"{out / name}-gpu.json: {sum(judged)} of {len(judged)} targets met, {len(rows)} rows")
    missed = [row for row in rows if row.ok is False]
    for row in missed:
        click.echo(f"  not met: {row.what}: {row.value:g} {row.unit}, target {row.target}")
    if missed:
        raise SystemExit(1)


def _command(name: str, scale: _Scale) -> click.Command:
    def body(
        amount: int | None,
        machines: tuple[str, ...],
        out: Path,
        quick: bool,
        seed: int | None = None,
        parts: tuple[str, ...] = (),
        driver: Path | None = None,
    ) -> None:
        chosen = machines or scale.on
        if GPU in chosen:
            if set(chosen) != {GPU}:
                raise click.UsageError(f"--on {GPU} makes a result of its own; name it alone")
            _run_on_gpu(name, out, quick, parts)
            return
        if parts:
            raise click.UsageError(f"--part is of --on {GPU}")
        if driver is not None and machines:
            raise click.UsageError("--driver is a machine of its own; leave --on out")
        done = amount or (scale.quick if quick else scale.full)
        _run(name, machines or scale.on, done, seed, scale.option, out, driver)

    where = "In guests of this machine (QEMU), no GPU needed"
    if "here" in scale.on:
        where = "On this machine as root, no GPU needed"
    elif GPU in scale.on:
        where = "On this machine's GPU, as root"
    about = f"{scale.summary} {where}. Takes about {scale.takes}."
    if GPU in scale.can and GPU not in scale.on:
        about += f" With --on {GPU} it is another measurement, on this machine's GPU."
    parameters: list[click.Parameter] = [
        click.Option(
            [scale.option, "amount"], type=click.IntRange(1), help=f"{scale.meaning}  [default: {scale.full}]"
        ),
        click.Option(
            ["--on", "machines"],
            type=click.Choice(scale.can),
            multiple=True,
            help=f"Driver in the guest, or this machine; may be repeated.  [default: {', '.join(scale.on)}]",
        ),
        click.Option(
            ["--out"],
            type=click.Path(path_type=Path, file_okay=False),
            default=Path("docs/results"),
            show_default=True,
            help="Folder of the results.",
        ),
        click.Option(["--quick"], is_flag=True, help=f"{scale.option} {scale.quick}, for a first look."),
    ]
    if scale.seeded:
        parameters.append(
            click.Option(
                ["--seed"], type=click.IntRange(1), default=1, show_default=True, help="Of every random choice."
            )
        )
    if GENUINE_550.name in scale.can:
        text = "Instead of --on: a folder with nvidia.ko and nvidia-uvm.ko of another branch, built for kernel 6.12."
        folder = click.Path(path_type=Path, exists=True, file_okay=False)
        parameters.append(click.Option(["--driver"], metavar="DIR", type=folder, help=text))
    if GPU in scale.can:
        known = tuple(experiment.parts(name))
        text = f"With --on {GPU}: this part of it alone; may be repeated."
        parameters.append(click.Option(["--part", "parts"], type=click.Choice(known), multiple=True, help=text))
    callback: Callable[..., None] = body
    epilog = f"\b\nExample:\n  detshare bench {name} --quick --out /tmp/results"
    return click.Command(name, params=parameters, callback=callback, help=about, epilog=epilog)


COMMANDS = tuple(_command(name, scale) for name, scale in _SCALES.items())
