# SPDX-License-Identifier: Apache-2.0
"""What a program may count on in a guest."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest

import detshare.ctl.cli  # noqa: F401  the checkout's own code is importable
from tests.patience import until


def mounts() -> dict[str, str]:
    return {line.split()[1]: line.split()[2] for line in Path("/proc/mounts").read_text().splitlines()}


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "overlay"),
        ("/tmp", "tmpfs"),
        ("/run", "tmpfs"),
        ("/dev/shm", "tmpfs"),
        ("/dev/pts", "devpts"),
        ("/sys/fs/cgroup", "cgroup2"),
        ("/sys/kernel/debug", "debugfs"),
        ("/sys/kernel/tracing", "tracefs"),
        ("/sys/fs/bpf", "bpf"),
    ],
)
def test_file_system_is_mounted(path: str, kind: str) -> None:
    assert mounts()[path] == kind


def test_switching_trace_events_does_not_rewrite_the_scheduler() -> None:
    """An emulated CPU that runs it just then may keep a breakpoint that is gone."""
    tracing = Path("/sys/kernel/tracing")
    (tracing / "events/module/module_load/enable").write_text("1")
    try:
        assert (tracing / "options/record-cmd").read_text().strip() == "0"
    finally:
        (tracing / "events/module/module_load/enable").write_text("0")


def test_memory_cgroups_can_be_made() -> None:
    Path("/sys/fs/cgroup/cgroup.subtree_control").write_text("+memory")
    group = Path("/sys/fs/cgroup/some")
    group.mkdir()
    (group / "memory.max").write_text("1000000000")
    group.rmdir()


def test_we_are_root_on_two_cpus_with_a_name() -> None:
    assert os.geteuid() == 0
    assert os.cpu_count() == 2
    assert platform.node() == "detshare-vm"
    assert os.environ["DETSHARE_VM_KERNEL"] in platform.release()


def test_loopback_is_the_only_network() -> None:
    assert [name for _, name in socket.if_nameindex()] == ["lo"]
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()[:2]) as client:
        peer, _ = server.accept()
        with peer:
            client.sendall(b"x")
            assert peer.recv(1) == b"x"


def test_random_numbers_do_not_block() -> None:
    assert len(os.getrandom(64, os.GRND_NONBLOCK)) == 64


def test_files_can_be_written_and_temporary_ones_too() -> None:
    Path("written-in-guest").write_text("x")
    with tempfile.TemporaryDirectory() as folder:
        assert folder.startswith("/tmp/")
    for stream in ("/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/null", "/dev/zero", "/dev/ptmx"):
        assert Path(stream).exists()


def test_modules_of_this_kernel_can_be_loaded_by_name() -> None:
    subprocess.run(["modprobe", "dummy"], check=True)
    assert Path("/sys/module/dummy").is_dir()


def test_signals_come_with_their_usual_meaning() -> None:
    ignored = next(line for line in Path("/proc/1/status").read_text().splitlines() if line.startswith("SigIgn"))
    mine = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("SigIgn"))
    assert int(ignored.split()[1], 16) & 0x2 == 0
    assert int(mine.split()[1], 16) & 0x6 == 0  # neither SIGINT nor SIGQUIT


def test_shell_and_commands_are_the_hosts() -> None:
    script = "readlink -f /proc/$$/exe; date +%N"
    shell, nanoseconds = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert Path(shell).name != "busybox"
    assert nanoseconds.isdigit()


def test_orphans_do_not_stay_as_zombies() -> None:
    script = "sleep 0.2 & echo $!"
    orphan = int(subprocess.run(["sh", "-c", script], stdout=subprocess.PIPE, text=True, check=True).stdout)
    until(lambda: not Path(f"/proc/{orphan}").exists(), 10)


def test_many_processes_and_descriptors_are_allowed() -> None:
    files = [os.open("/dev/null", os.O_RDONLY) for _ in range(5000)]
    for file in files:
        os.close(file)
    sleepers = [subprocess.Popen(["/bin/sleep", "60"]) for _ in range(50)]
    for sleeper in sleepers:
        sleeper.kill()
    assert {sleeper.wait() for sleeper in sleepers} == {-9}
