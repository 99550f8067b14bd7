# SPDX-License-Identifier: Apache-2.0
"""Questions of the module's that want a subdevice at the same time, where a program has none."""

from __future__ import annotations

from detshare.ctl.netlink import genl
from tests.patience import until
from tests.vm.guest.kmod_tools import row
from tests.vm.guest.nvsim_rm import number
from tests.vm.guest.sched_answers import waiting
from tests.vm.guest.sched_hidden import Programs, bare, of, program, share
from tests.vm.guest.sched_tools import family, worker

__all__ = ["family", "program", "worker"]  # fixtures


def test_a_pause_does_not_lose_a_subdevice_that_another_question_made(family: genl.DetShare, program: Programs) -> None:
    """A device has one at most: who comes second uses the first one's, and that goes with its question."""
    one = program(bare)
    one.ask()
    until(lambda: share(one.clients, 0.2) > 0)
    mode, switch = "NV2080_CTRL_CMD_GR_SET_CTXSW_PREEMPTION_MODE", "NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS"
    with waiting(number(mode), before_ms=300), waiting(number(switch), before_ms=700):
        answer = row(family.hold_set(gate=False, pause=True, **of(one)))
    assert (answer["vctxs"], answer["paused"], answer["failed"]) == (1, 1, 0), str(answer)
    assert share(one.clients, 0.5) == 0
    family.hold_del(**of(one))
    until(lambda: share(one.clients, 0.2) > 0)
