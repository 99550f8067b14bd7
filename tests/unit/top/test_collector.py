# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading

import pytest
from top_fakes import FakeSource, program

from detshare.ctl.top.collector import Collector, told
from detshare.ctl.top.keys import Verb
from tests.patience import LONG_S


class Rig:
    """A collector over a fake source, and a way to wait for its next word."""

    def __init__(self, source: FakeSource) -> None:
        self.source = source
        self._woken = threading.Semaphore(0)
        self.collector = Collector(source, 3600.0, self._woken.release)
        self.collector.start()
        self.wait()

    def wait(self) -> None:
        assert self._woken.acquire(timeout=LONG_S)

    def run(self, verb: Verb) -> tuple[str, bool]:
        self.collector.submit(verb)
        said = self.collector.said.get(timeout=LONG_S)
        self.wait()
        return said.text, said.bad


def test_verbs_reach_the_source_and_the_answer_is_told() -> None:
    rig = Rig(FakeSource(program()))
    text, bad = rig.run(Verb("set-priority", "4242", {"class": "high"}))
    assert rig.source.verbs == [("set-priority", "4242", {"class": "high"})]
    assert (text, bad) == ("set-priority high: 4242 (2.05ms -> 1s high) in 1.0 ms", False)
    rig.collector.stop()


def test_a_refused_verb_is_a_message_not_a_crash() -> None:
    rig = Rig(FakeSource(program()))
    rig.source.fails = "an MPS client\x1b[2J cannot be paused; next: pause the server's clients together"
    text, bad = rig.run(Verb("pause", "4242"))
    assert bad
    assert text.startswith("pause: an MPS client?[2J cannot be paused")
    rig.source.fails = ""
    assert rig.run(Verb("pause", "4242"))[1] is False
    rig.collector.stop()


def test_a_failed_look_keeps_the_last_frame_and_says_so() -> None:
    rig = Rig(FakeSource(program()))
    before = rig.collector.seen
    rig.source.fails = "look"
    rig.collector.submit(Verb("pause", "4242"))
    rig.wait()
    assert rig.collector.seen.snapshot is before.snapshot
    assert "no root" in rig.collector.seen.error
    rig.collector.stop()


def test_what_a_verb_told_of_before_is_shown_until_release() -> None:
    rig = Rig(FakeSource(program()))

    def before() -> object:
        snapshot = rig.collector.seen.snapshot
        assert snapshot is not None
        return snapshot["programs"][0]["tsgs"][0].get("before_us")

    assert before() is None
    rig.run(Verb("set-priority", "4242", {"class": "high"}))
    assert before() == 2048
    rig.source.programs = [program()]
    rig.run(Verb("release", "4242"))
    assert before() is None
    rig.collector.stop()


def test_a_fault_of_ours_reaches_the_main_thread() -> None:
    class Broken(FakeSource):
        def look(self) -> dict[str, object]:
            raise ZeroDivisionError("boom")

    rig = Rig(Broken())
    with pytest.raises(ZeroDivisionError, match="boom"):
        rig.collector.check()


def test_nothing_changed_is_bad_and_gives_the_reason() -> None:
    said = told(Verb("pause", "9"), {"changed": [], "skipped": [{"pid": 9, "reason": "it is an MPS client"}]})
    assert said.bad
    assert said.text == "pause: 9 left alone: it is an MPS client"
    assert told(Verb("pause", "9"), {}).text == "pause: nothing was changed"
