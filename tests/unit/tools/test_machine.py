# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import pynvml
import pytest

from detshare.tools import machine

OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (root@)\nGCC version: 12\n"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104  Sat Aug 19 01:15:15 UTC 2023\n"


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A /proc/driver/nvidia with two equal GPUs, and no NVML."""

    def no_nvml() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", no_nvml)
    (tmp_path / "version").write_text(OPEN)
    for bus in ("0000:01:00.0", "0000:02:00.0"):
        (tmp_path / "gpus" / bus).mkdir(parents=True)
        information = "Model: \t\t NVIDIA H100 80GB HBM3\nGPU UUID: \t GPU-1234\n"
        (tmp_path / "gpus" / bus / "information").write_text(information)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "version"), [(OPEN, "580.95.05 open"), (CLOSED, "535.104"), ("", None), ("x\n", None)]
)
def test_driver_version(tmp_path: Path, text: str, version: str | None) -> None:
    (tmp_path / "version").write_text(text)
    assert machine.driver_version(tmp_path) == version


def test_machine_names_gpus_and_driver_but_no_host(proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "node", lambda: "secret-host")
    line = machine.machine(proc)
    assert line.startswith("2 x NVIDIA H100 80GB HBM3; driver 580.95.05 open; Linux ")
    assert line.endswith(" CPUs")
    assert "secret-host" not in line
    assert "GPU-1234" not in line


def test_machine_without_a_gpu_says_so(tmp_path: Path, proc: Path) -> None:
    assert machine.machine(tmp_path / "nothing").startswith("no GPU; no NVIDIA driver; ")


def test_commit_is_told_described_or_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DETSHARE_COMMIT", " v1-told ")
    assert machine.commit() == "v1-told"
    monkeypatch.setenv("DETSHARE_COMMIT", "")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.setattr(machine, "__file__", str(tmp_path / "machine.py"))
    assert machine.commit() == "unknown"
    git = ["git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@example.org"]
    (tmp_path / "machine.py").write_text("one\n")
    measured = tmp_path / "docs" / "results" / "raw" / "x.jsonl"
    measured.parent.mkdir(parents=True)
    measured.write_text("1\n")
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "one"], check=True)
    clean = machine.commit()
    assert len(clean) >= 7
    assert "dirty" not in clean
    measured.write_text("2\n")
    assert machine.commit() == clean, "a result is no source: a run writes its own before it is over"
    (tmp_path / "machine.py").write_text("two\n")
    assert machine.commit() == f"{clean}-dirty"
