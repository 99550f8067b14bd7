# SPDX-License-Identifier: Apache-2.0
"""Choices, verdicts and errors of a run, without a guest."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from detshare.tools.vm import builds, compiler, debian, kernels, loads, machine, nvidia, toolchain
from detshare.tools.vm.checkout import FAKEGPU, TOP
from detshare.tools.vm.cli import vm
from detshare.tools.vm.debian import Suite
from detshare.tools.vm.errors import VmError
from detshare.tools.vm.kernels import Kernel
from detshare.tools.vm.machine import Outcome
from detshare.tools.vm.report import excerpt


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run"], "Missing argument"),
        (["run", "--kernel", "5.4", "--", "true"], "'5.4' is not one of"),
        (["run", "--driver", "nvidia-535", "--", "true"], "builds nvidia-535 for kernel 6.1"),
        (["run", "--kernel", "6.1", "--driver", "nvidia-550", "--", "true"], "builds nvidia-550 for kernel 6.12"),
        (["run", "--driver", "nvidia-999", "--", "true"], "neither a driver's name nor a folder"),
        (["run", "--gpus", "5", "--", "true"], "1 to 4"),
        (["run", "--gpus", "0", "--", "true"], "1 to 4"),
        (["run", "--mount", "/no/such/folder", "--", "true"], "no folder"),
        (["run", "--mount", "/", "--", "true"], "all of this machine"),
        (["run", "--disk", "/no/such/image", "--", "true"], "no file"),
        (["run", "--timeout", "0", "--", "true"], "no time"),
        (["run", "--timeout", "nan", "--", "true"], "no time"),
        *((["run", "--mem", mem, "--", "true"], "choose --mem") for mem in ("-1", "0", "99999999999999999999")),
        *((["run", "--cpus", cpus, "--", "true"], "choose --cpus") for cpus in ("-1", "0", "256")),
        *((["run", option, "", "--", "true"], "is empty") for option in ("--mount", "--disk", "--log", "--driver")),
        (["run", "--driver", "forward", "--recording", "", "--", "true"], "is empty"),
        (["pack", ""], "is empty"),
        (["pack", "--mem", "0", "x.tar.xz"], "choose --mem"),
        (["pack", "--cpus", "-1", "x.tar.xz"], "choose --cpus"),
        (["pack", "/no/such/folder/x.tar.xz"], "there is no folder"),
        *((["clean", "--older-than", days], "--older-than") for days in ("-1", "nan", "inf")),
        (["run", "--driver-option", "a=1", "--", "true"], "no driver"),
        (["run", "--module-option", "a=1", "--", "true"], "--load"),
        (["run", "--env", "a-b=1", "--", "true"], "--env"),
        (["run", "--driver", "nvidia-550", "--gpus", "4", "--mem", "600", "--", "true"], "--mem"),
        (["shell"], "no terminal"),
        (["build", "/usr/share"], "no Kbuild"),
        (["build", str(FAKEGPU), "word"], "NAME=VALUE"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_exit_code_2(arguments: list[str], said: str, monkeypatch) -> None:
    # before anything is fetched
    monkeypatch.setattr(kernels, "_fetch", lambda *_: pytest.fail("fetched a kernel"))
    if arguments[0] == "build":
        monkeypatch.setattr(kernels, "kernel", lambda name: Kernel(name, "0", Path("/k")))
    done = CliRunner().invoke(vm, arguments)
    assert done.exit_code == 2, done.output
    assert said in done.output


@pytest.mark.parametrize("command", [[], ["run"], ["shell"], ["build"], ["prepare"], ["clean"]])
def test_help_has_an_example(command: list[str]) -> None:
    done = CliRunner().invoke(vm, [*command, "--help"])
    assert done.exit_code == 0
    assert "  detshare-vm " in done.output.partition("Example")[2]


def test_words_after_the_command_are_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr("detshare.tools.vm.cli._boot", lambda options, _log: seen.append(options.command) or 0)
    CliRunner().invoke(vm, ["run", "--kernel", "6.1", "ls", "--kernel", "x"])
    CliRunner().invoke(vm, ["run", "--", "ls", "--", "-l"])
    assert seen == [("ls", "--kernel", "x"), ("ls", "--", "-l")]


@pytest.mark.parametrize(
    ("memory", "gpus", "expected"),
    [
        (2048, 1, (1920, 64)),
        (2048, 4, (1728, 256)),
        (1000, 1, (832, 64)),
        (2816, 1, (1920, 64)),
        (8192, 2, (1856, 128)),
    ],
)
def test_the_fake_gpus_window_lies_in_ram_below_4_gib(memory: int, gpus: int, expected: tuple[int, int]) -> None:
    start, size = loads.window(memory, gpus)
    assert (start, size) == expected
    assert start + size <= min(memory, 2816) - 64
    assert loads.Loads(window=(start, size)).reserved == f"{size + 2}M${start - 1}M"


def listen(*lines: bytes, words: dict[str, tuple[str, float]] | None = None) -> machine._Listener:
    listener = machine._Listener(io.BytesIO(), io.BytesIO(), None)
    for line in lines:
        listener.take("log", line)
    listener.words = words or {}
    return listener


@pytest.mark.parametrize(
    ("words", "late", "status", "said"),
    [
        ({"up": ("", 1.0), "begin": ("", 1.0), "exit": ("0", 2.0)}, "", 0, None),
        ({"up": ("", 1.0), "begin": ("", 1.0), "exit": ("7", 2.0)}, "", 7, None),
        ({"up": ("", 1.0), "begin": ("", 1.0)}, "did X", 124, "did not end: the guest did X,"),
        ({}, "did X", 124, "did not come up: it did X"),
        ({"up": ("", 1.0), "failed": ("loading: driver", 2.0)}, "", 1, "loading: driver"),
        ({"up": ("", 1.0), "begin": ("", 1.0)}, "", 1, "ended before the command"),
        ({}, "", 1, "QEMU said: no such device"),
    ],
)
def test_verdict(words: dict[str, tuple[str, float]], late: str, status: int, said: str | None) -> None:
    found, command, trouble = machine._verdict(listen(words=words), late, "no such device")
    assert found == status
    assert command == (status if "exit" in words else None)
    assert (trouble is None) if said is None else (said in (trouble or ""))


def test_a_fault_wins_over_the_commands_own_exit_code() -> None:
    listener = listen(b"[ 1.0] all ", b"well\r\n[ 2.0] BUG: bad", b"\r\n[ 3.0] more\n", words={"exit": ("0", 2.0)})
    status, command, trouble = machine._verdict(listener, "", "")
    assert (status, command) == (1, 0)
    assert "BUG: bad (the command exited with 0)" in (trouble or "")
    assert listener.lines == ["[ 1.0] all well", "[ 2.0] BUG: bad", "[ 3.0] more"]
    assert listener.splat_at == 1


def test_a_clock_that_jumps_ahead_is_told_apart_from_lines_that_come_late(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(machine.time, "monotonic", lambda: now[0])
    listener = listen()
    # the first lines wait for the console, others for a busy host
    for host, guest in ((30.0, 0.0), (30.1, 27.0), (40.0, 38.0), (80.0, 45.0), (81.0, 80.9)):
        now[0] = 1000.0 + host
        listener.take("log", f"[{guest:12.6f}] words\n".encode())
    assert listener.jump <= 0
    now[0] += 1
    listener.take("log", b"[  202.700000] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:\n")
    assert 120 < listener.jump < 121


def test_excerpt_shows_the_fault_and_what_led_to_it() -> None:
    lines = [f"line {number}" for number in range(1000)]
    shown = excerpt(Outcome(1, 0, "x", 1.0, 2.0, lines, splat_at=500))
    assert shown[0] == "line 490"
    assert shown[-1] == "... and 110 lines more"
    assert excerpt(Outcome(124, None, "x", 1.0, 2.0, lines))[-1] == "line 999"


APT_TARGETS = """\
http://a.example/debian-security/\tbookworm-security\tmain
http://b.example/other/\tnodistro\tmain
http://c.example/debian/\tbookworm\tcontrib
http://d.example/debian/\tbookworm\tmain
"""


def fake_apt(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    (folder / "apt-get").write_text(f"#!/bin/sh\ncat <<'E'\n{text}E\n")
    (folder / "apt-get").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.delenv("DETSHARE_MIRROR", raising=False)


def test_the_mirror_is_that_of_the_hosts_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_apt(tmp_path, monkeypatch, APT_TARGETS)
    assert debian.mirror() == "http://d.example/debian"
    monkeypatch.setenv("DETSHARE_MIRROR", "http://e.example/debian/")
    assert debian.mirror() == "http://e.example/debian"


def test_sources_without_debian_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_apt(tmp_path, monkeypatch, "http://u.example/ubuntu/\tjammy\tmain\n")
    with pytest.raises(VmError, match="DETSHARE_MIRROR"):
        debian.mirror()


def test_a_mirror_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DETSHARE_MIRROR", f"file://{tmp_path}/nowhere")
    with pytest.raises(VmError, match=r"read the package list of Debian bookworm/main from file://"):
        Suite("bookworm", "main").update()


def test_a_module_in_the_checkout_gets_kmod_only_when_it_names_it(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(builds, "TOP", tmp_path)
    for name, text in (
        ("kmod/rm/tree.h", ""),
        ("tests/a/Kbuild", ""),
        ("tests/a/a.c", '#include "../../kmod/rm/tree.h"'),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    base, files = builds.sources(tmp_path / "tests" / "a")
    assert base == tmp_path
    assert {str(file.relative_to(base)) for file in files} == {"kmod/rm/tree.h", "tests/a/Kbuild", "tests/a/a.c"}
    (tmp_path / "tests" / "a" / "a.c").write_text("")
    assert len(builds.sources(tmp_path / "tests" / "a")[1]) == 2


def test_the_root_of_the_checkout_is_kbuild_and_kmod() -> None:
    base, files = builds.sources(TOP)
    assert base == TOP
    assert TOP / "Kbuild" in files
    assert all(file == TOP / "Kbuild" or file.is_relative_to(TOP / "kmod") for file in files)


def test_what_a_build_makes_is_no_source(tmp_path: Path) -> None:
    for name in (
        "Kbuild",
        "a.c",
        "a.o",
        "a.ko",
        "a.mod",
        "a.mod.c",
        ".a.ko.cmd",
        "Module.symvers",
        "sub/b.h",
        "__pycache__/c.pyc",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    base, files = builds.sources(tmp_path)
    assert sorted(str(file.relative_to(base)) for file in files) == ["Kbuild", "a.c", "sub/b.h"]


def test_a_failed_build_shows_its_errors() -> None:
    log = "".join(f"  CC [M]  x{n}.o\n" for n in range(100)) + "x.c:3:1: error: no\nmake: Error 2\n" + "tail\n" * 99
    shown = toolchain.failure(log).splitlines()
    assert "x.c:3:1: error: no" in shown[:6]
    assert len(shown) <= 61


def test_dependencies_of_a_module_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.ko").write_bytes(b"\x7fELF\0license=GPL\0depends=drm,i2c-core\0retpoline=Y\0")
    (tmp_path / "b.ko").write_bytes(b"\0license=GPL\0depends=\0")
    (tmp_path / "c.ko").write_bytes(b"\0license=GPL\0")
    assert [builds.depends(tmp_path / f"{name}.ko") for name in "abc"] == [["drm", "i2c-core"], [], []]


def test_a_driver_of_a_folder_is_for_the_kernel_that_it_was_built_for(tmp_path: Path) -> None:
    kernel = Kernel("6.12", "6.12.1-amd64", tmp_path)
    with pytest.raises(VmError, match="no such module"):
        nvidia.given(tmp_path, kernel)
    for name, needs in (("nvidia", "drm"), ("nvidia-uvm", "nvidia,drm")):
        text = f"\x7fELF\0version=580.1\0depends={needs}\0vermagic=6.12.1-amd64 SMP\0"
        (tmp_path / f"{name}.ko").write_bytes(text.encode())
    found = nvidia.given(tmp_path, kernel)
    assert (found.version, found.nvidia.name, found.needs) == ("580.1", "nvidia.ko", ("drm",))
    with pytest.raises(VmError, match=r"built for 6\.12\.1-amd64"):
        nvidia.given(tmp_path, Kernel("6.1", "6.1.0-9-amd64", tmp_path))


def test_the_newest_kernel_of_a_series_is_found_among_the_packages() -> None:
    names = ["linux-image-6.12.9+deb12-amd64", "linux-image-6.12.90+deb12-amd64", "linux-image-6.12.90+deb12.1-amd64"]
    others = [
        "linux-image-6.12.99+deb12-rt-amd64",
        "linux-image-6.12.99+deb12-cloud-amd64",
        "linux-image-6.1.0-9-amd64",
    ]
    unsigned = ["linux-image-6.12.99+deb12-amd64-unsigned", "linux-image-6.12.99+deb12-amd64-dbg"]
    assert kernels.newest("6.12", names + others + unsigned) == "6.12.90+deb12.1-amd64"
    assert kernels.newest("6.1", [*names, *others, "linux-image-6.1.0-50-amd64"]) == "6.1.0-50-amd64"
    assert kernels.newest("7.3", names) is None


def test_newer_programs_are_run_by_their_own_loader_under_their_own_names(tmp_path: Path) -> None:
    program = tmp_path / "scripts" / "thing"
    program.parent.mkdir()
    shutil.copy2("/bin/sh", program)
    (tmp_path / "scripts" / "text.sh").write_text("#!/bin/sh\n")
    loader = next(iter(sorted(Path("/lib64").glob("ld-linux-x86-64.so.2"))))
    compiler.wrap(tmp_path, loader, Path("/lib/x86_64-linux-gnu"))
    done = subprocess.run([program, "-c", 'echo "$0" "$1"', "a b", "c"], capture_output=True, text=True, check=True)
    assert done.stdout == "a b c\n"
    named = subprocess.run([program], input="echo $0", capture_output=True, text=True, check=True)
    assert named.stdout == f"{program}\n"
    assert (tmp_path / "scripts" / "text.sh").read_text() == "#!/bin/sh\n"


def test_each_branch_names_a_kernel_that_we_have() -> None:
    assert {branch.kernel for branch in nvidia.BRANCHES.values()} <= set(kernels.SERIES)


def test_guests_are_not_started_by_importing_the_package() -> None:
    code = "import sys, detshare.tools.vm.cli; print('rich' in sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_folder_that_is_gone_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    done = CliRunner().invoke(vm, ["run", "--", "true"])
    assert done.exit_code == 1
    assert "the folder that you are in is gone\nnext: cd" in done.output
