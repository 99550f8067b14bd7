# SPDX-License-Identifier: Apache-2.0
"""Which QEMU is taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from detshare.tools.vm import emulator
from detshare.tools.vm.errors import VmError


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    emulator.command.cache_clear()
    yield
    emulator.command.cache_clear()


@pytest.fixture
def qemu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """qemu(TEXT): the host's QEMU, which says that of its version."""

    def make(text: str) -> Path:
        program = tmp_path / emulator.PROGRAM
        program.write_text(f"#!/bin/sh\necho '{text}'\n", encoding="utf-8")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        return program

    return make


@pytest.fixture
def cached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulator, "_cached", lambda: ("/bin/echo", "QEMU emulator version 10.0"))


@pytest.mark.usefixtures("cached")
@pytest.mark.parametrize("text", ["QEMU emulator version 8.1.0 (Debian)", "QEMU emulator version 10.0.2", "a fork"])
def test_the_hosts_is_taken_where_it_is_new_enough_or_says_nothing(qemu: Callable[[str], Path], text: str) -> None:
    host = qemu(text)
    assert emulator.command() == (str(host),)


@pytest.mark.usefixtures("cached")
@pytest.mark.parametrize("text", ["QEMU emulator version 7.2.22 (Debian 1:7.2)", "QEMU emulator version 8.0.4"])
def test_an_old_one_is_replaced_by_the_caches(qemu: Callable[[str], Path], text: str) -> None:
    qemu(text)
    assert emulator.command()[0] == "/bin/echo"


def test_an_old_one_is_used_and_told_of_where_no_other_can_be_had(
    qemu: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails() -> tuple[str, ...]:
        raise VmError("fetch", "no network", "wait")

    monkeypatch.setattr(emulator, "_cached", fails)
    host = qemu("QEMU emulator version 7.2.0")
    assert emulator.command() == (str(host),)
    assert "using QEMU 7.2" in capsys.readouterr().err


def test_none_at_all_is_an_error_with_the_next_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(VmError, match="apt-get install qemu-system-x86"):
        emulator.command()
