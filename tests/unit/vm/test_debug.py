# SPDX-License-Identifier: Apache-2.0
"""The instrumented kernel's configuration, name and place, without building it."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import pytest

from detshare.tools.vm import debug, kernels, nvidia, qemu, toolchain
from detshare.tools.vm.errors import VmError
from detshare.tools.vm.kernels import Kernel


def test_it_has_what_finds_broken_modules_and_what_guests_need() -> None:
    lines = debug.CONFIG.read_text().splitlines()
    for name in ("KASAN", "PROVE_LOCKING", "DEBUG_KMEMLEAK", "DEBUG_ATOMIC_SLEEP", "DETECT_HUNG_TASK"):
        assert f"CONFIG_{name}=y" in lines
    for name in ("DYNAMIC_FTRACE", "KPROBES", "BPF_SYSCALL", "9P_FS", "OVERLAY_FS", "VIRTIO_CONSOLE"):
        assert f"CONFIG_{name}=y" in lines
    options = [line.split("=")[0] for line in lines if line.startswith("CONFIG_")]
    assert len(options) == len(set(options))


def test_lines_that_do_not_hold_are_found() -> None:
    wanted = '# a comment\nCONFIG_A=y\nCONFIG_B="x"\n# CONFIG_C is not set\nCONFIG_D=m\n\n'
    held = {"CONFIG_A=y", 'CONFIG_B="x"', "# CONFIG_C is not set", "CONFIG_D=m", "CONFIG_E=y"}
    assert debug.missing(wanted, held) == []
    assert debug.missing(wanted, held - {"CONFIG_D=m"} | {"CONFIG_D=y"}) == ["CONFIG_D=m"]
    assert debug.missing(wanted, held - {"# CONFIG_C is not set"}) == ["# CONFIG_C is not set"]


def test_another_configuration_or_compiler_is_another_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = debug.folder()
    assert debug.folder() == first
    changed = tmp_path / "debug.config"
    changed.write_bytes(debug.CONFIG.read_bytes() + b"CONFIG_X=y\n")
    monkeypatch.setattr(debug, "CONFIG", changed)
    second = debug.folder()
    monkeypatch.setattr(toolchain, "compiler_version", lambda: "gcc 99")
    assert len({first, second, debug.folder()}) == 3


def test_it_is_no_series_that_is_made_without_being_asked_for() -> None:
    assert kernels.DEBUG in kernels.NAMES
    assert kernels.DEBUG not in kernels.SERIES
    assert not kernels.cached(kernels.DEBUG)


def test_it_is_found_where_it_was_made() -> None:
    made = debug.folder()
    made.mkdir(parents=True)
    (made / "kernel.json").write_text('{"release": "6.12.1-x", "linux-source-6.12": "6.12.1-1"}')
    found = kernels.kernel(kernels.DEBUG)
    assert (found.series, found.release, found.root) == ("debug", "6.12.1-x", made)
    assert found.image == made / "boot" / "vmlinuz-6.12.1-x"
    assert found.common == found.headers == made / "usr" / "src" / "linux-headers-6.12.1-x"
    assert kernels.cached(kernels.DEBUG)


def test_missing_programs_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(VmError, match=r"(?s)missing here: flex, bison.*apt-get install flex bison"):
        debug._check_tools()


def test_which_drivers_it_takes() -> None:
    nvidia.check("nvidia-550", kernels.DEBUG)
    with pytest.raises(VmError, match=r"for kernel 6\.1"):
        nvidia.check("nvidia-535", kernels.DEBUG)


def test_an_image_packed_with_gzip_is_unpacked_on_the_host(tmp_path: Path) -> None:
    payload = gzip.compress(b"kernel" * 1000) + bytes(16)
    head = bytearray(1024)
    head[0x1F1] = 1
    struct.pack_into("<II", head, 0x248, 0, len(payload))
    kernel = Kernel("debug", "0", tmp_path)
    kernel.image.parent.mkdir()
    kernel.image.write_bytes(bytes(head) + payload)
    assert kernels.bootable(kernel).read_bytes() == b"kernel" * 1000


def test_all_reports_are_shown_not_only_the_first(tmp_path: Path) -> None:
    def words(series: str) -> str:
        kernel = Kernel(series, "0", tmp_path)
        kernel.image.parent.mkdir(exist_ok=True)
        kernel.image.write_bytes(bytes(2048))
        return " ".join(qemu.arguments(kernel, tmp_path, qemu.Machine(2048, 2), {}))

    assert "kasan_multi_shot" in words("debug")
    assert "kasan_multi_shot" not in words("6.12")
