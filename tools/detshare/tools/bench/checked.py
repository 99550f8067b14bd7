# SPDX-License-Identifier: Apache-2.0
"""``detshare bench containers`` and its like: what the tests of a part of the product show. No time is measured.

Each file of tests gives how many it has, how many fail and how many are left out; what a test counted itself
(``record_property("questions answered", 29)``) stands beside them.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import click

from detshare.tools import results

__all__ = ["CHECKED", "Case", "cases", "rows"]

ROOT: Final = Path(__file__).resolve().parents[4]
PARTS: Final = {
    "containers": ("model", "tests/vm/test_containers.py", "boots a guest: 10 to 30 min"),
    "dra": (
        "model",
        "tests/vm/test_containerd.py tests/vm/test_device_plugin.py",
        "both APIs; real runtime, kubelet double; boots two guests: 20 to 60 min",
    ),
    "dra-unit": ("unit", "tests/unit/kubernetes", "kubelet double, no runtime: about 3 min"),
    "monitoring": ("unit", "tests/unit/metrics", "about 1 min"),
    "packages": (
        "model",
        "tests/vm/test_packages.py tests/vm/test_package_upgrade.py",
        "boots Debian 12 and 13 twice: 2 to 4 h",
    ),
    "packages-unit": ("unit", "tests/unit/packages", "builds, and roots of Debian 12 and 13: 10 to 30 min"),
    "page-tests": ("unit", "tests/unit/page", "a headless chromium: about 5 min"),
}
"""name of the result -> proof level, where its tests are (paths with spaces between them), how long they take"""


@dataclass(frozen=True, slots=True)
class Case:
    """A test: its file, its name, passed, failed or skipped, and what it counted."""

    file: str
    name: str
    outcome: str
    counted: tuple[tuple[str, float], ...] = ()


def cases(junit: str) -> list[Case]:
    """The tests of a JUnit file as pytest writes it."""
    found = []
    for each in ElementTree.fromstring(junit).iter("testcase"):
        bad = each.find("failure") is not None or each.find("error") is not None
        outcome = "failed" if bad else "skipped" if each.find("skipped") is not None else "passed"
        counted = tuple((p.attrib["name"], float(p.attrib["value"])) for p in each.iter("property"))
        found.append(Case(each.attrib["classname"].rpartition(".")[2], each.attrib["name"], outcome, counted))
    return found


def rows(found: Iterable[Case]) -> tuple[results.Row, ...]:
    """Of each file its tests and outcomes, then what its tests counted."""
    found = list(found)
    made = []
    for file in dict.fromkeys(case.file for case in found):
        mine = [case for case in found if case.file == file]
        what = file.removeprefix("test_").replace("_", " ")
        made.append(results.Row(f"{what}: tests", len(mine), "tests", target="> 0"))
        for outcome, text in (("failed", "of them that fail"), ("skipped", "of them that are left out")):
            count = sum(case.outcome == outcome for case in mine)
            made.append(results.Row(f"{what}: {text}", count, "tests", target="== 0"))
        for case in mine:
            made += [results.Row(f"{what}: {name}", value, "", target="> 0") for name, value in case.counted]
    return tuple(made)


def _run(where: str) -> list[Case]:
    """ClickException where pytest itself fails."""
    if not all((ROOT / each).exists() for each in where.split()):
        raise click.ClickException(f"the tests are not in {ROOT}; run it from a checkout")
    with tempfile.TemporaryDirectory(prefix="detshare-checked-") as name:
        file = Path(name) / "junit.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={file}", *where.split()]
        done = subprocess.run(command, cwd=ROOT, check=False)
        if done.returncode not in (0, 1) or not file.exists():
            raise click.ClickException(f"pytest ended with {done.returncode}; its words are above")
        return cases(file.read_text(encoding="utf-8"))


def _command(name: str, proof: str, where: str, takes: str) -> click.Command:
    @click.command(name, help=f"What the tests of {name} show ({where}; {takes}). No time is measured.")
    @click.option(
        "--out", type=click.Path(path_type=Path, file_okay=False), default=Path("docs/results"), show_default=True,
        help="Folder of the results.",
    )  # fmt: skip
    def command(out: Path) -> None:
        found = _run(where)
        table = rows(found)
        made = results.Result(
            name, proof, f"detshare bench {name}", results.commit(), results.machine(), results.now(), table
        )
        try:
            path = results.write(made, out)
        except results.ResultError as error:
            raise click.ClickException(str(error)) from error
        (out / "raw").mkdir(exist_ok=True)
        with gzip.GzipFile(out / "raw" / f"{name}.jsonl.gz", "wb", mtime=0) as stream:
            for case in found:
                stream.write((json.dumps(asdict(case)) + "\n").encode())
        bad = [row for row in table if row.ok is False]
        click.echo(f"{path}: {len(table) - len(bad)} of {len(table)} targets met")
        for row in bad:
            click.echo(f"  not met: {row.what}: {row.value:g}, target {row.target}")
        sys.exit(1 if bad else 0)

    return command


CHECKED: Final = tuple(_command(name, *about) for name, about in PARTS.items())
