# SPDX-License-Identifier: Apache-2.0
"""Each command of ours that README and docs/use show is played: in its page's session, here, or by another test.

A block of `console` that a test plays word for word is named in SESSIONS. What is in HERE runs in this file, in its
order, before one daemon on the model backend. ELSEWHERE names, for what needs a GPU, a module, root or other programs,
the test that gives the same verb there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from builds import ROOT
from pages import steps
from shown_commands import ours, pages, words_of

from detshare.ctl.client import Client
from detshare.tools.browser.shots import free_port
from tests.patience import ended, run, until

SESSIONS: Final = {
    "README.md": "tests/unit/docs/test_commands.py",
    "install.md": "tests/vm/test_packages.py",
    "module.md": "tests/vm/guest/ctl_page.py",
    "operations.md": "tests/unit/cli/test_operations.py",
}
"""page -> the test that plays all its console blocks"""

HERE: Final = {
    "README.md": ("detshare-ctl doctor",),
    "configuration.md": (
        "detshare-ctl config check",
        "detshare-ctl config show",
        "detshare-ctl config reload",
        "detshare-ctl log-level debug",
        "detshare-ctl pool",
    ),
    "decisions.md": ("detshare-ctl why 1001",),
    "gpu-virt-bench.md": (
        "detshare bench field plan --suite field-gvb",
        "detshare bench field report docs/results/raw/field-gvb-cells.jsonl --suite field-gvb --out gvb.html",
    ),
    "module.md": ("detshare-ctl doctor",),
    "operations.md": ("detshare-ctl support --output report.tar.gz",),
    "page.md": ("detshare-ctl page",),
    "park.md": ("detshare-ctl show 4242",),
    "policies.md": (
        "detshare-ctl policy list",
        "detshare-ctl policy show",
        "detshare-ctl policy set tpot-first tpot_ms=40",
        "detshare-ctl policy set ./mine.py",
        "detshare-ctl why 4242",
        "detshare-ctl replay /run/detshare/decisions --policy strict",
    ),
}


class Elsewhere(NamedTuple):
    """`names`: what the test's text has of the command."""

    test: str
    names: str
    needs: str


_PARK = "tests/unit/spatial/test_parking.py"
_SCHED = "tests/vm/guest/ctl_sched.py"
_PAGE = "tests/vm/guest/ctl_page.py"
_SIM = "tests/unit/docs/test_commands.py"

ELSEWHERE: Final = {
    "detshare bench field run --peer": Elsewhere("tests/unit/field/test_peers.py", "--peer", "a GPU, a peer's build"),
    "detshare bench field run --suite": Elsewhere("tests/unit/field/test_probes.py", "field-gvb", "a GPU"),
    "detshare run --lane spatial": Elsewhere("tests/unit/spatial/test_end_to_end.py", "spatial", "a CUDA program"),
    "detshare run --park ": Elsewhere(_PARK, '"--park"', "a CUDA program"),
    "detshare run --park-after": Elsewhere(_PARK, '"--park-after"', "a CUDA program"),
    "detshare-ctl bind": Elsewhere("tests/unit/spatial/test_pool.py", "bind", "programs of the spatial lane"),
    "detshare-ctl cdi check": Elsewhere("tests/unit/cdi/test_spec.py", '"check"', "devices of a driver"),
    "detshare-ctl cdi generate": Elsewhere("tests/unit/cdi/test_spec.py", '"generate"', "devices of a driver"),
    "detshare-ctl cdi list": Elsewhere("tests/unit/cdi/test_spec.py", '"list"', "devices of a driver"),
    "detshare-ctl dirty": Elsewhere("tests/vm/guest/ebpf_dirty_ctl.py", '"dirty"', "eBPF"),
    "detshare-ctl park": Elsewhere(_PARK, '"park"', "a CUDA program"),
    "detshare-ctl resume 4242": Elsewhere("tests/unit/spatial/test_lazy.py", '"resume"', "a parked program"),
    "detshare-ctl set-bucket": Elsewhere(_SCHED, '"set-bucket"', "the module"),
    "detshare-ctl set-class": Elsewhere(_SCHED, '"set-class"', "the module"),
    "detshare-ctl set-memory": Elsewhere(_PAGE, "use/module.md", "the module"),
    "detshare-ctl tenant": Elsewhere(_PAGE, "use/module.md", "the module"),
    "detshare-sim ": Elsewhere(_SIM, "test_the_simulators_commands_run", "hours in full"),
    "detshare-trace dirty": Elsewhere("tests/vm/guest/ebpf_dirty_ctl.py", 'tracing("dirty"', "eBPF"),
    "detshare-trace latency": Elsewhere("tests/vm/guest/ebpf_latency.py", 'tracing("latency"', "eBPF"),
    "detshare-trace launches": Elsewhere("tests/vm/guest/ebpf_launches.py", 'tracing("launches"', "eBPF"),
    "detshare-trace objects": Elsewhere("tests/vm/guest/ebpf_objects.py", 'tracing("objects"', "eBPF"),
    "detshare-trace timeline": Elsewhere(_SIM, "trace-timeline.md", "no daemon"),
}
"""how a command begins -> the test that has its verb where there is what it needs"""

BOUND: Final = {"4242": "1001", "/run/detshare/decisions": "{run}/decisions", "./mine.py": "{here}/mine.py"}
"""what stands on the pages for something of the reader's"""


def shown() -> set[tuple[str, str]]:
    return {(page.name, " ".join(words)) for page in pages() for words in ours(page)}


def in_sessions() -> set[tuple[str, str]]:
    made = set()
    for page in SESSIONS:
        told = steps("../README.md" if page == "README.md" else f"use/{page}")
        made |= {(page, " ".join(words)) for command, _ in told if (words := words_of(command))}
    return made


def here() -> set[tuple[str, str]]:
    return {(page, command) for page, all_of_it in HERE.items() for command in all_of_it}


def test_each_command_is_played_once() -> None:
    left = shown() - in_sessions() - here()
    begin = [(page, command, [each for each in ELSEWHERE if command.startswith(each)]) for page, command in left]
    assert [(page, command) for page, command, found in begin if len(found) != 1] == []
    assert here() <= shown() - in_sessions(), "no page shows it, or its session plays it"
    assert {found[0] for *_, found in begin} == set(ELSEWHERE), "no page shows it"


@pytest.mark.parametrize("page", SESSIONS)
def test_a_session_is_played_by_the_test_that_is_named(page: str) -> None:
    assert page in (ROOT / SESSIONS[page]).read_text(encoding="utf-8")


@pytest.mark.parametrize("begin", ELSEWHERE)
def test_the_test_elsewhere_has_the_verb(begin: str) -> None:
    assert ELSEWHERE[begin].names in (ROOT / ELSEWHERE[begin].test).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a daemon on simulated programs below `run`, and the reader's policy."""
    folder = tmp_path_factory.mktemp("played")
    shutil.copy(ROOT / "ctl" / "detshare" / "ctl" / "policy" / "shipped" / "static.py", folder / "mine.py")
    words = [sys.executable, "-m", "detshare.ctl.daemon.detshared", "--backend", "model", "--run-dir", folder / "run"]
    daemon = subprocess.Popen([*words, "--page-listen", f"127.0.0.1:{free_port()}", "--log-level", "error"])
    client = Client(folder / "run")
    until(lambda: client.alive() and len(client.programs()["programs"]) > 2)
    yield folder
    daemon.terminate()
    ended(daemon)


@pytest.mark.e2e
@pytest.mark.parametrize("page", HERE)
def test_the_commands_of_a_page_run(page: str, place: Path) -> None:
    environment = {**os.environ, "DETSHARE_RUN_DIR": str(place / "run"), "COLUMNS": "100"}
    (place / "docs").exists() or (place / "docs").symlink_to(ROOT / "docs")
    for command in HERE[page]:
        program, *words = command.split()
        words = [BOUND.get(word, word).format(run=place / "run", here=place) for word in words]
        done = run(
            [Path(sys.executable).with_name(program), *words],
            env=environment, cwd=place, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
        assert done.stdout.strip(), command
