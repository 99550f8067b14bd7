# SPDX-License-Identifier: Apache-2.0
"""The test bed itself: what goes in and out of a guest, and how its failures look."""

from __future__ import annotations

import hashlib
import itertools
import os
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.patience import ended, until
from tests.vm.conftest import Step, guest_words, results, steps

TOP = Path(__file__).resolve().parents[2]
DETSHARE_VM = [sys.executable, "-P", "-m", "detshare.tools.vm.cli"]

FAULTS = """\
#include <linux/delay.h>
#include <linux/module.h>
static char *kind = "";
module_param(kind, charp, 0444);
static int __init faults_init(void)
{
	if (!strcmp(kind, "warning"))
		WARN(1, "asked for");
	if (!strcmp(kind, "oops"))
		*(volatile int *)8 = 1;
	if (!strcmp(kind, "panic"))
		panic("asked for");
	return 0;
}
static void __exit faults_exit(void) {}
module_init(faults_init);
module_exit(faults_exit);
MODULE_DESCRIPTION("faults on request");
MODULE_LICENSE("GPL");
"""


@pytest.fixture(scope="session")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """faults(KERNEL): a module that does what its parameter `kind` says, built for that kernel."""
    folder = tmp_path_factory.mktemp("faults")
    (folder / "Kbuild").write_text("obj-m := faults.o\n")
    (folder / "faults.c").write_text(FAULTS)

    def build(kernel: str) -> Path:
        done = subprocess.run(
            [*DETSHARE_VM, "build", "-q", "--kernel", kernel, str(folder)], capture_output=True, text=True, check=True
        )
        return Path(done.stdout.strip())

    return build


CLOCK = "for i in 1 2 3 4 5 6 7 8; do cut -d' ' -f1 /proc/uptime; date +%s.%N; sleep 1; done"


@pytest.mark.parametrize("kernel", [pytest.param("6.1", marks=pytest.mark.thorough), "6.12"])
def test_a_guest_keeps_time_and_has_what_programs_count_on(vm, tmp_path, kernel) -> None:
    script = f"{CLOCK}; exec {shlex.join(guest_words('tests/vm/guest/test_guest.py'))}"
    command = [*DETSHARE_VM, "run", "--kernel", kernel, "--", "sh", "-c", script]
    with (tmp_path / "told").open("w+") as told:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=told, text=True, cwd=TOP)
        assert process.stdout is not None
        seen = [(float(process.stdout.readline() or "nan"), time.time()) for _ in range(16)]
        output = process.stdout.read()
        status = process.wait()
        told.seek(0)
        said = told.read()
    assert status == 0, f"{output}\n{said}"
    assert not (TOP / "written-in-guest").exists()
    # Every latency measured in a guest stands on its clock; a busy host must not bend it. The median of all pairs: a
    # line may come here late, but not most of them.
    for clock in (seen[::2], seen[1::2]):
        pairs = [(one, other) for one, other in itertools.combinations(clock, 2) if other[0] - one[0] > 2.5]
        assert len(pairs) > 10
        assert 0.9 < statistics.median((other[0] - one[0]) / (other[1] - one[1]) for one, other in pairs) < 1.1
    assert min(abs(date - now) for date, now in seen[1::2]) < 3  # the date is right, too


def test_words_streams_folders_and_exit_code_pass_unchanged_and_a_good_run_has_no_fault(vm, faults, tmp_path) -> None:
    odd = "a 'b' \"c\" $HOME `id` \\ * \t ü\nsecond line"
    kept, lost = tmp_path / "kept", tmp_path / "lost"
    kept.mkdir()
    lost.mkdir()
    (kept / "given").write_text("from the host\n")
    script = f"""
        pwd; printf '%s\\n' "$1"; printf %s "$DETSHARE_ODD" >&2
        cat {kept}/given; mkdir -p {kept}/below {lost}; echo guest | tee {kept}/below/made {lost}/made /etc/made
        insmod {faults("6.12")} kind=none && rmmod faults; echo "module: $?"
        echo 'test: WARNING: not one, BUG: neither' >/dev/kmsg
        vm-load driver; echo "no driver: $?"
        exit 7
    """
    done = vm(["sh", "-c", script, "sh", odd], env={"DETSHARE_ODD": odd}, cwd=TOP / "docs", mounts=[kept])
    assert done.returncode == 7
    assert done.stdout == f"{TOP}/docs\n{odd}\nfrom the host\nguest\nmodule: 0\nno driver: 1\n"
    assert odd in done.stderr
    assert "without a driver" in done.stderr
    assert "detshare-vm: guest is up" in done.log
    assert "guest is up" not in done.stdout + done.stderr
    assert "WARNING: not one" in done.log  # what programs write there is no fault
    assert (kept / "below" / "made").read_text() == "guest\n"
    assert not (lost / "made").exists()
    assert not Path("/etc/made").exists()


def test_a_command_that_is_not_there_is_127(vm) -> None:
    assert vm(["no-such-command"]).returncode == 127


def test_output_is_live_and_whole_and_what_a_killed_command_leaves_running_ends_with_it(tmp_path) -> None:
    data = tmp_path / "data"
    data.write_bytes(os.urandom(1 << 20) * 8)
    script = f"echo first; sleep 4; echo second; sleep 99999 & sleep 99999 >/dev/null & cat {data}; kill -KILL $$"
    command = [*DETSHARE_VM, "run", "-q", "--mount", str(tmp_path), "--", "sh", "-c", script]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    times = [(process.stdout.readline(), time.monotonic()) for _ in range(2)]
    rest = process.stdout.read()
    assert process.wait() == 128 + 9  # as in a shell; 124 if what is left running were waited for
    assert [line for line, _ in times] == [b"first\n", b"second\n"]
    assert times[1][1] - times[0][1] > 2
    assert hashlib.sha256(rest).digest() == hashlib.sha256(data.read_bytes()).digest()


@pytest.mark.parametrize(
    ("kernel", "kind", "said"),
    [
        pytest.param("6.1", "warning", "WARNING: CPU", marks=pytest.mark.thorough),
        ("6.12", "warning", "WARNING: CPU"),
        ("6.12", "oops", "BUG: kernel NULL pointer"),
        ("6.1", "panic", "asked for"),
    ],
)
def test_a_fault_in_the_kernel_is_told_and_fails(vm, faults, kernel, kind, said) -> None:
    done = vm(f"insmod {faults(kernel)} kind={kind}; exit 0", kernel=kernel, timeout=90)
    assert done.returncode == 1  # not 124: it does not wait for the time to run out
    assert f"detshare-vm: the kernel reported a fault: {said}" in done.stderr.replace(
        "Kernel panic - not syncing: ", ""
    )
    assert "detshare-vm: | " in done.stderr
    assert "Call Trace" in done.stderr
    assert ".cache" not in done.stderr.split("cut here")[-1].split("Modules linked in")[0]
    assert said in done.log


def test_a_command_that_takes_too_long_is_ended(vm) -> None:
    done = vm("echo before; echo told >/dev/kmsg; sleep 100000", timeout=25)
    assert done.returncode == 124
    assert done.stdout == "before\n"
    assert "the command did not end: the guest did nothing for 25 s" in done.stderr
    assert "told" in done.stderr


@pytest.mark.parametrize(
    ("number", "status", "up"), [(signal.SIGINT, 130, False), (signal.SIGTERM, 143, True), (signal.SIGKILL, -9, False)]
)
def test_the_guest_ends_with_its_starter(number: signal.Signals, status: int, up: bool) -> None:
    """When its command runs, and before."""
    mark = f"DETSHARE_MARK={uuid.uuid4().hex}"
    command = [*DETSHARE_VM, "run", "-q", "--", "sh", "-c", "echo up; sleep 1000"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, mark.split("=")[0]: mark})
    assert process.stdout is not None
    if up:
        process.stdout.readline()
    # another process may be preparing what it needs, for however long: it waits for that one, and we for it
    while not carriers(mark) and process.poll() is None:
        time.sleep(0.05)
    assert process.poll() is None
    assert carriers(mark) != []
    process.send_signal(number)
    assert ended(process) == status
    until(lambda: not carriers(mark))
    process.stdout.close()


def carriers(mark: str) -> list[str]:
    """Guests with that mark in their environment: not a QEMU that is asked for its version."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                name = (folder / "comm").read_text().strip()
                asked = b"--version" in (folder / "cmdline").read_bytes().split(b"\0")
                found += [name] if name.startswith("qemu") and not asked else []
        except OSError:
            continue
    return found


def test_simulated_driver_has_the_gpus_and_options_asked_for(vm) -> None:
    script = "ls /dev/nvidia[0-9]; cat /sys/module/nvidia/parameters/heap_mb; cat /proc/driver/nvidia/version"
    done = vm(script, driver="sim", gpus=3, driver_options=["heap_mb=512"])
    assert done.returncode == 0
    assert done.stdout.splitlines()[:4] == ["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2", "512"]
    assert "nvsim" in done.stdout


def test_two_builds_of_the_same_sources_at_once_make_one(tmp_path) -> None:
    (tmp_path / "Kbuild").write_text("obj-m := alone.o\n")
    source = FAULTS + f'MODULE_INFO(mark, "{uuid.uuid4().hex}");\n'
    (tmp_path / "alone.c").write_text(source)
    command = [*DETSHARE_VM, "build", str(tmp_path)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert len({out for out, _ in outputs}) == 1
    assert sum(err.count("building ") for _, err in outputs) in (1, 2)  # the second tells how long it took
    assert sorted(path.name for path in tmp_path.iterdir()) == ["Kbuild", "alone.c"]
    shutil.rmtree(Path(outputs[0][0].strip()).parent)  # nobody will ask for it again


def test_a_build_that_fails_names_the_source(tmp_path) -> None:
    (tmp_path / "Kbuild").write_text("obj-m := wrong.o\n")
    (tmp_path / "wrong.c").write_text("int this is not C;\n")
    done = subprocess.run([*DETSHARE_VM, "build", str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"{tmp_path}/wrong.c:1" in done.stderr
    assert "error:" in done.stderr


def test_steps_of_a_guest_are_told_apart() -> None:
    commands = steps(
        one="echo x; false", two="printf 'no end of line'; exit 7", three="printf 'a\\n\\n'", four="exec true"
    )
    done = subprocess.run(["sh", "-c", f"{commands}; kill -9 $$"], capture_output=True, text=True, check=False)
    assert done.returncode == -9
    found = results(done.stdout)
    assert found == {
        "one": Step(1, "x\n"),
        "two": Step(7, "no end of line"),
        "three": Step(0, "a\n\n"),
        "four": Step(0, ""),
    }


def test_each_file_of_tests_in_guests_is_run_by_somebody() -> None:
    drivers = "".join(path.read_text() for path in Path(__file__).parents[1].rglob("test_*.py"))
    files = [path for path in (Path(__file__).parent / "guest").glob("*.py") if "\ndef test_" in path.read_text()]
    assert len(files) > 20
    # test_nvsim.py names the parts of its suite only
    named = {path.name: (path.name, f'"{path.stem.removeprefix("nvsim_")}"') for path in files}
    assert [name for name, words in named.items() if not any(word in drivers for word in words)] == []
