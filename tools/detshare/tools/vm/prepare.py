# SPDX-License-Identifier: Apache-2.0
"""Filling the cache ahead of time, with a line of progress for each thing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from detshare.tools.vm import builds, checkout, emulator, kernels, nvidia
from detshare.tools.vm.say import be_quiet, redirect


@dataclass(frozen=True)
class Row:
    """One thing in the cache."""

    what: str
    version: str
    path: str


def plan(series: tuple[str, ...], names: tuple[str, ...], *, update: bool) -> list[tuple[str, Callable[[], Row]]]:
    """What to do, in order: label and action. Nothing chosen: all but newest kernels, which come and go."""
    if not series and not names:
        series, names = tuple(each for each in kernels.SERIES if each not in kernels.NEWER), tuple(nvidia.BRANCHES)
    wanted = list(dict.fromkeys([*series, *(nvidia.BRANCHES[name].kernel for name in names)]))
    tasks: list[tuple[str, Callable[[], Row]]] = []
    for each in wanted:

        def fetch(each: str = each) -> Row:
            emulator.command()
            kernel = kernels.kernel(each, update=update)
            builds.build(checkout.FAKEGPU, kernel)
            return Row(f"kernel {each}", kernel.release, str(kernel.root))

        tasks.append((f"kernel {each}", fetch))
    for name in dict.fromkeys(names):

        def build(name: str = name) -> Row:
            driver = nvidia.driver(name, kernels.kernel(nvidia.BRANCHES[name].kernel), update=update)
            return Row(name, driver.version, str(driver.nvidia.parent))

        tasks.append((name, build))
    return tasks


def fill(series: tuple[str, ...], names: tuple[str, ...], *, update: bool, quiet: bool) -> list[Row]:
    """Does it; one row for each thing that is in the cache then."""
    be_quiet(quiet)
    tasks = plan(series, names, update=update)
    if quiet or not sys.stderr.isatty():
        return [action() for _, action in tasks]
    with _bars([label for label, _ in tasks]) as begin:
        return [_run(begin, number, action) for number, (_, action) in enumerate(tasks)]


def _run(begin: Callable[[int], Callable[[], None]], number: int, action: Callable[[], Row]) -> Row:
    done = begin(number)
    row = action()
    done()
    return row


@contextmanager
def _bars(labels: list[str]) -> Iterator[Callable[[int], Callable[[], None]]]:
    """Live lines on a terminal; yields a function that starts a line and returns what ends it."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(finished_text="+"), TextColumn("{task.fields[label]:12}"), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.description}", markup=False), console=Console(stderr=True)) as progress:
        tasks = [progress.add_task("", start=False, total=1, label=label) for label in labels]

        def begin(number: int) -> Callable[[], None]:
            progress.start_task(tasks[number])
            redirect(lambda text: progress.update(tasks[number], description=text))
            return lambda: progress.update(tasks[number], completed=1, description="ready")

        try:
            yield begin
        finally:
            redirect(None)
