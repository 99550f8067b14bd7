# SPDX-License-Identifier: Apache-2.0
"""The pictures of detshare-top in docs/images/, from a daemon of the model backend: `make screenshots`.

Example: python -m detshare.tools.screenshots docs/images
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

from detshare.ctl.cli import top
from detshare.ctl.client import Client
from detshare.ctl.core.errors import ControlError
from detshare.ctl.core.gputime import SLOTS
from detshare.ctl.top.app import Listed, show
from detshare.ctl.top.collector import Seen
from detshare.ctl.top.keys import View
from detshare.ctl.top.source import Machine

TITLE: Final = "detshare-top, model backend: simulated programs, no GPU"
START_S: Final = 180.0
LICENCE: Final = "<!-- SPDX-License-Identifier: Apache-2.0 -->\n"


@dataclass(frozen=True, slots=True)
class Shot:
    """One picture."""

    name: str
    width: int
    height: int
    details: bool = False
    help: bool = False


SHOTS: Final = (
    Shot("top-80x24", 80, 24),
    Shot("top-wide", 150, 30, details=True),
    Shot("top-keys", 80, 24, help=True),
)


def _format() -> str:
    """rich's page without the fonts that it would fetch from the network; a viewer's own monospace will do."""
    return LICENCE + re.sub(r"\s*@font-face \{\{.*?\}\}\n", "\n", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


def svg(snapshot: dict[str, Any], shot: Shot) -> str:
    """The picture of a snapshot."""
    console = Console(
        file=io.StringIO(), record=True, force_terminal=True, color_system="truecolor", width=shot.width,
        height=shot.height, highlight=False, legacy_windows=False,
    )  # fmt: skip
    programs = snapshot["programs"]
    first = next((each for each in programs if each.get("places")), programs[0] if programs else {})
    view = View(details=shot.details, help=shot.help, selected=(first.get("pid"), first.get("start")))
    console.print(show(console, Seen(snapshot, "", True, time.monotonic()), view, Listed()))
    text = console.export_svg(title=TITLE, code_format=_format(), unique_id=shot.name)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def _wait(true: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + START_S
    while not true():
        if time.monotonic() > until:
            raise ControlError("make screenshots", f"{what} did not come within {START_S:g} s", "try again")
        time.sleep(0.1)


def _full(look: dict[str, Any]) -> bool:
    """Whether nothing is amiss, and who works has a whole history."""
    histories = [len(time["history"]) for program in look["programs"] for time in program["gpu_time"]]
    return not look["warnings"] and bool(histories) and max(histories) == SLOTS


def _stage(run_dir: Path) -> dict[str, Any]:
    """A look at the model with a class for each program, and a policy that decides."""
    client = Client(run_dir)
    _wait(client.alive, "the daemon")
    pids = [program["pid"] for program in client.programs()["programs"]]
    client.verb("set-priority", str(pids[0]), klass="high")
    client.verb("set-priority", str(pids[1]), klass="low")
    client.verb("set-priority", str(pids[-1]), klass="low")
    machine, looks = Machine(run_dir, top.alone), list[dict[str, Any]]()

    def look() -> bool:
        looks[:] = [machine.look()]
        return _full(looks[0])

    _wait(look, "a look without warnings, with five seconds of history (is this machine busy?)")
    return looks[0]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
def main(folder: Path) -> None:
    """Write the pictures of detshare-top into FOLDER.

    Example: python -m detshare.tools.screenshots docs/images
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="dss-") as run_dir:
        command = [sys.executable, "-m", "detshare.ctl.daemon.detshared", "--backend", "model", "--run-dir", run_dir]
        daemon = subprocess.Popen([*command, "--log-level", "error"])
        try:
            snapshot = _stage(Path(run_dir))
        except ControlError as error:
            click.echo(f"screenshots: {error}", err=True)
            sys.exit(1)
        finally:
            daemon.terminate()
            daemon.wait(30)
    for shot in SHOTS:
        path = folder / f"{shot.name}.svg"
        path.write_text(svg(snapshot, shot))
        click.echo(path)


if __name__ == "__main__":
    main()
