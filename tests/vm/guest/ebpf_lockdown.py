# SPDX-License-Identifier: Apache-2.0
"""A kernel that is locked down while it runs, which lasts until it ends: no other test of the guest may come after."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from detshare.ebpf import checks
from tests.vm.guest.ebpf_tools import TRACE

LOCKDOWN = Path("/sys/kernel/security/lockdown")


def test_a_locked_down_kernel_is_named() -> None:
    subprocess.run(["mount", "-t", "securityfs", "securityfs", "/sys/kernel/security"], check=False)
    if not LOCKDOWN.exists():
        pytest.skip("this kernel has no lockdown (CONFIG_SECURITY_LOCKDOWN_LSM)")
    LOCKDOWN.write_text("confidentiality")
    done = subprocess.run([TRACE, "launches", "--duration", "1"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "this kernel is locked down (confidentiality)" in done.stderr
    assert "next: boot without lockdown=confidentiality" in done.stderr
    found = checks.loading()
    assert found.ok is None
    assert "locked down" in found.text
