# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from detshare.tools.vm.splat import first, message, splat

FAULTS = """\
[    3.460991] WARNING: CPU: 0 PID: 206 at /x/hello.c:4 hi+0x4a/0xff0 [hello]
[    3.460991] WARNING: possible circular locking dependency detected
[    3.460991] WARNING: suspicious RCU usage
[    4.281827] BUG: kernel NULL pointer dereference, address: 0000000000000008
[    4.281827] BUG: KASAN: slab-use-after-free in hook+0x1/0x2 [detshare]
[    4.281827] BUG: sleeping function called from invalid context at kernel/locking/mutex.c:585
[    4.281827] BUG: unable to handle page fault for address: ffffc90000000000
[    4.281827] BUG: workqueue lockup - pool cpus=1 node=0 flags=0x0 nice=0 stuck for 31s!
[    4.283880] Oops: 0002 [#1] PREEMPT SMP NOPTI
[    4.283880] Oops: Oops: 0002 [#1] PREEMPT SMP NOPTI
[    4.283880] invalid opcode: 0000 [#1] PREEMPT SMP NOPTI
[    4.283880] general protection fault, probably for non-canonical address 0x6b6b6b6b6b6b6b6b: 0000 [#1] SMP
[    4.294801] Kernel panic - not syncing: Fatal exception
[    4.294801] kernel BUG at mm/slub.c:4000!
[    4.294801] UBSAN: array-index-out-of-bounds in /x/y.c:3:4
[   60.294801] watchdog: BUG: soft lockup - CPU#0 stuck for 126s! [insmod:1]
[   60.294801] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:
[   60.294801] INFO: task python3:206 blocked for more than 120 seconds.
[   60.294801] refcount_t: underflow; use-after-free.
[   60.294801] list_del corruption. prev->next should be ff, but was 00
[   60.294801] kmemleak: 1 new suspected memory leaks (see /sys/kernel/debug/kmemleak)
[   60.294801] BUG kmalloc-64 (Tainted: G           OE     ): Right Redzone overwritten
[   60.294801] BUG detshare_frame (Tainted: G           OE     ): Objects remaining in detshare_frame on shutdown
[   60.294801] ------------[ ftrace bug ]------------
[   60.294801] kobject: kobject_add_internal failed for x with -EEXIST, don't try to register things twice.
[    4.281827][  T206] BUG: KASAN: double-free in kfree+0x1/0x2
<4>[    3.460991] WARNING: CPU: 0 PID: 206 at /x/hello.c:4 hi+0x4a/0xff0 [hello]
"""

HARMLESS = """\
[    0.832568] mtrr: your CPUs had inconsistent fixed MTRR settings
[    0.992763] acpi PNP0A03:00: fail to add MMCONFIG information, can't access extended configuration space
[    4.279005] hello: loading out-of-tree module taints kernel.
[    4.279277] hello: module verification failed: signature and/or required key missing - tainting kernel
[    5.173410] NVRM: GPU 0001:00:00.0: RmInitAdapter failed! (0x61:0x56:1603)
[    5.173410] traps: python3[123] general protection fault ip:7f0 sp:7ff error:0 in libc.so.6[7f0+1000]
[    5.173410] python3[123]: segfault at 8 ip 00007f sp 00007f error 4 in x[4000+1000]
[    5.173410] detshare-vm: guest stops: BUG: never
[    5.173410] test: WARNING: not one
[    5.173410] insmod: can't insert 'x.ko': Operation not permitted
[    5.173410] Call Trace:
[    5.173410] rcu: Hierarchical SRCU implementation.
[    5.173410] INFO: some text
[    5.173410] Out of memory: Killed process 206 (python3) total-vm:1kB
[    5.173410] workqueue: fn [detshare] hogged CPU for >10000us 4 times, consider switching to WQ_UNBOUND
[    5.173410] clocksource: timekeeping watchdog on CPU1: Marking clocksource 'tsc' as unstable
"""


@pytest.mark.parametrize("line", FAULTS.splitlines())
def test_a_report_of_a_fault_is_seen(line: str) -> None:
    assert splat(line) == message(line)


@pytest.mark.parametrize("line", HARMLESS.splitlines())
def test_what_is_no_fault_is_not_taken_for_one(line: str) -> None:
    assert splat(line) is None


def test_the_first_report_is_found_with_its_place() -> None:
    lines = [*HARMLESS.splitlines(), *FAULTS.splitlines()]
    found = first(lines)
    assert found is not None
    assert found[0] == len(HARMLESS.splitlines())
    assert found[1].startswith("WARNING: CPU: 0")
    assert first(HARMLESS.splitlines()) is None
