# SPDX-License-Identifier: Apache-2.0
"""`detshare run`: becomes the program, in the lane that was asked for or chosen.

It replaces itself by the program (exec), so PID, signals, terminal and exit status are the program's own. Whatever
stops it from arranging a lane is said in a line on standard error, and the program runs without.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any, Final

import click

from detshare.ctl.core import classes, native, options, sizes, sockets
from detshare.ctl.core.backend import BadRequest
from detshare.runtime import admission, mps
from detshare.runtime.admission import Request, check_name, idle
from detshare.runtime.mps import READY_SECONDS
from detshare.runtime.profiles import LANES, Lane
from detshare.runtime.service import SOCKET_NAME

NAME: Final = "libdetshare.so"
LIBRARY: Final = "DETSHARE_LIBRARY"
"""names another libdetshare.so than DetShare's own"""
SOCKET: Final = "DETSHARE_SOCKET"
TENANT: Final = "DETSHARE_TENANT"
MEMORY: Final = "DETSHARE_MEMORY"
"""bytes; what the program sees as the GPU's memory before its first context"""
PARK: Final = "DETSHARE_PARK"
"""1: its memory can leave the GPU"""
GATE: Final = "DETSHARE_GATE"
"""what a held program's streams wait at"""
ANSWER_SECONDS: Final = READY_SECONDS + 8.0
"""the daemon's own waits end before that"""
AGAIN_SECONDS: Final = 0.2
_LOCALE: Final = "LC_CTYPE"
_PERCENTAGE: Final = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
_SEPARATOR: Final = re.compile("[: ]")
"""between the names of LD_PRELOAD (ld.so(8)), and so never within one"""
_SHELL: Final = "/bin/sh"
NOT_FOUND: Final = 127
NOT_STARTED: Final = 126


def library() -> Path:
    """Where libdetshare.so is."""
    return Path(os.environ.get(LIBRARY) or native.folder(__file__, NAME) / NAME).absolute()


def tell(text: str) -> None:
    """One line on standard error, where that takes it; a terminal gets no control characters of others."""
    shown = "".join(c if c.isprintable() else "?" for c in text)
    if sys.stderr is not None:  # closed: print would take standard output, which is the program's
        with contextlib.suppress(OSError):
            print(f"detshare: {shown}", file=sys.stderr, flush=True)


class NoAnswer(Exception):
    """The daemon cannot be asked; the text says why and what to do."""


def ask(path: Path, request: Request) -> dict[str, Any]:
    """The daemon's answer; asked for again where others of this user are before us. NoAnswer."""
    end = time.monotonic() + ANSWER_SECONDS
    while True:
        answer = _ask(path, request, end)
        if answer.get("again") is not True or time.monotonic() + AGAIN_SECONDS >= end:
            return answer
        time.sleep(AGAIN_SECONDS)


def _ask(path: Path, request: Request, end: float) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC) as connection:
        try:
            sockets.connect(connection, path, max(0.1, end - time.monotonic()))
            connection.send(request.pack())
            data = connection.recv(1 << 16)
        except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
            raise NoAnswer(f"no daemon answers on {path}; next: sudo detshared") from None
        except TimeoutError:
            stopped = f"the daemon did not answer within {ANSWER_SECONDS:g} s"
            raise NoAnswer(f"{stopped}; next: detshare-ctl doctor") from None
        except OSError as error:
            raise NoAnswer(f"{path} cannot be used ({error}); next: detshare-ctl doctor") from error
    try:
        answer = json.loads(data)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise NoAnswer("the daemon gave no answer that can be read; next: see its log")
    return answer


def given() -> dict[str, str]:
    """The environment as it was given: in the C locale Python sets LC_CTYPE (PEP 538), and exec would hand that on."""
    made = dict(os.environ)
    try:
        first = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return made
    made.pop(_LOCALE, None)
    name = f"{_LOCALE}=".encode()
    for entry in first:
        if entry.startswith(name):
            made[_LOCALE] = os.fsdecode(entry[len(name) :])
            break
    return made


def without_outer(environment: dict[str, str]) -> dict[str, str]:
    """The same less what another `detshare run`, within which this one is, set for its own program."""
    outer = environment.get(SOCKET)
    if outer is None or PARK not in environment:  # of a container's specification, which says no more than that
        return environment
    own = {SOCKET, TENANT, MEMORY, PARK, GATE}
    if PurePath(environment.get(mps.PIPE, "/")).is_relative_to(PurePath(outer).parent):
        own |= {mps.PIPE, mps.LOG, admission.PRIORITY}
    made = {name: value for name, value in environment.items() if name not in own}
    mine = str(library())
    if kept := [each for each in _SEPARATOR.split(made.pop("LD_PRELOAD", "")) if each not in ("", mine)]:
        made["LD_PRELOAD"] = ":".join(kept)
    return made


def arrange(path: Path, request: Request, environment: dict[str, str], gate: str | None = None) -> dict[str, str]:
    """The environment for the program; what was chosen, and what could not be had, is told."""
    name = PurePath(request.command[0]).name
    try:
        answer = ask(path, request)
    except NoAnswer as problem:
        tell(f"{name} runs without DetShare: {problem}")
        return environment
    if "error" in answer:
        error = answer["error"]
        tell(f"{name} runs without DetShare: {error.get('stopped')}; next: {error.get('next')}")
        return environment
    environment = without_outer(environment)
    lane, why = str(answer.get("lane")), str(answer.get("why"))
    if request.lane != lane or request.lane == Lane.AUTO:
        tell(f"{name} runs in the {lane} lane: {why}")
    for note in answer.get("notes", ()):
        tell(str(note))
    if lane != Lane.SPATIAL and not answer.get("observe"):
        return environment
    where = library()
    what = "in the temporal lane" if lane == Lane.SPATIAL else "unwatched"
    if not where.is_file():
        tell(f"{name} runs {what}: there is no {where}; next: make -C runtime")
        return environment
    if _SEPARATOR.search(str(where)):
        stopped = f"{where} cannot be preloaded, since a space or colon ends a name there"
        tell(f"{name} runs {what}: {stopped}; next: install DetShare in a folder without")
        return environment
    made = {**environment, SOCKET: str(path.absolute())}
    made["LD_PRELOAD"] = ":".join(filter(None, (str(where), environment.get("LD_PRELOAD", ""))))
    made[TENANT] = request.tenant or f"run-{os.getpid()}"
    made[PARK] = "1" if request.park else "0"
    if lane == Lane.SPATIAL:
        if request.memory is not None:
            made[MEMORY] = str(request.memory)
        if gate is not None:
            made[GATE] = gate
        made |= {str(key): str(value) for key, value in answer.get("environment", {}).items()}
        if made.pop(_PERCENTAGE, None) is not None:
            tell(f"{_PERCENTAGE} is taken out: it would change what the program sees of the GPU, and so its results")
    return made


def become(command: Sequence[str], environment: dict[str, str]) -> int:
    """Replace this process by the command. Comes back only where it cannot be started, with the exit code for that."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and exec would hand that on
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(command[0], list(command), environment)
    except (FileNotFoundError, NotADirectoryError):
        if shutil.which(command[0], path=environment.get("PATH")):
            tell(f"run {command[0]}: what its first line names is not there; next: install that, or correct the line")
        else:
            tell(f"run {command[0]}: there is no such program; next: check the name and PATH")
        return NOT_FOUND
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno == errno.ENOEXEC and (script := _script(command[0], environment)):
            return become([_SHELL, script, *command[1:]], environment)
        tell(f"run {command[0]}: it cannot be started ({error}); next: check its rights and its first line")
        return NOT_STARTED


def _script(name: str, environment: dict[str, str]) -> str | None:
    """The file of a script without a first line, which execvp(3), and so every shell, gives to sh; None for others."""
    found = shutil.which(name, path=environment.get("PATH"))
    try:
        with open(found or os.devnull, "rb") as file:
            return found if b"\0" not in file.read(256) else None
    except OSError:
        return None


def _checked(check: Any) -> Any:
    """A click callback that runs a value through `check`, where there is one."""

    def callback(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
        try:
            return None if value is None else check(value)
        except BadRequest as error:
            raise click.BadParameter(str(error), ctx, param) from error

    return callback


@click.command(
    context_settings={"help_option_names": ["-h", "--help"], "allow_interspersed_args": False},
    epilog="\b\nExample:\n  detshare run --lane spatial --priority high -- python serve.py",
)
@options.run_dir("Folder of the daemon's socket.")
@click.option("--priority", "klass", type=click.Choice(list(classes.CLASSES)), help="Its class.  [default: normal]")
@click.option("--sm", "percent", type=click.IntRange(1, 100), metavar="PCT", help="Its share of the SMs, in percent.")
@click.option("--memory", metavar="SIZE", callback=_checked(sizes.parse), help="Its limit of GPU memory: 512M, 8G.")
@click.option("--tenant", metavar="NAME", callback=_checked(check_name), help="A name under which it is shown.")
@click.option("--lane", type=click.Choice(LANES), default=Lane.AUTO, show_default=True, help="Where its kernels run.")
@click.option(
    "--gate",
    type=click.Choice(["host", "rck"]),
    help="Where it waits while held: words in host memory, or those of `detshare rck`.  [default: host]",
)
@click.option("--park", is_flag=True, help="Its GPU memory can be parked in host memory: detshare-ctl park.")
@click.option("--park-after", metavar="TIME", callback=_checked(idle), help="Park it when it was idle for 30s, 5m.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CMD...")
def run(
    run_dir: Path,
    klass: str | None,
    percent: int | None,
    memory: int | None,
    tenant: str | None,
    lane: str,
    gate: str | None,
    park: bool,
    park_after: float | None,
    command: tuple[str, ...],
) -> None:
    """Start a program in one of DetShare's lanes.

    temporal: with GPU contexts of its own, in time slices. spatial: under DetShare's MPS server, side by side with
    others, its SMs chosen per launch. auto: by what earlier runs of the command showed; temporal at first.
    """
    parks = park or park_after is not None
    request = Request(command, lane, klass, percent, memory, tenant or "", parks, park_after)
    sys.exit(become(command, arrange(run_dir / SOCKET_NAME, request, given(), gate)))
