# SPDX-License-Identifier: Apache-2.0
"""For tests that boot guests. Those below guest/ run inside one: they are collected there only."""

from __future__ import annotations

import functools
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from detshare.tools.vm.machine import CLOCK_JUMPED
from tests.conftest import BEGIN_UNTIL, NO_TIME
from tests.vm import order

TOP = Path(__file__).resolve().parents[2]
IN_GUEST = os.environ.get("DETSHARE_VM") == "1"

collect_ignore_glob = [] if IN_GUEST else ["guest/*"]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None]:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.vm)
            if order.once(item):
                item.add_marker(pytest.mark.once)
    yield
    if not IN_GUEST and all(item.get_closest_marker("vm") for item in items):
        items[:] = order.for_two_workers(items)


@dataclass(frozen=True)
class Completed:
    """A run of detshare-vm: exit code, what the command wrote (stderr: detshare-vm too), the guest's kernel log."""

    returncode: int
    stdout: str
    stderr: str
    log: str


def arguments(
    *,
    kernel: str = "6.12",
    driver: str = "none",
    gpus: int = 1,
    load: bool = False,
    order: str = "driver-first",
    mounts: Sequence[Path] = (),
    timeout: float = 120,
    driver_options: Sequence[str] = (),
    module_options: Sequence[str] = (),
    mem: int = 2048,
    cpus: int = 2,
    recording: Path | None = None,
    disk: Path | None = None,
) -> list[str]:
    """The command line of `detshare-vm run` up to the command."""
    words = ["--kernel", kernel, "--driver", driver, "--gpus", str(gpus), "--order", order]
    words += ["--timeout", str(timeout), "--mem", str(mem), "--cpus", str(cpus), *(["--load"] if load else [])]
    for option, values in (
        ("--mount", mounts),
        ("--driver-option", driver_options),
        ("--module-option", module_options),
    ):
        for value in values:
            words += [option, str(value)]
    if recording is not None:
        words += ["--recording", str(recording)]
    if disk is not None:
        words += ["--disk", str(disk)]
    return [sys.executable, "-P", "-m", "detshare.tools.vm.cli", "run", *words]


def run_guest(
    log: Path, command: str | Sequence[str], env: Mapping[str, str] | None = None, cwd: Path = TOP, **named: Any
) -> Completed:
    """What the fixture `vm` says. The kernel log is written to `log`."""
    words = ["sh", "-c", command] if isinstance(command, str) else list(command)
    for _ in range(2):
        done = subprocess.run(
            [*arguments(**named), "--log", str(log), "--", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            cwd=cwd,
            # a guest for several tests is ended once it is begun, unless its caller says otherwise
            env={**{name: text for name, text in os.environ.items() if name != BEGIN_UNTIL}, **(env or {})},
        )
        # shown by pytest where the test fails
        print(done.stdout, end="")
        print(done.stderr, end="", file=sys.stderr)
        if done.returncode != CLOCK_JUMPED:
            break
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    return Completed(done.returncode, done.stdout, done.stderr, text)


@pytest.fixture
def vm(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Completed]:
    """vm(COMMAND, kernel="6.12", driver="none", gpus=1, load=False, ..., env={}, cwd=TOP) -> Completed.

    COMMAND is a list of words, or a text for sh -c. Everything but env and cwd is as in `arguments`. `timeout` is for
    the guest, seconds; building what is missing in the cache comes before it.
    """

    def run(command: str | Sequence[str], **named: Any) -> Completed:
        return run_guest(tmp_path_factory.mktemp("vm") / "kernel.log", command, **named)

    return run


@pytest.fixture(scope="session")
def vm_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Completed]:
    """vm_once(NAME, COMMAND, ...): as vm, one guest for several tests: the first that asks starts it, in any worker."""
    from tests.unit.builds import once

    def run(name: str, command: str | Sequence[str], **named: Any) -> Completed:
        def made(folder: Path) -> Path:
            done = run_guest(folder / "kernel.log", command, **named)
            (folder / "completed.json").write_text(json.dumps(asdict(done)))
            return folder / "completed.json"

        return Completed(**json.loads(once(tmp_path_factory, f"guest-{name}", made).read_text()))

    return run


@dataclass(frozen=True)
class Step:
    """One of several commands of a guest: its exit code, what it wrote to stdout."""

    status: int
    text: str


_MARK = "--- step"


def steps(**commands: str) -> str:
    """A text for sh -c: each command by itself, whatever the ones before it ended with. `results` takes them apart."""
    return "\n".join(
        f"echo '{_MARK} {name}'\n(\n{text}\n)\nstatus=$?; echo; echo {_MARK} $status" for name, text in commands.items()
    )


def results(output: str) -> dict[str, Step]:
    """By name, what the commands of `steps` did, up to the one that never ended."""
    found: dict[str, Step] = {}
    name, text = "", ""
    for line in output.splitlines(keepends=True):
        word = line.removeprefix(_MARK).strip() if line.startswith(_MARK) else ""
        if word.isdigit():
            found[name] = Step(int(word), text.removesuffix("\n"))
        elif word:
            name, text = word, ""
        else:
            text += line
    return found


@functools.cache
def compile_ahead() -> None:
    """Bytecode of the tests in guests, with pytest's asserts: a guest would make it again in each run. detshare-vm
    makes the rest.
    """
    # what cannot be imported here fails in the guest with its reason
    every = sorted(map(str, (Path(__file__).parent / "guest").glob("*.py")))
    environment = {**os.environ, "DETSHARE_VM": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # that is about what importing leaves by the way
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": TOP}
    subprocess.run([*_pytest_words(every), "--collect-only"], check=False, env=environment, **quiet)


def _pytest_words(tests: Sequence[str]) -> list[str]:
    command = [sys.executable, "-m", "pytest", "-q", "--color=no", "-p", "no:cacheprovider", "-o", "addopts="]
    return [*command, "-ra", "--strict-markers", "--import-mode=importlib", *tests]


def guest_words(*tests: str | Path) -> list[str]:
    """The words that run these tests in a guest."""
    compile_ahead()
    # neither looks through all that is installed here nor imports what these tests do not use: 5 s in a guest
    lean = ["env", "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1", "DETSHARE_TESTS_WITHOUT_HYPOTHESIS=1"]
    return [*lean, *_pytest_words(list(map(str, tests)))]


def left_out(output: str) -> str | None:
    """What a guest that passed had no time for, by the output of its tests (tests/conftest.py)."""
    late = re.findall(rf"{NO_TIME}: (\S+)", output)
    return f"{NO_TIME}: {len(late)} of its tests, from {late[0]} on; the others passed" if late else None


@pytest.fixture
def guest_pytest(vm: Callable[..., Completed]) -> Callable[..., Completed]:
    """guest_pytest("tests/vm/guest/test_x.py", "-k", "word", kernel=..., driver=..., ...): runs tests in one guest.

    Fails with the guest's output when one of them fails, when there is none, and on a fault in the kernel log.
    Skips where some had no time left (tests/conftest.py). `leaks`, for kernel="debug" only: looks for lost memory too.
    """

    def run(*tests: str | Path, leaks: bool = False, env: Mapping[str, str] | None = None, **named: Any) -> Completed:
        command = guest_words(*tests)
        until = {name: os.environ[name] for name in (BEGIN_UNTIL,) if name in os.environ}
        done = vm(f"{shlex.join(command)} && vm-leaks" if leaks else command, env={**until, **(env or {})}, **named)
        if done.returncode:
            pytest.fail(f"in the guest, exit code {done.returncode}:\n{done.stdout}\n{done.stderr}", pytrace=False)
        if late := left_out(done.stdout):
            pytest.skip(late)
        return done

    return run
