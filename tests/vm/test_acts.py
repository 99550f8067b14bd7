# SPDX-License-Identifier: Apache-2.0
"""What `detshare bench driver-calls` sends to a GPU acts on the simulated driver."""

from __future__ import annotations

from detshare.tools.bench.vm.machines import PROGRAMS, prepare


def test_the_modules_calls_from_user_space(guest_pytest) -> None:
    prepare()
    guest_pytest("tests/vm/guest/acts.py", driver="sim", env={"DETSHARE_NVCLIENT": str(PROGRAMS)}, timeout=200)
