# SPDX-License-Identifier: Apache-2.0
"""detshare demo: the latency of a program before and after set-priority, on a GPU or on the model."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

from detshare.ctl.client import Client
from detshare.tools.demo import vm
from detshare.tools.demo.choice import choose, pair
from detshare.tools.demo.errors import DemoError
from detshare.tools.demo.figures import Closing, table
from detshare.tools.demo.screen import Commands, Screen, start_daemon, wait_daemon
from detshare.tools.demo.stages import GpuStage, ModelStage, Stage
from detshare.tools.machine import machine

__all__ = ["demo", "play"]

BUDGET_SECONDS = 86.0


def play(stage: Stage, commands: Commands, screen: Screen) -> Closing:
    """The flow, the same on both stages."""
    with stage:
        phases = {"alone": stage.alone()}
        stage.together()
        important, other = stage.pids()
        phases["before"] = stage.measure("before")
        commands.ctl("ps")
        screen.say("")
        screen.step(f"{important} matters and {other} may wait: say so, both go on running")
        commands.ctl("set-priority", str(important), "high")
        commands.ctl("set-priority", str(other), "low")
        commands.ctl("ps")
        screen.say("")
        phases["after"] = stage.measure("after")
        commands.top()
        screen.say("")
        screen.step("give both back as they were found")
        commands.ctl("release", str(important))
        commands.ctl("release", str(other))
        screen.say("")
        phases["released"] = stage.measure("released")
        screen.step("end")
    return Closing(
        stage.proof,
        machine(),
        stage.latency_program,
        stage.background_program,
        stage.unit,
        phases,
        round(screen.seconds, 1),
    )


@contextlib.contextmanager
def ended_in_order() -> Iterator[None]:
    """SIGTERM and SIGHUP unwind like Ctrl-C, so that all is cleaned up; a second signal waits for that."""

    def end(number: int, _frame: FrameType | None) -> NoReturn:
        for each in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def perform(screen: Screen, model: bool, python: str | None) -> Closing:
    """Choose, set up, play, clean up."""
    choice = choose()
    real = choice.gpu and not model
    why = "the model was asked for" if model else choice.why
    screen.say(why if real else f"{why}: playing on the model of the driver; every figure below is proof level model")
    with contextlib.ExitStack() as stack:
        run_dir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="detshare-demo-")))
        programs = pair(python, BUDGET_SECONDS + 15) if real else None
        screen.step("start detshared" if real else "start detshared --backend model")
        daemon = stack.enter_context(start_daemon(run_dir, "root" if real else "model"))
        client = Client(run_dir)
        wait_daemon(daemon, client)
        commands = Commands(run_dir, screen)
        stage: Stage
        if programs is not None:
            stage = GpuStage(programs, screen, BUDGET_SECONDS - screen.seconds, run_dir)
        else:
            stage = ModelStage(client, commands, screen)
        closing = play(stage, commands, screen)
        daemon.check()
    return closing


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--json", "as_json", is_flag=True, help="Print the closing table as JSON on stdout, the rest on stderr.")
@click.option("--model", is_flag=True, help="Play on the model in this process, even where there is a GPU.")
@click.option("--vm", "in_vm", is_flag=True, help="Play in the virtual machine, even where there is a GPU.")
@click.option(
    "--python",
    type=click.Path(exists=True, dir_okay=False),
    help="Interpreter for the GPU programs, one that has torch.  [default: ours, then those of PATH]",
)
def demo(as_json: bool, model: bool, in_vm: bool, python: str | None) -> None:
    """Show what set-priority does to a program that is already running.

    With a GPU and root: a decode-like program beside a training, measured alone, before, after and released,
    in under 90 s. Without: in a virtual machine the kernel module on a simulated driver, with real processes and a
    memory limit, in under 60 s once all is built. Where that cannot be: on a model in this process in about 13 s.
    Exit code 1 if the managed p99 is not better, or a background program stands still.
    """
    if model and in_vm:
        raise click.UsageError("--model and --vm are two places; give one")
    screen = Screen(sys.stderr if as_json else sys.stdout)
    try:
        with ended_in_order():
            if in_vm or (not model and not choose().gpu):
                missing = vm.why_not()
                if missing is None:
                    screen.say("no GPU is used: playing in a virtual machine; every figure below is proof level model")
                    sys.exit(vm.perform(screen, as_json))
                if in_vm:
                    raise DemoError("play in a virtual machine", missing, "detshare demo --model")
                screen.say(f"no virtual machine: {missing}")
            closing = perform(screen, model, python)
    except DemoError as error:
        click.echo(f"detshare demo: {error}", err=True)
        sys.exit(1)
    if as_json:
        click.echo(json.dumps(closing.to_json(), indent=2))
    screen.say(f"\n{closing.latency_program} beside {closing.background_program}")
    screen.say(table(closing))
    screen.say(f"\n[{closing.proof}] {closing.verdict()}")
    sys.exit(0 if closing.better else 1)
