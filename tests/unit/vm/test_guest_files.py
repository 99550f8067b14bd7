# SPDX-License-Identifier: Apache-2.0
"""What a guest is started with: images, settings, QEMU's command line."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detshare.tools.vm import emulator, initramfs, machine, qemu, tsc
from detshare.tools.vm.checkout import TOP
from detshare.tools.vm.kernels import Kernel
from detshare.tools.vm.loads import Loads
from detshare.tools.vm.options import Options

NAMES = ("KEEP", "SHARES", "COMMAND", "CWD", "ORDER", "LOAD", "GPUS", "WINDOW", "DRIVER_OPTIONS", "MODULE_OPTIONS")


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    root = tmp_path / "6.12.1-amd64"
    modules = root / "lib" / "modules" / "6.12.1-amd64"
    modules.mkdir(parents=True)
    (root / "boot").mkdir()
    (root / "boot" / "vmlinuz-6.12.1-amd64").write_bytes(bytes(4096))
    (modules / "modules.dep").write_text(
        "kernel/fs/9p/9p.ko: kernel/net/9p/9pnet.ko kernel/fs/netfs.ko\n"
        "kernel/net/9p/9pnet.ko:\nkernel/fs/netfs.ko:\nkernel/net/9p/9pnet_virtio.ko: kernel/net/9p/9pnet.ko\n"
        "kernel/drivers/char/hw_random/virtio-rng.ko:\n"
    )
    return Kernel("6.12", "6.12.1-amd64", root)


def read_by_shell(text: str) -> dict[str, list[str]]:
    """What the guest's scripts get out of a settings file: each value, split by `eval set --`."""
    script = text + "".join(f'eval set -- "${name}"; printf "%s\\0" {name} $# "$@"; printf "\\0"; ' for name in NAMES)
    out = subprocess.run(["sh", "-c", script], capture_output=True, check=True).stdout.decode()
    words = iter(out.split("\0"))
    found: dict[str, list[str]] = {}
    for name in words:
        if name in NAMES:
            found[name] = [next(words) for _ in range(int(next(words)))]
    return found


WORDS = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=20)


@given(st.lists(WORDS, min_size=1, max_size=5))
def test_any_words_of_a_command_pass_through_the_guests_shell(words: list[str]) -> None:
    kernel = Kernel("6.12", "6.12.1-amd64", Path("/k"))
    options = Options(tuple(words), environment=(("PATH", "/bin"), ("DETSHARE_X", words[0])), cwd=Path("/"))
    command = read_by_shell(machine.settings(options, kernel, Loads()))["COMMAND"]
    assert command[:2] == ["/usr/bin/env", "-i"]
    assert command[-len(words) :] == words
    assert f"DETSHARE_X={words[0]}" in command
    assert "PATH=/bin:/run/detshare/commands" in command


def test_settings_name_shares_and_modules(kernel: Kernel, tmp_path: Path) -> None:
    one, two = tmp_path / "b with space", tmp_path / "a"
    one.mkdir()
    two.mkdir()
    loads = Loads(
        Path("/c/nvidia.ko"), Path("/c/nvidia-uvm.ko"), ("drm",), Path("/c/f.ko"), Path("/c/d.ko"), (1024, 64)
    )
    options = Options(
        ("true",),
        driver="nvidia-550",
        load=True,
        order="module-first",
        mounts=(one, two, one),
        driver_options=("a=b c",),
    )
    told = read_by_shell(machine.settings(options, kernel, loads))
    assert told["SHARES"] == ["share0", str(two), "share1", str(one)]
    assert told["LOAD"] == ["module", "driver"]
    assert told["DRIVER_OPTIONS"] == ["a=b c"]
    assert told["WINDOW"] == ["0x40000000"]
    assert told["GPUS"] == ["1"]


def test_the_simulated_driver_is_told_the_number_of_gpus(kernel: Kernel) -> None:
    loads = Loads(Path("/c/nvidia.ko"), Path("/c/nvidia-uvm.ko"))
    options = Options(("true",), driver="sim", gpus=3, driver_options=("heap_mb=64",))
    told = read_by_shell(machine.settings(options, kernel, loads))
    assert told["DRIVER_OPTIONS"] == ["gpus=3", "heap_mb=64"]
    assert told["GPUS"] == ["3"]


def test_settings_keep_what_a_tmpfs_of_the_guest_would_hide() -> None:
    paths = [Path("/tmp/x/repo"), Path("/tmp/x/repo/docs"), Path("/root/.cache"), Path("/run/y"), Path("/tmp")]
    assert machine.kept_paths(paths) == [Path("/run/y"), Path("/tmp/x/repo")]


def test_environment_is_what_a_shell_needs_and_our_own_variables() -> None:
    told = dict(machine.environment({"DETSHARE_A": "1", "SECRET": "2", "PATH": "/p", "LD_PRELOAD": "x"}))
    assert told == {"DETSHARE_A": "1", "PATH": "/p", "HOME": "/root"}


def test_archive_is_what_cpio_reads(tmp_path: Path) -> None:
    archive = initramfs.Archive()
    archive.file("a/b/run", b"#!/bin/sh\n", 0o755)
    archive.file("a/data", bytes(range(256)) * 5)
    archive.link("a/link", "b/run")
    archive.folder("empty")
    data = archive.close()
    # the kernel takes archives that follow each other at multiples of 4
    assert len(data) % 4 == 0
    subprocess.run([initramfs.busybox(), "cpio", "-i", "-m"], input=data, cwd=tmp_path, capture_output=True, check=True)
    assert (tmp_path / "a" / "data").read_bytes() == bytes(range(256)) * 5
    assert os.access(tmp_path / "a" / "b" / "run", os.X_OK)
    assert os.readlink(tmp_path / "a" / "link") == "b/run"
    assert (tmp_path / "empty").is_dir()


def test_modules_come_after_what_they_need_and_built_in_ones_not_at_all(kernel: Kernel) -> None:
    found = [path.stem for path in initramfs.order(kernel, ("virtio_pci", "virtio_rng", "9pnet_virtio", "9p"))]
    assert found == ["virtio-rng", "9pnet", "9pnet_virtio", "netfs", "9p"]


def test_a_disk_is_never_changed(kernel: Kernel, tmp_path: Path) -> None:
    hardware = qemu.Machine(512, 1, disk=tmp_path / "image.ext4")
    words = qemu.arguments(kernel, tmp_path / "image", hardware, {"log": 5, "control": 6, "out": 7, "err": 8})
    (drive,) = [word for word in words if word.startswith("id=disk,")]
    assert f"file={tmp_path}/image.ext4,format=raw" in drive
    assert "snapshot=on" in drive


def test_qemu_gets_shares_ports_and_the_window(kernel: Kernel, tmp_path: Path) -> None:
    if shutil.which(emulator.PROGRAM) is None:
        pytest.fail("qemu-system-x86 is missing; as root: apt-get install qemu-system-x86")
    hardware = qemu.Machine(1024, 2, (tmp_path,), "66M$511M", tsc_khz=2_500_000)
    words = qemu.arguments(kernel, tmp_path / "image", hardware, {"log": 5, "control": 6, "out": 7, "err": 8})
    text = " ".join(words)
    assert "memmap=66M$511M" in text
    assert "tsc_early_khz=2500000" in text
    assert (
        f"path={tmp_path},security_model=none,multidevs=remap"
        in words[
            words.index("-fsdev", words.index("local,id=host,path=/,security_model=none,multidevs=remap,readonly=on"))
            + 1
        ]
    )
    assert "path=/,security_model=none,multidevs=remap,readonly=on" in text
    assert [word for word in words if word.startswith("socket,id=")] == [
        "socket,id=log,fd=5",
        "socket,id=control,fd=6",
        "socket,id=out,fd=7",
        "socket,id=err,fd=8",
    ]
    assert "kvm" not in text


def test_scripts_of_the_guest_use_only_commands_that_it_has() -> None:
    folder = TOP / "tools" / "detshare" / "tools" / "vm" / "guest"
    applets = subprocess.run([initramfs.busybox(), "--list"], capture_output=True, text=True, check=True).stdout.split()
    text = (folder / "init").read_text()
    linked = text.split("for applet in ")[1].split(";")[0].split()
    assert set(linked) <= set(applets)


def test_the_rate_of_the_time_stamp_counter_is_found_alike_each_time() -> None:
    rates = [tsc.khz() for _ in range(3)]
    if platform.machine() != "x86_64":
        assert rates == [None] * 3
        return
    known = [rate for rate in rates if rate is not None]
    assert len(known) == 3
    assert max(known) - min(known) < known[0] / 1000


def test_a_counter_that_stands_still_is_not_believed() -> None:
    assert tsc._measure(lambda: 5) is None
