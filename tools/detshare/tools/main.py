# SPDX-License-Identifier: Apache-2.0
"""The command ``detshare``: programs, measurements, the demo. Subcommands are imported only when they are used."""

from __future__ import annotations

import importlib
from dataclasses import dataclass

import click

from detshare.ctl.core import streams, version

__all__ = ["detshare", "main"]


@dataclass(frozen=True)
class _Subcommand:
    """Where a subcommand lives, what the overview says about it, and an example for its own help."""

    module: str
    attribute: str
    summary: str
    example: str


SUBCOMMANDS = {
    "bench": _Subcommand(
        "detshare.tools.bench.cli",
        "bench",
        "Run an experiment and write its result, table and plot.",
        "detshare bench temporal",
    ),
    "demo": _Subcommand(
        "detshare.tools.demo",
        "demo",
        "Show a program's latency before and after set-priority, in under 90 s.",
        "detshare demo",
    ),
    "rck": _Subcommand(
        "detshare.runtime.rck",
        "main",
        "Keep gates in the GPU's memory by a resident kernel; read its help before.",
        "detshare rck",
    ),
    "results": _Subcommand(
        "detshare.tools.results",
        "command",
        "Check the published results of a checkout, or write their pages.",
        "detshare results check",
    ),
    "run": _Subcommand(
        "detshare.runtime.run",
        "run",
        "Start a program in the spatial or the temporal lane.",
        "detshare run --lane spatial --priority high -- python serve.py",
    ),
}


def _load(name: str, where: _Subcommand) -> click.Command:
    """Imports a subcommand; ClickException (exit code 1) with the next step when a package that it needs is missing."""
    try:
        command = getattr(importlib.import_module(where.module), where.attribute)
    except ModuleNotFoundError as error:
        missing = error.name or "a module"
        if missing.startswith("detshare."):
            step = "apt install detshare-bench, or run it in a checkout (a wheel has the product only)"
        else:
            step = "apt install python3-matplotlib, or in a checkout: .venv/bin/pip install -e '.[bench]'"
        raise click.ClickException(f"detshare {name} needs {missing}, which is not installed; next: {step}") from error
    assert isinstance(command, click.Command)
    if where.example not in f"{command.help} {command.epilog}":
        command.epilog = "\n\n".join(filter(None, (command.epilog, f"\b\nExample:\n  {where.example}")))
    return command


class _Lazy(click.Group):
    """A group whose overview costs no import of what it lists."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        where = SUBCOMMANDS.get(cmd_name)
        return None if where is None else _load(cmd_name, where)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, SUBCOMMANDS[name].summary) for name in self.list_commands(ctx)])


@click.group(
    cls=_Lazy,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="\b\nExamples:\n  " + "\n  ".join(where.example for where in SUBCOMMANDS.values()),
)
@click.version_option(version.build(), prog_name="detshare")
def detshare() -> None:
    """Run CUDA programs under DetShare; measure and show what it does to living ones.

    To act on programs use detshare-ctl, to watch them detshare-top.
    """
    streams.any_encoding()


def main() -> None:
    """The console script."""
    streams.hold()
    try:
        detshare(prog_name="detshare")
    finally:
        streams.written("detshare")


if __name__ == "__main__":
    main()
