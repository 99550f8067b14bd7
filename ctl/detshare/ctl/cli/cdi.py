# SPDX-License-Identifier: Apache-2.0
"""The commands about devices for container engines."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import click

from detshare.ctl.cdi import files, machine, spec
from detshare.ctl.cdi.container import Wanted
from detshare.ctl.cli.command import command, main
from detshare.ctl.cli.link import Place
from detshare.ctl.core import config as configuration
from detshare.ctl.core.config_values import Bad
from detshare.ctl.core.containers import Device, check_device
from detshare.ctl.core.errors import ControlError

_FILE: Final = click.Path(path_type=Path)
_MORE: Final = """\
Without --device the devices are those of [containers] in the configuration: by default one for each class. A container
asks for one by name, and gets the GPU, the driver's libraries, and for all of its programs a class and a memory limit:
  podman run --device detshare.io/gpu=inference-high IMAGE
"""


class Devices(click.Group):
    """Shows how its commands go together."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_paragraph()
        formatter.write("Example:\n  sudo detshare-ctl cdi generate --output /etc/cdi\n  detshare-ctl cdi check\n")


@main.group("cdi", cls=Devices, context_settings={"help_option_names": ["-h", "--help"]})
def group() -> None:
    """Let containers ask for a GPU with a class and a memory limit.

    Specifications of the Container Device Interface, which podman, containerd and others read. Each command takes
    --json.
    """


def _devices(given: tuple[str, ...]) -> dict[str, Device]:
    """What --device says: NAME or NAME:KEY=VALUE,KEY=VALUE. ControlError."""
    made: dict[str, Device] = {}
    for text in given:
        name, _, rest = text.partition(":")
        table: dict[str, object] = {}
        for pair in filter(None, rest.split(",")):
            key, equals, value = pair.partition("=")
            if not equals:
                raise _wrong(text, f"{pair[:40]!a} is no KEY=VALUE")
            if key in table:
                raise _wrong(text, f"{key[:40]} is given twice")
            table[key] = _typed(key, value)
        try:
            device = check_device(name, table)
        except Bad as error:
            raise _wrong(text, f"{'.'.join(map(str, error.below))}: {error}") from error
        if name in made:
            raise _wrong(text, f"two devices are called {name}")
        made[name] = device
    return made


def _typed(key: str, value: str) -> object:
    """As the configuration would have it; what is no number stays a text, and is refused as such."""
    try:
        match key:
            case "gpus":
                return [int(each) for each in value.split("+")]
            case "weight":
                return int(value)
            case "floor":
                return float(value)
    except ValueError:
        pass
    return value == "true" if key == "reports" and value in ("true", "false") else value


def _wrong(text: str, stopped: str) -> ControlError:
    following = "write --device inference-high:priority=high,memory=20G,gpus=0+1; detshare-ctl cdi generate --help"
    return ControlError(f"--device {text[:80]}", stopped, following, usage=True)


@command("generate", "sudo detshare-ctl cdi generate --output /etc/cdi", _MORE, group)
@click.option("--output", type=_FILE, help="A file that ends with .json, or a folder.  [default: standard output]")
@click.option("--config", "config", type=_FILE, help=f"The daemon's, where it is not {configuration.DEFAULT_PATH}.")
@click.option(
    "--device",
    "given",
    multiple=True,
    metavar="NAME[:KEY=VALUE,...]",
    help="A device, instead of the configuration's; may be repeated. Keys as there: priority, memory, weight, floor, "
    "gpus (0+1), library, reports.",
)
@click.option(
    "--required/--not-required",
    default=None,
    help="Whether a container stays down where its class or limit cannot be set.  [default: containers.required]",
)
def generate(
    place: Place, as_json: bool, output: Path | None, config: Path | None, given: tuple[str, ...], required: bool | None
) -> None:
    """Write the specification of this machine's devices.

    In the lowest version of CDI that has all that is in it. Write it anew after a change of the configuration, of the
    driver, or of the GPUs.
    """
    asked = "cdi generate"
    wanted = configuration.load(config).containers
    found = machine.find(asked)
    devices = _devices(given) or wanted.devices
    closed = wanted.required if required is None else required
    made = spec.make(devices, found, required=closed, run_dir=place.run_dir.absolute())
    path = None if output is None else files.write(made, output, asked)
    if path is None:
        click.echo(json.dumps(made, indent=1))
    elif as_json:
        told = {"path": str(path), "devices": {name: asdict(each) for name, each in devices.items()}}
        click.echo(json.dumps(told, indent=1))
    else:
        click.echo(f"{path}: {', '.join(f'{spec.KIND}={name}' for name in devices)}")


_folders = click.option(
    "--folder", "folders", multiple=True, type=_FILE, help="Look there.  [default: /etc/cdi, /var/run/cdi]"
)


@command("list", "detshare-ctl cdi list", group=group)
@_folders
def list_(place: Place, as_json: bool, folders: tuple[Path, ...]) -> None:
    """List the devices that containers may ask for, with what each gives."""
    found = files.look(folders or files.FOLDERS)
    devices = {device["name"]: device for each in found for device in _rows(each)}
    if as_json:
        click.echo(json.dumps({"devices": list(devices.values())}, indent=1))
        return
    for device in devices.values():
        gpus = ", ".join(device["gpus"])
        click.echo(f"{spec.KIND}={device['name']}: {device['gives'] or 'no class'}; {gpus} ({device['file']})")
    if not devices:
        click.echo("there is no device; make them: sudo detshare-ctl cdi generate --output /etc/cdi")


def _rows(found: files.Found) -> Iterable[dict[str, Any]]:
    """Devices of a file that an engine takes."""
    for device in found.spec["devices"] if found.spec is not None and not found.problems else ():
        edits = device["containerEdits"]
        created = [hook for hook in edits.get("hooks", ()) if hook["hookName"] == "createRuntime"]
        words = created[0].get("args", [])[4:] if created else []
        yield {
            "name": device["name"],
            "file": str(found.path),
            "gives": _gives(words),
            "gpus": [node["path"] for node in edits.get("deviceNodes", ())],
        }


def _gives(words: list[str]) -> str:
    """What a hook of ours is told, for people; empty where it is none of ours."""
    said = dict(pairwise(words))
    try:
        memory, weight, floor = said.get("--memory"), said.get("--weight"), said.get("--floor")
        return Wanted(
            said["--priority"],
            None if memory is None else int(memory),
            None if weight is None else int(weight),
            None if floor is None else float(floor),
        ).text
    except (KeyError, ValueError):
        return ""


@command("check", "detshare-ctl cdi check", group=group)
@click.argument("path", required=False, type=_FILE)
@_folders
def check(place: Place, as_json: bool, path: Path | None, folders: tuple[Path, ...]) -> int:
    """Tell all for which an engine would refuse a specification, or not start a container.

    Without PATH it looks at ours where engines look. Exits with 1 where something is wrong; nothing is changed.
    """
    found = [files.read(path)] if path is not None else files.look(folders or files.FOLDERS)
    if as_json:
        rows = [{"path": str(each.path), "problems": list(each.problems)} for each in found]
        click.echo(json.dumps({"ok": not any(each.problems for each in found), "files": rows}, indent=1))
    else:
        for each in found:
            for problem in each.problems:
                click.echo(f"{each.path}: {problem}")
            if not each.problems:
                click.echo(f"{each.path}: nothing is wrong")
        if not found:
            click.echo("there is no specification; make one: sudo detshare-ctl cdi generate --output /etc/cdi")
    return int(any(each.problems for each in found))
