# SPDX-License-Identifier: Apache-2.0
"""detshare.Client and detshare.tenant against a daemon over a backend in memory."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_backend import FakeBackend, refusing

import detshare
from detshare.ctl.core.errors import ClientError
from detshare.ctl.library.results import Program
from tests.patience import run


def seen(running: Any, pid: int) -> Program:
    found = detshare.Client(running.run_dir).look().program(pid)
    assert found is not None
    return found


def kmod() -> FakeBackend:
    backend = FakeBackend()
    backend.name = "kmod"
    return backend


def test_import_loads_nothing_before_it_is_asked_for() -> None:
    code = (
        "import sys, detshare; assert not [m for m in sys.modules if m.startswith('detshare.')], sys.modules;"
        "assert {'Client', 'Error', 'tenant'} <= set(dir(detshare)); detshare.Client; detshare.tenant; detshare.Error"
    )
    run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        detshare.nonsense  # noqa: B018  the access is the test


def test_answers_are_typed(running: Any) -> None:
    client = detshare.Client(running.run_dir)
    assert client.alive()
    look = client.look()
    assert (look.backend, look.proof) == ("fake", "unit")
    first = look.programs[0]
    assert (first.pid, first.user, first.lane, first.priority) == (4242, "ann", "temporal", None)
    assert (first.memory_bytes, first.gpu_share) == (3 << 30, 0.25)
    done = client.set_priority(4242, "high")
    assert (done.verb, done.changed, dict(done.skipped)) == ("set-priority", (4242,), {})
    assert seen(running, 4242).priority == "high"
    assert client.set_weight("train.py", 9).changed == (4300,)
    assert client.pause(4300).changed == (4300,)
    assert seen(running, 4300).state == "paused"
    assert client.resume(4300).changed == (4300,)
    missing = client.preempt(77)
    assert missing.changed == ()
    assert "nothing matches" in next(iter(missing.skipped.values()))


def test_a_look_names_gpus_and_programs(running: Any) -> None:
    look = detshare.Client(running.run_dir).look()
    assert {gpu.uuid for gpu in look.gpus} >= {uuid for program in look.programs for uuid in program.gpus}
    assert all(gpu.name and gpu.minor >= 0 for gpu in look.gpus)


def test_policies_and_decisions_are_typed(running: Any) -> None:
    client = detshare.Client(running.run_dir)
    assert client.policy().name == "slo-aware"
    chosen = client.set_policy("static")
    assert (chosen.name, chosen.failed) == ("static", "")
    client.set_priority(4242, "low")
    assert any("static" in each.text for each in client.decisions())
    assert any("set-priority" in each.text for each in client.why(4242))
    started = next(event for event in client.events() if event.kind == "daemon")
    assert "detshared started" in started.text
    assert started.when > 1e9


def test_why_waits_for_what_was_said_before_it(running: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    hands = running.daemon._policy.engine._executor
    by_hand = hands.by_hand

    def late(*words: Any) -> None:
        time.sleep(0.5)
        by_hand(*words)

    monkeypatch.setattr(hands, "by_hand", late)
    client = detshare.Client(running.run_dir)
    client.set_priority(4242, "low")
    assert any("set-priority" in each.text for each in client.why(4242))


def test_an_error_says_what_was_asked_what_stopped_it_and_what_is_next(running: Any) -> None:
    with pytest.raises(detshare.Error, match="set-priority") as caught:
        detshare.Client(running.run_dir).set_priority(4242, "royal")
    assert "royal" in caught.value.asked
    assert "royal" in caught.value.stopped
    assert caught.value.next


def test_without_a_daemon(tmp_path: Path) -> None:
    with pytest.raises(detshare.Error, match="no daemon answers") as caught, detshare.tenant("low", run_dir=tmp_path):
        pytest.fail("the block must not run")
    assert "detshared" in caught.value.next


def test_a_tenant_has_its_class_for_the_block_and_is_put_back(running: Any) -> None:
    with detshare.tenant(priority="high", pid=4242, run_dir=running.run_dir) as client:
        assert isinstance(client, detshare.Client)
        assert seen(running, 4242).priority == "high"
    assert seen(running, 4242).priority is None


def test_what_stood_before_stands_again(running: Any) -> None:
    client = detshare.Client(running.run_dir)
    client.set_priority(4242, "low")
    with detshare.tenant(weight=40, pid=4242, run_dir=running.run_dir):
        assert seen(running, 4242).weight == 40
    assert seen(running, 4242).priority == "low"


def test_memory_is_limited_for_the_block(start: Callable[..., Any]) -> None:
    running = start(kmod())
    with detshare.tenant(priority="high", memory="20G", pid=4242, run_dir=running.run_dir):
        assert seen(running, 4242).memory_limit == 20 << 30
    assert (seen(running, 4242).memory_limit, seen(running, 4242).priority) == (None, None)
    detshare.Client(running.run_dir).set_memory(4242, "30G")
    with detshare.tenant(memory="20G", pid=4242, run_dir=running.run_dir):
        assert seen(running, 4242).memory_limit == 20 << 30
    assert seen(running, 4242).memory_limit == 30 << 30


def test_an_exception_in_the_block_puts_back_too(running: Any) -> None:
    with (
        pytest.raises(ZeroDivisionError, match="a fault of the program"),
        detshare.tenant(priority="high", pid=4242, run_dir=running.run_dir),
    ):
        raise ZeroDivisionError("a fault of the program")
    assert seen(running, 4242).priority is None


def test_a_daemon_that_goes_away_in_the_block_hides_no_exception_of_it(running: Any) -> None:
    held = detshare.tenant(priority="high", pid=4242, run_dir=running.run_dir)

    @held
    def block() -> None:
        held._wire.socket = running.run_dir / "gone.sock"
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as raised:
        block()
    assert "no daemon answers" in "".join(raised.value.__notes__)


def test_a_release_that_fails_at_the_end_is_told(running: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only who may not release takes his lowering back by another verb."""
    held = detshare.tenant(priority="low", pid=4242, run_dir=running.run_dir)

    def fail(who: object) -> None:
        raise ClientError("release 4242", "the driver answered NV_ERR_GENERIC", "see dmesg", status=409)

    monkeypatch.setattr(held, "release", fail)
    with pytest.raises(detshare.Error, match="NV_ERR_GENERIC"), held:
        pass
    assert seen(running, 4242).priority == "low"


def test_where_one_wish_fails_nothing_stays_changed(running: Any) -> None:
    with (
        pytest.raises(detshare.Error, match="set-memory"),  # that needs the module
        detshare.tenant(priority="high", memory="20G", pid=4242, run_dir=running.run_dir),
    ):
        pytest.fail("the block must not run")
    assert seen(running, 4242).priority is None


def test_a_program_that_is_not_there_is_an_error(running: Any) -> None:
    with (
        pytest.raises(detshare.Error, match="nothing matches"),
        detshare.tenant(priority="high", pid=77, run_dir=running.run_dir),
    ):
        pytest.fail("the block must not run")


def test_a_kernel_that_refuses_is_an_error(start: Callable[..., Any]) -> None:
    running = start(refusing())
    with (
        pytest.raises(detshare.Error, match="the kernel refused"),
        detshare.tenant(priority="high", pid=4242, run_dir=running.run_dir),
    ):
        pytest.fail("the block must not run")


def test_a_class_and_a_weight_cannot_both_be_meant(tmp_path: Path) -> None:
    with pytest.raises(detshare.Error, match="not both"), detshare.tenant("low", weight=3, run_dir=tmp_path):
        pytest.fail("the block must not run")
