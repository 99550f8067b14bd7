# SPDX-License-Identifier: Apache-2.0
"""Choosing a loader, refusals, and the command line where nothing can be loaded."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from detshare.ebpf import bpf, build, checks, libraries, loader
from detshare.ebpf.bcc import _kinds
from detshare.ebpf.errors import EbpfError

TRACE = Path(sys.executable).with_name("detshare-trace")


def choose(monkeypatch: pytest.MonkeyPatch, wanted: str, bcc: str = "", libbpf: str = "") -> list[str]:
    monkeypatch.setenv("DETSHARE_EBPF", wanted)
    monkeypatch.setattr(loader, "_bcc_missing", lambda: bcc)
    monkeypatch.setattr(loader, "_libbpf_missing", lambda: libbpf)
    return [choice.name for choice in loader.choices()]


def test_bcc_comes_first_and_objects_serve_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose(monkeypatch, "auto") == ["bcc", "libbpf"]
    assert choose(monkeypatch, "auto", bcc="no headers") == ["libbpf"]
    assert choose(monkeypatch, "auto", libbpf="no BTF") == ["bcc"]
    assert choose(monkeypatch, "libbpf") == ["libbpf"]


def test_without_either_both_reasons_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose(monkeypatch, "auto", bcc="no headers", libbpf="no BTF") == [""]
    choice = loader.choices()[0]
    assert "no headers" in choice.why
    assert "no BTF" in choice.why
    assert "apt-get install" in choice.advice
    assert checks.loading().ok is None


def test_an_unknown_loader_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DETSHARE_EBPF", "magic")
    with pytest.raises(EbpfError, match="DETSHARE_EBPF"):
        loader.choices()


def test_refusals_say_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    error = OSError(errno.EPERM, os.strerror(errno.EPERM))
    monkeypatch.setattr(bpf, "lockdown", lambda: "")
    assert "CAP_BPF" in bpf.refused("load", error).why
    monkeypatch.setattr(bpf, "lockdown", lambda: "confidentiality")
    assert "locked down" in bpf.refused("load", error).why
    assert "locked down" in bpf.refused("load", OSError(errno.EINVAL, "invalid program")).why


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("source", build.sources(), ids=lambda path: path.name)
def test_bcc_is_told_of_every_function_of_a_source(source: Path) -> None:
    """What the regular expression finds is what clang makes programs of."""
    symbols = subprocess.run(["nm", build.build(source)], check=True, capture_output=True, text=True).stdout
    compiled = {line.split()[2] for line in symbols.splitlines() if " T " in line}
    assert set(_kinds(source.read_text())) == compiled


@pytest.mark.usefixtures("compiler")
def test_a_source_with_a_mistake_says_where(tmp_path: Path) -> None:
    source = tmp_path / "wrong.bpf.c"
    source.write_text("int x = ;\n")
    with pytest.raises(EbpfError, match=r"wrong.bpf.c:1"):
        build.build(source, tmp_path)
    assert not (tmp_path / "wrong.bpf.o").exists()


@pytest.mark.parametrize("tool", ["objects", "launches", "dirty", "latency", "doctor"])
def test_every_tool_has_help_with_an_example(tool: str) -> None:
    done = subprocess.run([TRACE, tool, "--help"], capture_output=True, text=True, check=True)
    assert f"Example: detshare-trace {tool}" in done.stdout
    assert "--json" in done.stdout


@pytest.mark.parametrize(
    "words", [["nothing"], ["launches", "--pid", "0"], ["dirty", "--duration", "nan"], ["latency", "--interval", "1"]]
)
def test_bad_usage_is_exit_code_2(words: list[str]) -> None:
    assert subprocess.run([TRACE, *words], capture_output=True, check=False).returncode == 2


def test_without_rights_a_tool_says_what_is_missing() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to drop its rights")
    words = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", str(TRACE), "launches", "--duration", "1"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "CAP_BPF" in done.stderr
    assert "next: " in done.stderr


def test_tracepoints_are_found_where_tracefs_is_not_mounted() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    bare = 'while umount -t tracefs -a 2>/dev/null && grep -q " tracefs " /proc/mounts; do :; done'
    words = ["unshare", "--mount", "sh", "-c", f'{bare}; exec "$0" doctor --json', TRACE]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    found = {each["name"]: each for each in json.loads(done.stdout)}
    if "no tracepoints of system calls" in found["tracepoints"]["text"]:
        pytest.skip("this kernel has none")
    assert (found["tracepoints"]["ok"], found["tracepoints"]["text"]) == (True, "seen, though tracefs is not mounted")


def test_what_is_no_libcuda_makes_the_view_partial_and_a_pid_that_is_nobodys_is_refused() -> None:
    if os.geteuid() != 0 or checks.loading().ok is not True:
        pytest.skip("needs root and eBPF")
    words = [TRACE, "launches", "--duration", "0.1", "--libcuda", sys.executable]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "it exports no function of CUDA's driver; name another with --libcuda" in done.stderr
    done = subprocess.run([*words, "--pid", str(1 << 22)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "there is no such process" in done.stderr


def test_libraries_are_found_in_other_places_and_once(tmp_path: Path, libcuda: Path) -> None:
    link = tmp_path / "libcuda.so.1"
    link.symlink_to(libcuda)
    found = [each for each in libraries.installed([str(libcuda), str(link)]) if each.path == str(libcuda.resolve())]
    assert len(found) == 1
    assert libraries.mapped(os.getpid()) == []
    assert libraries.mapped(1 << 22) == []


def test_in_another_pid_namespace_the_view_is_partial_and_no_pid_is_taken() -> None:
    if os.geteuid() != 0 or checks.loading().ok is not True:
        pytest.skip("needs root and eBPF")
    inside = ["unshare", "--pid", "--fork", "--mount-proc", str(TRACE), "launches", "--duration", "1"]
    done = subprocess.run([*inside, "--pid", "1"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pid namespace" in done.stderr
    done = subprocess.run(inside, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "partial: this is not the initial pid namespace" in done.stderr
