# SPDX-License-Identifier: Apache-2.0
"""README and docs/use: each command shown is played, by page, beside a daemon on the model, or a row says why not.

What differs from the page is in `_here`: whose folders they are, and PIDs, which are programs of that daemon.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from pathlib import Path

import pytest
from builds import ROOT
from not_played import NOT_PLAYED, SESSIONS
from pages import BLOCK, Session, blocks, steps
from shown_commands import PROGRAMS, SHELL, pages, text_of

Shown = tuple[str, list[str]]

WAIT = "for i in $(seq 200); do detshare-ctl policy show >/dev/null 2>&1 && break; sleep 0.2; done"
EXIT = re.compile(r"^=== exit (\d+)\n\Z", re.MULTILINE)
HEAD = re.compile(r"^ *[A-Z/]+( +[A-Z/]+)+$")
KEY = re.compile(r"^ *[a-z]+( [a-z]+)*")
"""how a line begins that is no row of a list"""
BEFORE = {
    "decisions.md": ["detshare-ctl policy set ./mine.py slice_us=400"],
}
"""what the page takes as done"""
REST = ("gpu-virt-bench.md", "module.md", "park.md", "simulator.md", "trace-timeline.md")
"""pages whose commands take long, and one that has none of its own"""
WORD = '''\
from dataclasses import dataclass

from detshare.ctl.policy.types import Policy, Slice


class Word(Policy):
    """Rule: programs whose command has `word` get a short slice."""

    @dataclass(frozen=True)
    class Params:
        word: str = "train"
        slice_us: int = 200

    def on_attach(self, now, tenant):
        if self.params.word in next(each.command for each in now.tenants if each.name == tenant):
            yield Slice(tenant, self.params.slice_us, 0, f"{self.params.word} may wait")
'''


def shown(page: Path) -> list[Shown]:
    """Commands in the page's order, each with its output; without those of a session that is played elsewhere."""
    found: list[Shown] = []
    for kind, inside in BLOCK.findall(text_of(page)):
        if kind not in SHELL or (kind == "console" and page.name in SESSIONS):
            continue
        prompts = any(re.match(r"[$#] \S", line) for line in inside.splitlines())
        for line in re.sub(r" *\\\n *", " ", inside).splitlines():
            if prompts and not re.match(r"[$#] \S", line):
                found[-1][1].append(line)
            elif line.strip():
                found.append((re.sub(r"\s+#\s.*", "", line[2:] if prompts else line), []))
    return found


def rows(page: Path) -> list[str]:
    return [command for row in NOT_PLAYED.get(page.name, []) for command in row.commands]


def played(page: Path) -> list[Shown]:
    return [each for each in shown(page) if each[0] not in rows(page)]


def safe(command: str) -> bool:
    """Whether it may run on this machine, as root perhaps: one program of ours, or a copy in the sandbox."""
    words = command.removeprefix("sudo ").split()
    return words[0] in {*PROGRAMS, "cp"} and not re.search(r"[|;&<>`]|\bsudo\b", command.removeprefix("sudo "))


def _here(command: str, folder: Path) -> str:
    """The command in this sandbox, in as little time as it tells the same."""
    changes = (
        (r"^sudo ", ""),
        (r"/run/detshare/", f"{folder}/run/"),
        (r"/var/backups/", f"{folder}/"),
        (r"/etc/cdi\b", f"{folder}/cdi"),
        (r"^(detshare-ctl config (check|show))$", rf"\1 {folder}/detshare.toml"),
        (r"\b4242\b", "1000"),
        (r"(?<= )docs/results", f"{ROOT}/docs/results"),
        (r"^(detshare-sim run .*?)( --seeds \d+)?( --json)?$", r"\1 --seconds 2 --seeds 1\3"),
        (r"\b5000\b", "50"),
    )
    for old, new in changes:
        command = re.sub(old, new, command)
    return command


def _port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _furnish(page: Path, folder: Path) -> None:
    """Files that the page's reader has: its configuration, programs, policies, a trace."""
    (asked,) = blocks("use/page.md", "toml") if page.name == "page.md" else [""]
    settings = re.sub(r":\d+\"", f':{_port()}"', asked)
    (folder / "detshare.toml").write_text(f'[daemon]\nbackend = "model"\nlog_level = "error"\n{settings}')
    for name in ("mine.py", "my_policy.py"):
        (folder / name).write_text(WORD)
    for name in ("serve.py", "train.py"):
        (folder / name).write_text("")
    lines = [f"2023-11-16 18:17:{second:02}.0000000,400,20\n" for second in range(60)]
    head = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    (folder / "AzureLLMInferenceTrace_code.csv").write_text(head + "".join(lines))


PLAYED = [page for page in pages() if played(page)]


@pytest.mark.e2e
@pytest.mark.parametrize(
    "page", [pytest.param(each, id=each.name, marks=[pytest.mark.rest] * (each.name in REST)) for each in PLAYED]
)
def test_what_a_page_shows_can_be_done(page: Path, tmp_path: Path) -> None:
    assert [command for command, _ in played(page) if not safe(command)] == []  # what is in neither runs nowhere
    _furnish(page, tmp_path)
    paths = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": paths, "COLUMNS": "100", "HOME": str(tmp_path)}
    environment["DETSHARE_RUN_DIR"] = str(tmp_path / "run")
    with Session(["bash", "-o", "pipefail"], cwd=tmp_path, env=environment) as session:
        session.say("detshared --config detshare.toml >daemon.log 2>&1 &")
        session.say(WAIT)
        for command in BEFORE.get(page.name, ()):
            check(session, command, [])
        for command, lines in played(page):
            check(session, _here(command, tmp_path), lines)
        check(session, "kill %1 && wait %1 && cat daemon.log", [])


def said_code(said: str) -> int:
    found = EXIT.search(said)
    assert found is not None, said
    return int(found[1])


def starts(told: list[str]) -> list[str]:
    return [key[0] for line in told if (key := KEY.match(line))]


def check(session: Session, command: str, lines: list[str]) -> None:
    """It exits with 0, and has the columns and the lines' beginnings that the page shows."""
    said = session.say(f'{command}\necho "=== exit $?"')
    assert not said_code(said), f"$ {command}\n{said}"
    told = said.splitlines()
    missing = [line for line in lines if HEAD.match(line) and line.split() not in [each.split() for each in told]]
    missing += [key[0] for line in lines if (key := KEY.match(line)) and key[0] not in starts(told)]
    assert missing == [], f"$ {command}\n{said}"


def test_a_row_is_for_a_command_of_its_page_that_nobody_plays() -> None:
    assert set(NOT_PLAYED) | set(SESSIONS) <= {page.name for page in pages()}
    needless = [
        (page.name, command)
        for page in pages()
        for command in rows(page)
        if command not in [each for each, _ in shown(page)]
        or rows(page).count(command) > 1
        or (page.name in SESSIONS and command in [each for each, _ in steps(os.path.relpath(page, ROOT / "docs"))])
    ]
    assert needless == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_what_has_no_row_may_run_here(page: Path) -> None:
    assert [command for command, _ in played(page) if not safe(command)] == []


def test_what_is_not_ours_runs_nowhere() -> None:
    for command in ("sudo rm -rf /etc/detshare", "insmod detshare.ko", "detshare-ctl ps | sudo tee /etc/x", "cp a >b"):
        assert not safe(command)


@pytest.mark.parametrize(
    "test", sorted({*SESSIONS.values(), *(row.elsewhere for page in NOT_PLAYED.values() for row in page)} - {""})
)
def test_what_a_row_names_is_a_test(test: str) -> None:
    for each in test.split(", "):
        path, _, name = each.partition("::")
        assert re.search(rf"^def {name}\(", (ROOT / "tests" / path).read_text(encoding="utf-8"), re.MULTILINE), each


def test_most_of_our_commands_are_played() -> None:
    assert sum(len(played(page)) for page in pages()) > 30


@pytest.mark.e2e
def test_a_command_that_fails_and_columns_that_are_others_would_be_found(tmp_path: Path) -> None:
    with Session(["bash"], cwd=tmp_path) as session:
        check(session, "printf 'PID GPU\\n'", ["PID  GPU"])
        for command, lines in (("false", []), ("printf 'PID GPU\\n'", ["PID CLASS"]), ("echo no class", ["class low"])):
            with pytest.raises(AssertionError):
                check(session, command, lines)
