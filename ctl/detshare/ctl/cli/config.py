# SPDX-License-Identifier: Apache-2.0
"""The commands about the daemon's configuration file, and the one setting that has a command of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from detshare.ctl.cli.command import command, main
from detshare.ctl.cli.link import Place, gone
from detshare.ctl.core import config as configuration
from detshare.ctl.core.config import Config, ConfigError, Problem
from detshare.ctl.core.config_files import check_certificate, doubts
from detshare.ctl.core.config_lines import Lines
from detshare.ctl.core.config_values import LEVELS
from detshare.ctl.core.errors import ControlError
from detshare.ctl.policy import registry


class Configs(click.Group):
    """Shows how its commands are used."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_paragraph()
        formatter.write("Example:\n  sudo detshare-ctl config check\n")


@main.group("config", cls=Configs, context_settings={"help_option_names": ["-h", "--help"]})
def group() -> None:
    """Check and show the daemon's configuration.

    Each command takes --json.
    """


_path = click.argument("path", required=False, type=click.Path(path_type=Path))


@command("check", "sudo detshare-ctl config check ./detshare.toml", group=group)
@_path
def check(place: Place, as_json: bool, path: Path | None) -> None:
    """Tell all that is wrong in a configuration file, with line, key and reason.

    Without PATH it is /etc/detshare/detshare.toml. Exits with 2 where something is wrong; nothing is changed. A group
    or a user that this machine lacks, and more host memory than it has, are warned of.
    """
    found = configuration.load(path)
    check_certificate(found)
    _policy(found)
    where = "" if found.path is None else str(found.path)
    odd = doubts(found)
    for each in odd:
        click.echo(f"warning: {each.text(Path(where))}", err=True)
    if as_json:
        warnings = [asdict(each) for each in odd]
        click.echo(json.dumps({"ok": True, "path": where or None, "warnings": warnings}, indent=1))
    elif where:
        click.echo(f"{where}: nothing is wrong")
    else:
        click.echo(f"there is no {configuration.DEFAULT_PATH}; everything is as by default")


def _policy(found: Config) -> None:
    """ConfigError where a policy cannot be had: a daemon would start, and `static` decide. No file's code is run."""
    given: list[tuple[tuple[str, ...], str, Mapping[str, str]]]
    given = [(("policy", "name"), found.policy.name, found.policy.parameters)]
    given += [(("policy", "gpus", gpu, "name"), each.name, each.parameters) for gpu, each in found.policy.gpus.items()]
    problems = []
    for key, spec, parameters in given:
        try:
            _one_policy(spec, parameters)
        except ControlError as error:
            if found.path is None:
                raise
            lines = Lines(found.path.read_text(encoding="utf-8"))
            problems.append(Problem(lines.of(key), lines.name(key), error.stopped))
    if problems and found.path is not None:
        raise ConfigError(found.path, problems)


def _one_policy(spec: str, parameters: Mapping[str, str]) -> None:
    registry.require_safe(spec)
    if not registry.is_file(spec):
        registry.load(spec, parameters)
    elif not Path(spec.rpartition(":")[0] if ".py:" in spec else spec).is_file():
        raise ControlError("config check", f"{spec} is no file", "")


@command("show", "sudo detshare-ctl config show", group=group)
@_path
def show(place: Place, as_json: bool, path: Path | None) -> None:
    """Show what a configuration file comes to, defaults included.

    The answer may be written to a file and used as one.
    """
    found = configuration.load(path)
    if as_json:
        click.echo(json.dumps(found.to_json(), indent=1))
        return
    source = f"from {found.path}" if found.path is not None else f"defaults: there is no {configuration.DEFAULT_PATH}"
    click.echo(f"# {source}")
    for name, section in found.to_json().items():
        if name != "path":
            click.echo(_section(name, section), nl=False)


@command("reload", "sudo detshare-ctl config reload", group=group)
def reload(place: Place, as_json: bool) -> None:
    """Let the daemon read its configuration file again.

    Where anything is wrong in it the old one stays in force; all that is wrong is told, and the exit code is 2. Level
    and form of the log, interval, classes and users change at once; what else differs is named, and waits for a
    restart.
    """
    client = place.client()
    if not client.alive():
        raise gone("config reload", place)
    told = client.config_reload()
    if as_json:
        click.echo(json.dumps(told, indent=1))
        return
    where = told["path"] or f"defaults: there is no {configuration.DEFAULT_PATH}"
    click.echo(f"{where}: {'in force: ' + ', '.join(told['changed']) if told['changed'] else 'nothing to change'}")
    if told["restart"]:
        click.echo(f"waits for a restart of detshared: {', '.join(told['restart'])}")


@command("log-level", "sudo detshare-ctl log-level debug")
@click.argument("level", required=False, type=click.Choice(LEVELS))
def log_level(place: Place, as_json: bool, level: str | None) -> None:
    """Show how much the daemon logs, or change it until its next reload or restart."""
    client = place.client()
    if not client.alive():
        raise gone("log-level" if level is None else f"log-level {level}", place)
    told = client.log(level)
    if as_json:
        click.echo(json.dumps(told, indent=1))
    else:
        other = "" if told["level"] == told["configured"] else f" (configured: {told['configured']})"
        click.echo(f"{told['level']}{other}")


def _section(name: str, section: dict[str, Any]) -> str:
    lines = ["", f"[{name}]"]
    below = []
    for key, value in section.items():
        if isinstance(value, dict):
            if all(isinstance(each, dict) for each in value.values()):
                for table, each in value.items():
                    below += ["", f"[{name}.{key}.{_key(table)}]", *_lines(each)]
            elif value:
                below += ["", f"[{name}.{key}]", *_lines(value)]
        elif key == "exclusive":
            for table in value:
                below += ["", f"[[{name}.{key}]]", *_lines(table)]
        else:
            lines.append(f"{key} = {_value(value)}")
    return "\n".join([*lines, *below]) + "\n"


def _lines(table: dict[str, Any]) -> list[str]:
    return [f"{_key(name)} = {_value(value)}" for name, value in table.items()]


def _key(name: str) -> str:
    """TOML's form of a key; patterns of commands have to be quoted."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _value(name)


def _value(value: object) -> str:
    """TOML's form of a string, a number or a list, which is JSON's, and of a table in one line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(_lines(value)) + " }" if value else "{}"
    return json.dumps(value, ensure_ascii=False)
