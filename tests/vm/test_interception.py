# SPDX-License-Identifier: Apache-2.0
"""The genuine drivers with detshare.ko: the same bytes. How much later, and in full: detshare bench interception."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

import pytest

from detshare.tools.bench.vm import interception
from detshare.tools.bench.vm.machines import MACHINES, PROGRAMS, SIM, prepare
from detshare.tools.bench.vm.report import Report
from tests.vm.conftest import Completed, Step, guest_words, results, steps
from tests.vm.test_kmod import CLIENTS

ORDERS = {"535": "module-first", "550": "driver-first"}
GPUS = {"535": 4, "550": 1}
SUITE = [f"tests/vm/guest/{name}" for name in (*CLIENTS, "test_genuine.py")]


def genuine(vm_once: Callable[..., Completed], machine: str, *, suite: bool = True) -> Completed:
    """One guest with a genuine driver, for all that is asked of it."""
    prepare()
    played = {"suite": shlex.join(guest_words(*SUITE))} if suite else {}
    nvraw, where = shlex.quote(str(PROGRAMS / "nvraw")), MACHINES[machine]
    commands = steps(
        order="cut -d' ' -f1 /proc/modules",
        **played,
        **{"with": nvraw},
        without=f"vm-load -r module && {nvraw}",
        again=f"vm-load module && {nvraw}",
    )
    named: dict[str, Any] = {"kernel": where.kernel, "driver": where.driver, "gpus": GPUS[machine], "timeout": 600}
    return vm_once(f"genuine-{machine}{'' if suite else '-alone'}", commands, load=True, order=ORDERS[machine], **named)


@pytest.mark.parametrize("machine", ORDERS)
def test_clients_come_and_go_and_the_driver_answers_on_fake_gpus(
    vm_once: Callable[..., Completed], machine: str
) -> None:
    done = genuine(vm_once, machine)
    assert done.returncode == 0, done.stderr
    said = results(done.stdout)
    assert said["suite"].status == 0, said["suite"].text
    assert " passed" in said["suite"].text
    assert "limits are in force" in done.log
    are_the_same(said)


@pytest.mark.parametrize("machine", ORDERS)
def test_answers_are_the_same_to_the_byte(
    vm_once: Callable[..., Completed], machine: str, request: pytest.FixtureRequest
) -> None:
    # `make test` shows the module's clients in another guest, and looks at no suite of this one
    suite = request.node.get_closest_marker("once") is None
    are_the_same(results(genuine(vm_once, machine, suite=suite).stdout))


def are_the_same(said: dict[str, Step]) -> None:
    assert [said[name].status for name in ("with", "without", "again")] == [0, 0, 0]
    assert len(said["without"].text.splitlines()) > 40
    assert "RM_ALLOC NV01_ROOT NVOS21" in said["without"].text
    assert said["with"].text == said["without"].text == said["again"].text


@pytest.mark.parametrize("machine", ORDERS)
def test_module_and_driver_are_loaded_in_the_order_asked_for(vm_once: Callable[..., Completed], machine: str) -> None:
    order = results(genuine(vm_once, machine).stdout)["order"]
    loaded = [name for name in order.text.split() if name in ("nvidia", "detshare")]  # the newest comes first
    assert loaded == (["detshare", "nvidia"] if ORDERS[machine] == "driver-first" else ["nvidia", "detshare"])


@pytest.mark.alone
def test_what_the_module_adds_to_a_call_is_measured() -> None:
    report = Report("interception", SIM.proof, "pytest (short form)")
    interception.measure(report, SIM, rounds=1, batches=15, calls=100)
    added = {row.what: row.value for row in report.rows if "added, median" in row.what}
    assert len(added) == len(interception.KINDS)
