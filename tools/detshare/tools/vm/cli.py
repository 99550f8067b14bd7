# SPDX-License-Identifier: Apache-2.0
"""The command ``detshare-vm``."""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import termios
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, ParamSpec, TypeVar

import click

from detshare.ctl.core.options import Finite
from detshare.ctl.core.streams import written
from detshare.tools.vm import builds, bytecode, cache, checkout, kernels, loads, machine, nvidia, toolchain
from detshare.tools.vm.errors import VmError
from detshare.tools.vm.options import DRIVERS, ORDERS, Options
from detshare.tools.vm.pack import pack as write_pack
from detshare.tools.vm.prepare import fill
from detshare.tools.vm.report import report
from detshare.tools.vm.say import be_quiet, say

P = ParamSpec("P")
R = TypeVar("R")
_KERNELS = click.Choice(list(kernels.NAMES))


class _Place(click.Path):
    """A path. An empty word would be the folder that we are in: it is a variable that nobody set."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("the path is empty", param, ctx)
        return super().convert(value, param, ctx)


def _fails(function: Callable[P, R]) -> Callable[P, R]:
    """VmError as the command line shows it: exit code 2 when it could not be meant, else 1."""

    @functools.wraps(function)
    def wrapped(*arguments: P.args, **named: P.kwargs) -> R:
        try:
            return function(*arguments, **named)
        except VmError as error:
            click.echo(f"detshare-vm: {error}", err=True)
            sys.exit(2 if error.usage else 1)
        except BrokenPipeError:
            raise
        except OSError as error:
            written("detshare-vm")
            click.echo(f"detshare-vm: {error}\nnext: check the free space and the rights of {cache.root()}", err=True)
            sys.exit(1)

    return wrapped


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def vm() -> None:
    """Run commands in a guest with a stock Debian kernel over this machine's own root.

    For kernel modules that this machine does not load. Emulated by QEMU without KVM; no root needed, no disk image.

    \b
    Examples:
      detshare-vm run -- uname -r
      detshare-vm run --kernel 6.1 --driver nvidia-535 --load -- detshare-ctl ps
      detshare-vm run --driver forward --load -- ./vectoradd
      detshare-vm prepare
    """


def _machine(function: Callable[..., None]) -> Callable[..., None]:
    """The options that `run` and `shell` share."""
    for option in reversed(
        (
            click.option("--kernel", type=_KERNELS, default=kernels.DEFAULT, show_default=True, help="Kernel series."),
            click.option(
                "--driver",
                metavar=f"[{'|'.join(DRIVERS)}|DIR]",
                default="none",
                show_default=True,
                help="sim: tests/nvsim. nvidia-535 (on 6.1), nvidia-550 (on 6.12): the genuine driver on fake GPUs. "
                "DIR: the same from a folder with nvidia.ko and nvidia-uvm.ko. "
                "forward: this machine's own driver and GPU, call by call.",
            ),
            click.option(
                "--gpus", metavar="N", default=1, show_default=True, help="GPUs that the driver finds, 1 to 4."
            ),
            click.option(
                "--recording",
                metavar="TRACE",
                type=_Place(path_type=Path),
                help="With --driver forward: answer from a recorded program; what it did not ask fails.",
            ),
            click.option("--load", is_flag=True, help="Build detshare.ko from the checkout and load it."),
            click.option(
                "--order",
                type=click.Choice(ORDERS),
                default="driver-first",
                show_default=True,
                help="What is loaded first. by-hand: nothing; the command calls `vm-load driver` and `vm-load module`.",
            ),
            click.option(
                "--driver-option", metavar="NAME=VALUE", multiple=True, help="Parameter of nvidia.ko; may be repeated."
            ),
            click.option(
                "--module-option",
                metavar="NAME=VALUE",
                multiple=True,
                help="Parameter of detshare.ko; may be repeated.",
            ),
            click.option(
                "--mount",
                metavar="DIR",
                multiple=True,
                type=_Place(path_type=Path),
                help="A folder that the guest may change for good, at the same path; may be repeated.",
            ),
            click.option(
                "--disk",
                metavar="IMAGE",
                type=_Place(path_type=Path),
                help="An image with a file system; `vm-root CMD` in the guest runs CMD in it. It is not changed.",
            ),
            click.option("--mem", metavar="MIB", default=2048, show_default=True, help="RAM of the guest."),
            click.option("--cpus", metavar="N", default=2, show_default=True, help="CPUs of the guest."),
            click.option("--env", metavar="NAME[=VALUE]", multiple=True, help="One more variable for the command."),
            click.option("--log", metavar="FILE", type=_Place(path_type=Path), help="Write the kernel log here."),
            click.option("-q", "--quiet", is_flag=True, help="No progress on stderr."),
        )
    ):
        function = option(function)
    return function


def _environment(more: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    told = dict(machine.environment())
    for each in more:
        name, equals, value = each.partition("=")
        if not name.replace("_", "a").isalnum():
            raise VmError(f"pass --env {each}", "it is no NAME or NAME=VALUE", "write --env NAME=VALUE", usage=True)
        if equals or name in os.environ:
            told[name] = value if equals else os.environ[name]
    return tuple(sorted(told.items()))


def _options(named: dict[str, Any]) -> Options:
    return Options(
        command=(),
        kernel=named["kernel"],
        driver=named["driver"],
        gpus=named["gpus"],
        load=named["load"],
        order=named["order"],
        mounts=tuple(path.absolute() for path in named["mount"]),
        disk=named["disk"].absolute() if named["disk"] is not None else None,
        memory=named["mem"],
        cpus=named["cpus"],
        environment=_environment(named["env"]),
        driver_options=named["driver_option"],
        module_options=named["module_option"],
        recording=named["recording"],
    )


def _boot(options: Options, log: Path | None) -> int:
    loads.check(options)
    kernel = kernels.kernel(options.kernel)
    modules = loads.gather(options, kernel)
    bytecode.compile_ahead()
    say(f"starting {kernel.release}" + (f" with {options.driver}" if options.driver != "none" else ""))
    try:
        file = log.open("wb") if log is not None else None
    except OSError as error:
        raise VmError(f"write the kernel log to {log}", str(error), "name another file with --log") from error
    try:
        outcome = machine.run(
            options,
            kernel,
            modules,
            sys.stdout.buffer,
            sys.stderr.buffer,
            file,
            ready=lambda seconds: say(f"the command runs after {seconds:.1f} s"),
        )
    finally:
        if file is not None:
            file.close()
    report(outcome, log)
    return outcome.status


@vm.command(context_settings={"allow_interspersed_args": False})
@_machine
@click.option(
    "--timeout",
    metavar="S",
    default=600.0,
    show_default=True,
    help="End a guest that did nothing for so long, or worked for three times as long without a word; exit code 124.",
)
@click.argument("command", nargs=-1, required=True)
@_fails
def run(timeout: float, command: tuple[str, ...], **named: Any) -> None:
    """Run COMMAND as root in a guest; its exit code is passed on.

    The guest sees this machine's files at their own paths; what it writes is gone with it, but for --mount folders.
    /tmp, /run and /dev/shm are its own and empty. Standard input is empty. A fault in the kernel log (oops, warning,
    lockup) makes the exit code 1 and is shown.

    \b
    Example:
      detshare-vm run --kernel 6.12 --driver sim --load --mount results -- make -C tests/some results
    """
    be_quiet(named["quiet"])
    sys.exit(_boot(replace(_options(named), command=command, timeout=timeout), named["log"]))


@vm.command()
@_machine
@_fails
def shell(**named: Any) -> None:
    """Open a shell in a guest, on this terminal; `exit` ends the guest.

    \b
    Example:
      detshare-vm shell --driver sim --gpus 2
    """
    if not sys.stdin.isatty():
        raise VmError("open a shell", "stdin is no terminal", "use: detshare-vm run -- COMMAND", usage=True)
    be_quiet(named["quiet"])
    terminal = sys.stdin.fileno()
    size = os.get_terminal_size(terminal)
    start = f"stty rows {size.lines or 24} cols {size.columns or 80}; exec bash -i"
    options = replace(_options(named), command=("sh", "-c", start), timeout=7 * 86400.0, tty=True)
    before = termios.tcgetattr(terminal)
    try:
        sys.exit(_boot(options, named["log"]))
    finally:
        # QEMU leaves the terminal raw when it is ended
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


@vm.command()
@click.option("--kernel", type=_KERNELS, default=kernels.DEFAULT, show_default=True, help="Kernel series.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--check", is_flag=True, help="Read the sources with sparse too; what it finds is an error.")
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path), default=checkout.TOP)
@click.argument("variables", nargs=-1)
@_fails
def build(kernel: str, as_json: bool, check: bool, quiet: bool, folder: Path, variables: tuple[str, ...]) -> None:
    """Build the kernel module(s) in FOLDER (default: detshare.ko) and print the files.

    Built on a copy in the cache; equal sources are built once. VARIABLES are make's, as NAME=VALUE.

    \b
    Example:
      detshare-vm build --kernel 6.1 tests/nvsim
    """
    be_quiet(quiet)
    wrong = [each for each in variables if "=" not in each]
    if wrong:
        raise VmError(f"build with {wrong[0]}", "it is no NAME=VALUE", "write make variables as NAME=VALUE", usage=True)
    chosen = kernels.kernel(kernel)
    made = builds.build(folder, chosen, *(toolchain.sparse() if check else ()), *variables)
    files = sorted(str(file) for file in made.glob("*.ko"))
    if as_json:
        click.echo(json.dumps({"kernel": chosen.release, "folder": str(made), "modules": files}))
    else:
        click.echo("\n".join(files))


@vm.command()
@click.option("--kernel", "series", type=_KERNELS, multiple=True, help="Only this one; may be repeated.")
@click.option("--driver", "names", type=click.Choice(list(nvidia.BRANCHES)), multiple=True, help="Only this one.")
@click.option("--update", is_flag=True, help="Look for newer kernels and drivers and fetch them.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
@_fails
def prepare(series: tuple[str, ...], names: tuple[str, ...], update: bool, as_json: bool, quiet: bool) -> None:
    """Fetch the kernels and build NVIDIA's drivers for them, so that later runs start at once.

    Without options: all of them but the newest kernel, about 5 minutes with two CPUs. `run` does the same for what it
    needs.

    \b
    Example:
      detshare-vm prepare --kernel 6.12 --driver nvidia-550
    """
    rows = fill(series, names, update=update, quiet=quiet)
    if as_json:
        click.echo(json.dumps([vars(row) for row in rows]))
    else:
        for row in rows:
            click.echo(f"{row.what:12} {row.version:28} {row.path}")


@vm.command()
@click.option("--kernel", type=_KERNELS, default=kernels.DEFAULT, show_default=True, help="Kernel series.")
@click.option("--mem", metavar="MIB", default=4096, show_default=True, help="RAM of the guest.")
@click.option("--cpus", metavar="N", default=4, show_default=True, help="CPUs of the guest.")
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
@click.argument("out", type=_Place(dir_okay=False, path_type=Path))
@_fails
def pack(kernel: str, mem: int, cpus: int, quiet: bool, out: Path) -> None:
    """Write OUT, a tar.xz with all that `run --driver forward --load` needs: QEMU, kernel, modules, helper, programs.

    For a machine with a GPU and without a package registry. Unpacked, nvfwd/run runs a command in the guest; it needs
    root, and nothing of this package.

    \b
    Example:
      detshare-vm pack build/nvfwd.tar.xz
      (there) tar xf nvfwd.tar.xz && nvfwd/run --out first -- PACK/vectoradd
    """
    be_quiet(quiet)
    Options((), memory=mem, cpus=cpus).check_hardware()
    if not out.absolute().parent.is_dir():
        raise VmError(f"write {out}", "there is no folder for it", "make the folder or name another file", usage=True)
    written = write_pack(out, kernels.kernel(kernel), mem, cpus)
    click.echo(f"{out}: {written} bytes")


@vm.command()
@click.option(
    "--older-than", metavar="DAYS", type=Finite(min=0), help="Only module builds that nobody used for so long."
)
@_fails
def clean(older_than: float | None) -> None:
    """Empty the cache: kernels, drivers, builds. Refused while another detshare-vm prepares something.

    \b
    Example:
      detshare-vm clean --older-than 14
    """
    freed = cache.clean(older_than)
    click.echo(f"removed {freed} from {cache.root()}")


def _stop(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def hold_standard_streams() -> None:
    """Open those that are closed, or files of the cache take their numbers and QEMU and apt write into them.

    What is written to standard output then fails, as it should; what is said goes nowhere.
    """
    for number, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, flags), True)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115 - as long as the process
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


def main() -> None:
    """The console script."""
    hold_standard_streams()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)
    try:
        try:
            vm(prog_name="detshare-vm", standalone_mode=True)
        finally:
            written("detshare-vm")
    except BrokenPipeError:
        # nobody reads what the guest says any more; the guest is ended already
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)


if __name__ == "__main__":
    main()
