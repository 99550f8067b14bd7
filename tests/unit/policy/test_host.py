# SPDX-License-Identifier: Apache-2.0
"""A policy cannot keep whoever asks it: it sleeps, loops, raises, returns nonsense."""

from __future__ import annotations

import itertools
import sys
import time

import pytest
from policy_world import Scripted, snapshot, view

from detshare.ctl.policy.guard import MOST_ACTIONS
from detshare.ctl.policy.host import Call, Host, overridden
from detshare.ctl.policy.types import Policy, Slice
from tests.patience import comes

NOW = snapshot(view("1"))


def ask(host: Host, *hooks: str):
    return host.ask([Call(hook, NOW, None if hook == "on_tick" else "1") for hook in hooks])


def test_actions_are_taken_out_of_a_list_and_of_a_generator():
    def generate(now, tenant):
        yield Slice("1", 100.0)
        yield Slice("1", 200.0)

    host = Host(Scripted(on_attach=lambda now, tenant: [Slice("1", 50.0)], on_launch=generate))
    answers = ask(host, "on_attach", "on_launch")
    assert [[each.slice_us for each in answer.actions] for answer in answers] == [[50.0], [100.0, 200.0]]
    assert not host.failure
    host.close()


def test_only_hooks_of_its_own_are_called():
    class Ticks(Policy):
        """Rule: none."""

        def on_tick(self, now):
            return ()

    assert overridden(Ticks()) == {"on_tick"}
    host = Host(Ticks())
    answers = ask(host, "on_attach", "on_tick", "on_launch")
    assert [answer.call.hook for answer in answers] == ["on_tick"]
    host.close()


def sleeps(now, tenant):
    time.sleep(86400)


def loops(now, tenant):
    while True:
        pass


def endless(now, tenant):
    return itertools.repeat(Slice("1", 100.0))


def drips(now, tenant):
    while True:
        time.sleep(0.001)
        yield Slice("1", 100.0)


@pytest.mark.parametrize(
    ("hook", "told"),
    [(sleeps, "did not return within 400 ms"), (drips, "within 400 ms"), (loops, "ran for more than 100 ms")],
)
def test_who_overruns_is_left_behind_and_not_asked_again(hook, told):
    host = Host(Scripted(on_attach=lambda now, tenant: [Slice("1", 50.0)], on_launch=hook), 0.1)
    answers = ask(host, "on_attach", "on_launch", "on_attach")  # it comes back, or this test never ends
    assert [bool(answer.problem) for answer in answers] == [False, True], "what came before it counts"
    assert host.failure.startswith("on_launch ")
    assert told in host.failure
    assert ask(host, "on_attach") == []


def test_a_loop_in_python_is_ended():
    host = Host(Scripted(on_launch=loops), 0.05)
    ask(host, "on_launch")
    comes(lambda: not host.interrupt(), pause=0.05)
    assert not host.interrupt(), "its thread goes on for ever"


def refuses_to_end(now, tenant):
    while True:
        try:
            while True:
                pass
        except BaseException:
            if time.monotonic() > refuses_to_end.until:
                raise


def test_one_that_catches_everything_is_interrupted_again():
    refuses_to_end.until = time.monotonic() + 0.5
    host = Host(Scripted(on_launch=refuses_to_end), 0.05)
    ask(host, "on_launch")
    comes(lambda: not host.interrupt(), pause=0.05)
    assert not host.interrupt()


def raises(now, tenant):
    raise KeyError("no such thing")


def raises_later(now, tenant):
    yield Slice("1", 50.0)
    raise ValueError("half done")


def exits(now, tenant):
    sys.exit(3)


class Rude(Exception):
    def __str__(self):
        raise RuntimeError


def rude(now, tenant):
    raise Rude


@pytest.mark.parametrize(
    ("hook", "told"),
    [
        (raises, "on_launch raised KeyError: 'no such thing'"),
        (raises_later, "on_launch raised ValueError: half done"),
        (exits, "on_launch raised SystemExit: 3"),
        (rude, "on_launch raised Rude: (no text)"),
        (lambda now, tenant: 17, "on_launch raised TypeError"),
        (endless, f"more than {MOST_ACTIONS} actions"),
    ],
)
def test_who_raises_or_answers_nonsense_has_failed(hook, told):
    host = Host(Scripted(on_launch=hook))
    answers = ask(host, "on_launch", "on_launch")
    assert len(answers) == 1
    assert told in answers[0].problem
    assert answers[0].actions == []
    assert told in host.failure


def test_a_snapshot_cannot_be_changed():
    def tries(now, tenant):
        now.tenants[0].klass = "high"

    host = Host(Scripted(on_launch=tries))
    ask(host, "on_launch")
    assert "FrozenInstanceError" in host.failure
    assert NOW.tenants[0].klass == "normal"


def test_time_in_which_the_whole_process_stood_still_is_not_the_policys():
    host = Host(Scripted(on_launch=lambda now, tenant: time.sleep(0.02)), 0.2)
    original = host._done.wait
    host._done.wait = lambda timeout: original(timeout) or (time.sleep(0.5), False)[1]  # as where nothing was scheduled
    answers = ask(host, "on_launch")
    assert not host.failure
    assert len(answers) == 1
    host.close()
