# SPDX-License-Identifier: Apache-2.0
"""The backend is woken by births that eBPF sees; on a kernel with the simulated driver (tests/vm/test_ebpf.py)."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from detshare.ctl.backends.model import scenario
from detshare.ctl.backends.model.driver import ModelDriver
from detshare.ctl.backends.root import RootBackend
from detshare.ctl.snapshot import Kind, State
from tests.unit.root.conftest import KERNEL
from tests.unit.root.helpers import program, truth

pytestmark = pytest.mark.skipif(not KERNEL, reason="needs real processes and a driver; tests/vm/test_ebpf.py runs it")


def test_a_new_context_gets_its_class_without_waiting_for_a_look(driver: ModelDriver, tmp_path: Path) -> None:
    backend = RootBackend(driver, tmp_path, name="root")
    woken = threading.Event()
    backend.wake_by(woken.set)
    assert [event.text for event in backend.drain_events() if event.kind == "error"] == []
    process = scenario.opened_only(driver)
    assert program(backend, process).state is State.NO_CONTEXT
    backend.set_priority(str(process.id.pid), "low")
    woken.clear()
    scenario.make_context(driver, process)
    made = time.monotonic()
    assert woken.wait(30)
    # births come in groups; the last of a context's is awaited as the daemon does, by looking after each
    while not any(t.kind is Kind.COMPUTE and t.slice_us == 50 for t in program(backend, process).tsgs):
        assert time.monotonic() - made < 30
        woken.wait(5)
        woken.clear()
    print(f"{(time.monotonic() - made) * 1e3:.0f} ms after the context was whole")
    assert 50 in {each[0] for each in truth(driver, process)}
    backend.close()


def test_nothing_wakes_it_but_births_and_deaths(driver: ModelDriver, tmp_path: Path) -> None:
    backend = RootBackend(driver, tmp_path, name="root")
    woken = threading.Event()
    process = scenario.cuda_process(driver)
    backend.wake_by(woken.set)
    program(backend, process)
    assert not woken.wait(1)
    driver.machine.kill(process)
    assert woken.wait(30)
    backend.close()
