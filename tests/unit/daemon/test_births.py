# SPDX-License-Identifier: Apache-2.0
"""A daemon that is woken by births: it gives them their class at once, then looks, and rests no less than it should."""

from __future__ import annotations

import threading
import time

from fake_backend import FakeBackend

from detshare.ctl.core.config import Config
from detshare.ctl.core.config import Daemon as DaemonConfig
from tests.patience import until

WATCHING = Config(daemon=DaemonConfig(observers=True, classes={"*train*": "low"}))


def test_a_birth_is_applied_early_and_looked_at_long_before_the_next_look_is_due(start):
    backend = FakeBackend()
    start(backend, config=WATCHING, interval=60.0)
    until(lambda: backend.looks >= 2)  # the one at the start, and the first of the loop
    assert backend.rules == {"*train*": "low"}
    assert backend.early == 0
    looks = backend.looks
    backend.waker()
    until(lambda: backend.early == 1)
    until(lambda: backend.looks == looks + 1)
    time.sleep(0.2)
    assert (backend.early, backend.looks) == (1, looks + 1)


def test_it_is_applied_early_by_who_heard_of_it_unless_somebody_works_with_the_backend(start):
    backend = FakeBackend()
    start(backend, config=WATCHING, interval=60.0)
    until(lambda: backend.looks >= 2)
    worker = set(backend.threads)
    backend.waker()
    assert backend.early == 1, "before the call is over"
    assert backend.threads - worker == {threading.get_ident()}
    backend.hang = threading.Event()
    looks = backend.looks
    until(lambda: backend.looks > looks)  # it hangs now
    backend.waker()
    backend.waker()
    time.sleep(0.1)
    assert backend.early == 1
    hung, backend.hang = backend.hang, None
    hung.set()
    until(lambda: backend.early == 2)
    assert len(backend.threads) == 2


def test_births_in_a_row_are_applied_early_each_and_looked_at_together(start):
    backend = FakeBackend()
    start(backend, config=WATCHING, interval=60.0)
    until(lambda: backend.looks >= 2)
    looks = backend.looks
    for count in range(1, 21):
        backend.waker()
        until(lambda wanted=count: backend.early >= wanted)
    until(lambda: backend.looks > looks)
    assert backend.looks - looks <= 20


def test_an_early_apply_that_fails_ends_nothing(start):
    backend = FakeBackend()
    backend.fail_early = OSError("gone")
    running = start(backend, config=WATCHING, interval=60.0)
    until(lambda: backend.looks >= 2)
    looks = backend.looks
    backend.waker()
    until(lambda: backend.looks > looks)
    assert [p["pid"] for p in running.client.programs()["programs"]] == [4242, 4300, 4400]


def test_without_the_option_nobody_is_asked_to_wake(start):
    backend = FakeBackend()
    start(backend)
    assert backend.waker is None


def test_births_after_the_end_are_no_error(start):
    backend = FakeBackend()
    running = start(backend, config=WATCHING, interval=60.0)
    running.stop()
    backend.waker()
