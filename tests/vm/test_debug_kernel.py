# SPDX-License-Identifier: Apache-2.0
"""The instrumented kernel finds what it is for, and finds nothing in detshare.ko while its tests run there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from detshare.tools.vm import kernels
from tests.vm.conftest import Completed
from tests.vm.test_ctl_root import puppet
from tests.vm.test_kmod import clients

__all__ = ["clients", "puppet"]  # fixtures

pytestmark = [
    pytest.mark.debug,
    pytest.mark.skipif(
        not kernels.cached(kernels.DEBUG),
        reason="no debug kernel in the cache: detshare-vm prepare --kernel debug (500 s)",
    ),
]

FAULTS = """\
#include <linux/delay.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>
static char *kind = "";
module_param(kind, charp, 0444);
static DEFINE_MUTEX(first);
static DEFINE_MUTEX(second);
static DEFINE_SPINLOCK(spinning);
static void both(struct mutex *a, struct mutex *b)
{
	mutex_lock(a);
	mutex_lock(b);
	mutex_unlock(b);
	mutex_unlock(a);
}
static int __init faults_init(void)
{
	char *memory;
	int i;

	if (!strcmp(kind, "freed")) {
		memory = kmalloc(100, GFP_KERNEL);
		kfree(memory);
		OPTIMIZER_HIDE_VAR(memory);
		return READ_ONCE(memory[3]) ? 0 : -EINVAL;
	}
	if (!strcmp(kind, "order")) {
		both(&first, &second);
		both(&second, &first);
	}
	if (!strcmp(kind, "sleep")) {
		spin_lock(&spinning);
		msleep(1);
		spin_unlock(&spinning);
	}
	for (i = 0; i < 16 && !strcmp(kind, "lost"); i++) {
		memory = kmalloc(333, GFP_KERNEL);
		memory[0] = 1;
		OPTIMIZER_HIDE_VAR(memory);
	}
	return 0;
}
static void __exit faults_exit(void) {}
module_init(faults_init);
module_exit(faults_exit);
MODULE_DESCRIPTION("faults that only an instrumented kernel sees");
MODULE_LICENSE("GPL");
"""


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("debug-faults")
    (folder / "Kbuild").write_text("obj-m := faults.o\n")
    (folder / "faults.c").write_text(FAULTS)
    command = [sys.executable, "-P", "-m", "detshare.tools.vm.cli", "build", "-q", "--kernel", "debug", str(folder)]
    return Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())


REPORTS = {
    "order": "WARNING: possible circular locking dependency detected",
    "sleep": "BUG: scheduling while atomic",
    "lost": "kmemleak: ",
    "freed": "BUG: KASAN: slab-use-after-free",  # the last: with it lockdep goes
}


def test_faults_that_stock_kernels_do_not_see_fail_the_run(vm, faults) -> None:
    tried = "; ".join(f"insmod {faults} kind={kind}; rmmod faults; vm-leaks" for kind in REPORTS)
    done = vm(tried, kernel="debug", timeout=600)
    assert done.returncode == 1
    assert f"the kernel reported a fault: {REPORTS['order']}" in done.stderr
    found = [done.log.find(text) for text in REPORTS.values()]
    assert -1 not in found, dict(zip(REPORTS, found, strict=True))
    assert found == sorted(found)


def test_a_module_that_does_no_harm_passes_and_nothing_is_lost(vm, faults) -> None:
    done = vm(
        f"insmod {faults} kind=none && rmmod faults && vm-leaks && grep debug_locks /proc/lockdep_stats",
        kernel="debug",
        timeout=300,
    )
    assert done.returncode == 0
    assert done.stdout.split()[-1] == "1"


SUITES = {
    "gates": ("kmod_gates.py",),
    "states": ("sched_states.py",),
    "pause": ("sched_pause.py", "sched_accounts.py"),
    "bounds": ("sched_bounds.py", "sched_ceiling.py"),
    # of the others in there shares of the time are judged
    "turns": ("sched_turns.py", "-k", "mid_turn or without_turns or next_has or rests_changes or meet_no_fault"),
    "memory": ("kmod_clients.py", "kmod_limits.py", "kmod_transfers.py", "kmod_sched.py", "kmod_cgroups.py"),
    "netlink": ("ctl_netlink.py",),
    "kmod": ("ctl_kmod.py",),
}
"""What judges by counts: latencies and shares of an emulated processor under KASAN are nobody's."""


@pytest.mark.parametrize("suite", SUITES)
def test_the_modules_own_tests_make_no_report_and_lose_no_memory(
    guest_pytest: Callable[..., Completed], clients: Path, puppet: Path, suite: str
) -> None:
    done = guest_pytest(
        *(f"tests/vm/guest/{word}" if word.endswith(".py") else word for word in SUITES[suite]),
        leaks=True,
        kernel=kernels.DEBUG,
        driver="sim",
        load=True,
        timeout=2400,
        mem=3072,
        mounts=[clients],
        env={"DETSHARE_NVCLIENT": str(clients), "DETSHARE_PUPPET": str(puppet)},
    )
    assert " passed" in done.stdout
