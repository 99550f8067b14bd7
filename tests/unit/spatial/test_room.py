# SPDX-License-Identifier: Apache-2.0
"""More than fits, on the stand-in driver with one memory for all: daemon, policy, libdetshare.so, programs."""

from __future__ import annotations

from typing import Any

import pytest
from room_machine import SPATIAL

from tests.patience import until

pytestmark = pytest.mark.e2e


def test_two_that_do_not_fit_together_take_turns_and_compute_what_they_do_alone(machines: Any) -> None:
    """70 and 80 of 128 MiB, in four allocations each: each has a part of its own and waits for more while the other
    does the same."""
    parts = 4
    machine = machines("turns", 3600)
    first, second = machine.run(SPATIAL, 70, parts, 200, 5), machine.run(SPATIAL, 80, parts, 200, 5)
    for worker in (first, second):
        worker.go()
    got = [(worker.line(), worker.line()) for worker in (first, second)]
    assert [has for has, _ in got] == ["has", "has"], [w.process.communicate()[1] for w in (first, second)]
    assert [digest for _, digest in got] == [machine.alone(70, parts, 200, 0), machine.alone(80, parts, 200, 0)]
    assert any("left GPU" in event["text"] for event in machine.client.events() if event["kind"] == "park")


def test_the_idle_one_makes_room_and_why_says_so(machines: Any) -> None:
    machine = machines("park", 3600, policy="strict")
    first = machine.run(SPATIAL, 70, 2, 3, 0, "stop")
    first.go()
    assert first.line() == "has"
    second = machine.run(SPATIAL, 80, 1, 3, 0, "stop")
    second.go()
    assert second.line() == "has"
    until(lambda: machine.parking(first)["state"] == "parked")  # `ps` shows the daemon's last look
    why = machine.why(first)
    assert f"{first.pid}: parked, {second.pid} has the room first; {second.pid} waits for 80M of GPU memory" in why
    assert "launched nothing for" in why
    assert "[strict, for memory that did not fit" in why
    # and it comes back when the other stands still
    first.go()
    digest = first.line()
    second.go()
    assert (digest, second.line()) == (machine.alone(70, 2, 3, 0), machine.alone(80, 1, 3, 0))


def test_refused_is_as_ever(machines: Any) -> None:
    machine = machines("refuse", 0)
    first, second = machine.run(SPATIAL, 70, 1, 3000, 20), machine.run(SPATIAL, 80, 1, 3, 0)
    first.go()
    assert first.line() == "has"
    second.go()
    assert second.line() == "cuMemAlloc_v2: CUDA error 2"


def test_a_wait_has_its_end_unless_the_memory_was_promised(machines: Any) -> None:
    machine = machines("refuse", 0.2)
    first, second = machine.run(SPATIAL, 70, 1, 3000, 20), machine.run(SPATIAL, 80, 1, 3, 0)
    promised = machine.run((*SPATIAL, "--memory", "90M"), 80, 1, 3, 0)
    first.go()
    assert first.line() == "has"
    promised.go()
    second.go()
    assert second.line() == "cuMemAlloc_v2: CUDA error 2"
    assert "found no room within 0.2 s" in second.process.communicate()[1]
    until(lambda: machine.parking(promised)["wants_bytes"] == 80 << 20)
    first.process.kill()
    first.process.communicate()
    assert promised.line() == "has"


def test_what_never_fits_fails_at_once(machines: Any) -> None:
    machine = machines("turns", 3600)
    worker = machine.run(SPATIAL, 140, 1, 0, 0)
    worker.go()
    assert worker.line() == "cuMemAlloc_v2: CUDA error 2"


def test_a_launch_waits_for_what_the_driver_takes_for_it(machines: Any) -> None:
    """The memory of both fits, the code of the second one's kernel does not."""
    machine = machines("park", 3600, policy="strict")
    first = machine.run(SPATIAL, 70, 2, 3, 0, "stop")
    first.go()
    assert first.line() == "has"
    second = machine.run(SPATIAL, 20, 1, 3, 0, "stop", "code=64")
    second.go()
    assert second.line() == "has"
    assert machine.parking(first)["parks"] == 0
    second.go()
    assert second.line() == machine.alone(20, 1, 3, 0)
    first.go()
    assert first.line() == machine.alone(70, 2, 3, 0)


def test_a_launch_waits_for_nobody_where_nobody_makes_room(machines: Any) -> None:
    machine = machines("refuse", 0)
    first = machine.run(SPATIAL, 70, 2, 3, 0, "stop")
    first.go()
    assert first.line() == "has"
    second = machine.run(SPATIAL, 20, 1, 3, 0, "code=64")
    second.go()
    assert second.line() == "has"
    assert second.line() == "cuLaunchKernel: CUDA error 2"


@pytest.mark.rest
def test_a_context_waits_for_room(machines: Any) -> None:
    """Who starts on a full GPU: nobody knows of its context, and it has none to ask with."""
    machine = machines("park", 3600, policy="strict")
    first = machine.run(SPATIAL, 100, 2, 3, 0, "stop")
    first.go()
    assert first.line() == "has"
    second = machine.run(SPATIAL, 20, 1, 3, 0, context=40)
    until(lambda: machine.parking(first)["parks"] == 1)
    second.go()
    assert (second.line(), second.line()) == ("has", machine.alone(20, 1, 3, 0))
    second.process.communicate()
    first.go()
    assert first.line() == machine.alone(100, 2, 3, 0)


def test_a_context_fails_at_once_where_nobody_makes_room(machines: Any) -> None:
    machine = machines("refuse", 0)
    first = machine.run(SPATIAL, 100, 2, 3, 0, "stop")
    first.go()
    assert first.line() == "has"
    with pytest.raises(AssertionError, match="cuDevicePrimaryCtxRetain: CUDA error 2"):
        machine.run(SPATIAL, 20, 1, 3, 0, context=40)
