# SPDX-License-Identifier: Apache-2.0
"""Man pages of DetShare's commands, made from click's own description of them.

Example: python -m detshare.tools.manpages build/man
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Final

import click

PROGRAMS: Final = {
    "detshare-ctl": ("detshare.ctl.cli.main", "main", 1),
    "detshare-top": ("detshare.ctl.cli.top", "main", 1),
    "detshare-sim": ("detshare.ctl.sim.cli", "cli", 1),
    "detshare": ("detshare.tools.main", "detshare", 1),
    "detshare-trace": ("detshare.ctl.trace.cli", "cli", 1),
    "detshared": ("detshare.ctl.daemon.detshared", "main", 8),
}
"""program -> module, name of its click command, section of the manual"""


def program(name: str) -> tuple[click.Command, int]:
    """The command of a program, and the section of its page."""
    module, attribute, section = PROGRAMS[name]
    found = getattr(import_module(module), attribute)
    assert isinstance(found, click.Command)
    return found, section


def escape(text: str) -> str:
    """Text as roff takes it literally: no backslash, hyphen or leading dot means anything."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^(?=[.'])", r"\\&", text, flags=re.MULTILINE)


def _paragraphs(text: str) -> Iterator[str]:
    """Paragraphs of a help text, each on one line; \\b and \\f are click's marks."""
    for part in text.partition("\f")[0].split("\n\n"):
        words = " ".join(part.replace("\b", "").split())
        if words:
            yield words


def _text(lines: list[str], text: str) -> None:
    for number, paragraph in enumerate(_paragraphs(text)):
        lines += ([".PP"] if number else []) + [escape(paragraph)]


def _options(lines: list[str], context: click.Context, title: str) -> None:
    records = [record for each in context.command.get_params(context) if (record := each.get_help_record(context))]
    if records:
        lines.append(title)
    for names, told in records:
        lines += [".TP", f"\\fB{escape(names)}\\fR", escape(" ".join(told.split())) or "\\&"]


def _epilog(lines: list[str], context: click.Context) -> None:
    """What a command writes below its options (examples among it), as it stands."""
    formatter = context.make_formatter()
    context.command.format_epilog(context, formatter)
    text = formatter.getvalue().strip("\n")
    if text:
        lines += [".PP", ".nf", escape(text), ".fi"]


def _usage(context: click.Context) -> str:
    return " ".join(context.command.collect_usage_pieces(context))


def commands(command: click.Command, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    """Every command below one, in the order in which help lists them, that is not hidden."""
    if not isinstance(command, click.Group):
        return
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        if found is None or found.hidden:
            continue
        inner = click.Context(found, info_name=name, parent=context)
        yield found, inner
        yield from commands(found, inner)


def page(name: str) -> str:
    """The page of a program, in roff's man macros."""
    command, section = program(name)
    context = click.Context(command, info_name=name)
    about = next(_paragraphs(command.help or ""), name)
    lines = [
        '.\\" SPDX-License-Identifier: Apache-2.0',
        f'.TH "{escape(name.upper())}" "{section}" "" "DetShare" "DetShare"',
        ".SH NAME",
        f"{escape(name)} \\- {escape(about.rstrip('.'))}",
        ".SH SYNOPSIS",
        f"\\fB{escape(name)}\\fR {escape(_usage(context))}",
        ".SH DESCRIPTION",
    ]
    _text(lines, command.help or "")
    _options(lines, context, ".SH OPTIONS")
    below = list(commands(command, context))
    if below:
        lines.append(".SH COMMANDS")
    for found, inner in below:
        path = inner.command_path.removeprefix(f"{name} ")
        lines += [f".SS {escape(path)} {escape(_usage(inner))}".rstrip()]
        _text(lines, found.help or "")
        _options(lines, inner, ".PP")
        _epilog(lines, inner)
    epilog: list[str] = []
    _epilog(epilog, context)
    if epilog:
        lines += [".SH EXAMPLES", *epilog[1:]]
    lines += [".SH EXIT STATUS", "0: done. 1: not done. 2: it cannot be meant."]
    others = [f"\\fB{escape(each)}\\fR({PROGRAMS[each][2]})" for each in PROGRAMS if each != name]
    lines += [".SH SEE ALSO", ", ".join(others)]
    return "\n".join(lines) + "\n"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
def main(folder: Path) -> None:
    """Write the man pages into FOLDER, as man1/ and man8/.

    Example: python -m detshare.tools.manpages build/man && man -M build/man detshare-ctl
    """
    for name in PROGRAMS:
        _, section = program(name)
        path = folder / f"man{section}" / f"{name}.{section}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page(name))
        click.echo(path)


if __name__ == "__main__":
    main()
