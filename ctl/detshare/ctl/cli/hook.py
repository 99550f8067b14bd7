# SPDX-License-Identifier: Apache-2.0
"""The hook that specifications of `detshare-ctl cdi generate` name: a runtime runs it when it has made a container.

It gives the container's cgroup its class and memory limit before the container's program starts. Not a command of
detshare-ctl: it loads as little as it can, for every start of a container waits for it.
"""

from __future__ import annotations

import argparse
import sys
import syslog
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from detshare.ctl.cdi.container import LARGEST, Container, Wanted, forget, give
from detshare.ctl.client import Client
from detshare.ctl.core import private
from detshare.ctl.core.errors import ControlError
from detshare.ctl.core.rundir import DEFAULT_RUN_DIR
from detshare.ctl.netlink import presence

__all__ = ["ANSWER_S", "main"]

ANSWER_S: Final = 10.0
"""how long the daemon may do nothing instead of answering"""
_EXAMPLE: Final = 'example: echo \'{"id": "c1", "pid": 42}\' | python3 -I -m detshare.ctl.cli.hook --priority high'


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="detshare.ctl.cli.hook", description=__doc__, epilog=_EXAMPLE)
    parser.add_argument("--run-dir", type=Path, default=DEFAULT_RUN_DIR, help="folder of the daemon's socket")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--priority", metavar="CLASS", help="its class")
    what.add_argument("--forget", action="store_true", help="it has ended (poststop): nothing is asked for it any more")
    parser.add_argument("--memory", type=int, metavar="BYTES", help="its limit of GPU memory, on each GPU")
    parser.add_argument("--weight", type=int, metavar="N", help="its part of the turns")
    parser.add_argument("--floor", type=float, metavar="PCT", help="time that it has at least")
    parser.add_argument("--required", action="store_true", help="let it not start where that cannot be set")
    return parser.parse_args(words)


def _run(given: argparse.Namespace, container: Container) -> None:
    client = Client(given.run_dir, ANSWER_S)
    wanted = Wanted(given.priority or "", given.memory, given.weight, given.floor)
    asked = f"give container {container.id[:12]} {wanted.text}"
    alive = client.alive()
    if given.forget:
        if alive:
            forget(container, client)
        return
    if alive:
        give(container, wanted, client)
        return
    if not presence.loaded():
        stopped = f"no daemon answers on {client.socket}, and detshare.ko is not loaded"
        raise ControlError(asked, stopped, "start it: sudo systemctl start detshared")
    from detshare.ctl.cli.link import Place  # a backend and all below it: loaded where it is needed

    with Place(given.run_dir, "kmod", ANSWER_S).control(asked, changes=True) as (control, _):
        give(container, wanted, control)


def _tell(text: str) -> None:
    """To the runtime, which shows it where the container does not start, and to the system's log."""
    print(f"detshare: {text}", file=sys.stderr)
    syslog.openlog("detshare", 0, syslog.LOG_DAEMON)
    syslog.syslog(syslog.LOG_WARNING, text)


def main(words: Sequence[str] | None = None) -> int:
    """Exit code 0: the container may start. 1: it may not."""
    private.prefer()
    given = _arguments(words)
    try:
        _run(given, Container.parse(sys.stdin.buffer.read(LARGEST + 1)))
    except ControlError as error:
        asked, stopped, following = error.asked, error.stopped, error.next_step
    except Exception as error:  # noqa: BLE001  no container fails for a mistake of ours, unless that was asked for
        asked, stopped = "the container's hook", f"an error in DetShare itself ({type(error).__name__}: {error})"
        following = "report it: detshare-ctl support"
    else:
        return 0
    if given.forget:
        return 0
    end = "it does not start (--required)" if given.required else "it starts without"
    _tell(f"{asked}: {stopped}; {end}\nnext: {following}")
    return int(given.required)


if __name__ == "__main__":
    sys.exit(main())
