# SPDX-License-Identifier: Apache-2.0
"""``detshare bench NAME``: the command line of the experiments."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from detshare.ctl.core.options import Seconds
from detshare.tools.bench.beside import beside
from detshare.tools.bench.checked import CHECKED
from detshare.tools.bench.conduct import conduct
from detshare.tools.bench.field.cli import field as of_the_field
from detshare.tools.bench.forwarded import forwarded
from detshare.tools.bench.gates import gates
from detshare.tools.bench.launch_path import launch_path
from detshare.tools.bench.mix.cli import COMMANDS as MIXES
from detshare.tools.bench.page import page
from detshare.tools.bench.policies import policies
from detshare.tools.bench.rm_core import rm_core
from detshare.tools.bench.scale.cli import scale
from detshare.tools.bench.session import Options
from detshare.tools.bench.sim_validation import sim_validation
from detshare.tools.bench.vm.cli import COMMANDS

__all__ = ["bench"]


@dataclass(frozen=True)
class Experiment:
    """Defaults of an experiment: seconds of one slot and rounds, in full and with --quick."""

    summary: str
    seconds: float
    rounds: int
    quick_seconds: float
    quick_rounds: int
    takes: str
    budget: float | None = None
    """seconds that --budget-s has unless it is given; None: the experiment has no such option"""
    package: str = "detshare.tools.bench"
    quicker: float = 4.0
    """how many times smaller the budget is with --quick"""
    sized: bool = False
    """whether --mib says how much of the GPU's memory it has"""
    parts: tuple[str, ...] = ()
    """which --part chooses, each measured by itself and taken over by --resume"""

    def module(self, name: str) -> str:
        """The module whose `run` does it."""
        return f"{self.package}.{name.replace('-', '_')}"


def _spatial(summary: str, seconds: float, rounds: int, budget: float) -> Experiment:
    """An experiment on the runtime."""
    takes = f"at most {budget:g} s (--budget-s)"
    package = "detshare.tools.bench.spatial"
    return Experiment(summary, seconds, rounds, max(0.5, seconds / 2), max(1, rounds // 4), takes, budget, package, 2.0)


def _parking(summary: str, takes: str) -> Experiment:
    """An experiment on memory that leaves the GPU; rounds are parks."""
    return Experiment(summary, 1.0, 5, 1.0, 2, takes, package="detshare.tools.bench.parking")


def _parked(
    summary: str, seconds: float, rounds: int, budget: float, sized: bool = False, parts: tuple[str, ...] = ()
) -> Experiment:
    """One with a budget."""
    takes, package = f"at most {budget:g} s (--budget-s)", "detshare.tools.bench.parking"
    less = max(1.0, seconds / 3), max(1, rounds // 5)
    return Experiment(summary, seconds, rounds, *less, takes, budget, package, 2.0, sized, parts)


EXPERIMENTS = {
    "sweep": Experiment(
        "LC latency and BE throughput over slices and levels.", 2.0, 1, 1.5, 1, "--budget-s, 280 s", 280.0
    ),
    "temporal": Experiment(
        "Latency beside a background, before and after set-priority.", 2.2, 3, 1.2, 2, "about 8 min"
    ),
    "weights": Experiment("GPU time by weight, two, three and eight tenants.", 3.0, 3, 1.5, 1, "under 4 min"),
    "adoption": Experiment("Every kind of CUDA program is found and put back.", 1.0, 1, 1.0, 1, "under 4 min"),
    "harmless": Experiment("Bits, launch cost, and kill -9 of the daemon.", 1.5, 1, 0.8, 1, "under 5 min"),
    "pause": Experiment("Time to stop and to resume a running kernel.", 1.0, 1, 1.0, 1, "under 3 min"),
    "driver-calls": Experiment(
        "What detshare.ko asks of the driver, by the same C code from user space; and probes.",
        2.0,
        1,
        1.0,
        1,
        "about 1 min",
    ),
    "isolation": _spatial("A kernel of 50 us beside kernels of 0.1 to 90 ms.", 1.3, 2, 220.0),
    "pair": _spatial("Llama decode beside ResNet-50 training, and a sweep.", 2.0, 2, 400.0),
    "live-change": _spatial("The SMs that kernels use after set-sm, 1000 changes.", 1.0, 1, 120.0),
    "determinism": _spatial("Bits under a hostile neighbour and remaps.", 1.0, 1, 130.0),
    "overhead": _spatial("Launches, steps and contexts with and without the runtime.", 0.6, 10, 170.0),
    "compatibility": _spatial("The output of every kind of CUDA program, with and without.", 1.0, 1, 180.0),
    "lane-choice": _spatial("Both lanes for three programs, and what --lane auto takes.", 1.5, 1, 120.0),
    "mps-faults": _spatial("Tenants killed in mid-kernel and in mid-hold.", 1.0, 1, 200.0),
    "park": _parking("Memory of 1 to 64 GiB off the GPU and back, beside other ways.", "about 15 min"),
    "park-incremental": _parking("Finding what changed since the last park, and copying it.", "about 10 min"),
    "park-deep": _parking("Memory and context off the GPU, beside the driver's checkpoint alone.", "about 3 min"),
    "park-lazy": _parked("The first kernel after a park, and when all is home.", 1.0, 3, 300.0, True),
    "park-compat": _parked("Programs of many kinds, each parked --rounds times: their bits.", 1.0, 100, 400.0),
    "park-faults": _parked("--rounds kills of programs, daemon and guardian in parks; a full arena.", 1.0, 300, 900.0),
    "migrate": _parked(
        "Held memory, a decode and a training moved between two GPUs.",
        10.0,
        100,
        1500.0,
        parts=tuple(f"{way}-{what}" for way in ("library", "driver") for what in ("memory", "decode", "train")),
    ),
    "oversubscribe": _parked("Two trainings of 0.8 of the memory each, and a decode.", 15.0, 1, 400.0, True),
    "models": _parked("Four language models, twice the memory: time to first token.", 1.0, 20, 400.0, True),
}


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def bench() -> None:
    """Run an experiment, on this machine's GPU or in guests, and write its result.

    Those on the GPU start workloads and a daemon of their own and steer the living programs as a user does; they need
    root, an NVIDIA GPU, and PyTorch for most of them. Those in guests need QEMU. Each writes NAME.json,
    raw/NAME.jsonl.gz and, where it has one, NAME.png.

    \b
    Example:
      sudo detshare bench temporal
    """


def _add(name: str, about: Experiment) -> None:
    @bench.command(name, help=f"{about.summary} Takes {about.takes}; with --quick a part of it.")
    @click.option("--seconds", type=Seconds(0.5, 60), help=f"Length of one slot (default {about.seconds:g}).")
    @click.option("--rounds", type=click.IntRange(1, 1000), help=f"Rounds (default {about.rounds}).")
    @click.option(
        "--out",
        type=click.Path(path_type=Path, file_okay=False),
        default=Path("docs/results"),
        show_default=True,
        help="Folder of the results.",
    )
    @click.option("--quick", is_flag=True, help="A part of the time, for a first look.")
    @click.option("--run-dir", type=click.Path(path_type=Path, file_okay=False), help="Folder of the daemon's socket.")
    @click.option("--seed", type=int, default=1, show_default=True, help="Of every random choice.")
    def command(
        seconds: float | None, rounds: int | None, out: Path, quick: bool, run_dir: Path | None, seed: int, **more: Any
    ) -> None:
        given = more.get("budget_s")
        full = about.budget or 280.0
        options = Options(
            name,
            seconds or (about.quick_seconds if quick else about.seconds),
            rounds or (about.quick_rounds if quick else about.rounds),
            out,
            quick,
            run_dir,
            float(given or (full / about.quicker if quick else full)),
            seed,
            name == "sweep" or given is not None,
            mib=more.get("mib") or 0,
            parts=more.get("parts") or (),
            resume=more.get("resume"),
        )
        conduct(options, lambda session: importlib.import_module(about.module(name)).run(session))

    if about.budget is not None:
        text = f"Seconds for all of it; what does not fit is left out (default {about.budget:g})."
        click.option("--budget-s", type=Seconds(30, 36000), help=text)(command)
    if about.sized:
        text = "GPU memory that its programs have (default all); a program of the experiment holds the rest."
        click.option("--mib", type=click.IntRange(1024), help=text)(command)
    if about.parts:
        text = "Measure only this one; may be given several times (default all)."
        click.option("--part", "parts", type=click.Choice(about.parts), multiple=True, help=text)(command)
        text = "The result of an earlier run of this commit, whose parts count as measured."
        click.option("--resume", type=click.Path(path_type=Path, dir_okay=False, exists=True), help=text)(command)


for _name, _about in EXPERIMENTS.items():
    _add(_name, _about)
_PARTS = (*CHECKED, beside, of_the_field, forwarded, gates, launch_path, page, policies, rm_core, scale, sim_validation)
for _command in (*_PARTS, *MIXES, *COMMANDS):
    bench.add_command(_command)

if __name__ == "__main__":
    bench()
