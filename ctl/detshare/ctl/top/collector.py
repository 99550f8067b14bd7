# SPDX-License-Identifier: Apache-2.0
"""A thread that looks every interval and runs verbs, so that a slow answer never freezes the keys."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from detshare.ctl.top.keys import Verb
from detshare.ctl.top.rates import Rates
from detshare.ctl.top.source import Source, SourceError
from detshare.ctl.top.values import clean, items, microseconds, number, whole


@dataclass(frozen=True, slots=True)
class Seen:
    """What the last look brought. After a failed look `snapshot` is still the one before it."""

    snapshot: Mapping[str, Any] | None = None
    error: str = ""
    can_act: bool = False
    when: float = 0.0
    """CLOCK_MONOTONIC seconds of `snapshot`"""


@dataclass(frozen=True, slots=True)
class Said:
    """What came of a verb."""

    text: str
    bad: bool


def told(verb: Verb, outcome: Mapping[str, Any]) -> Said:
    """The outcome of a verb in a sentence or two."""
    parts = []
    for change in items(outcome.get("changed")):
        seen = []
        for tsg in items(change.get("tsgs")):
            before, now = microseconds(tsg.get("before_us")), microseconds(tsg.get("slice_us"))
            level = clean(tsg.get("level"))
            seen.append(f"{before} -> {now}" + (f" {level}" if level else ""))
        note = clean(change.get("note"))
        what = "; ".join([*dict.fromkeys(seen), *([note] if note else [])])
        parts.append(f"{whole(change.get('pid')) or '-'}" + (f" ({what})" if what else ""))
    skipped = [
        f"{whole(skip.get('pid')) or verb.who} left alone: {clean(skip.get('reason')) or '-'}"
        for skip in items(outcome.get("skipped"))
    ]
    args = "".join(f" {clean(str(value))}" for value in verb.args.values())
    seconds = number(outcome.get("seconds"))
    took = f" in {seconds * 1e3:.1f} ms" if seconds and parts else ""
    text = f"{verb.name}{args}: " + ". ".join(([", ".join(parts) + took] if parts else []) + skipped)
    return Said(text if parts or skipped else f"{text}nothing was changed", bad=not parts)


class Memory:
    """Slices as they were before a verb, as told by its outcome: a snapshot tells only what is now."""

    def __init__(self) -> None:
        self._before: dict[tuple[int | None, str, int | None], int] = {}

    def learn(self, verb: Verb, outcome: Mapping[str, Any]) -> None:
        for change in items(outcome.get("changed")):
            for tsg in items(change.get("tsgs")):
                key = (whole(change.get("pid")), clean(tsg.get("gpu")), whole(tsg.get("handle")))
                before = whole(tsg.get("before_us"))
                if verb.name == "release":
                    self._before.pop(key, None)
                elif before is not None:
                    self._before.setdefault(key, before)

    def add_to(self, snapshot: dict[str, Any]) -> None:
        """Give TSGs a `before_us`; forget what belongs to none any more."""
        kept = {}
        for program in snapshot.get("programs") or []:
            for tsg in program.get("tsgs") or []:
                key = (program.get("pid"), tsg.get("gpu"), tsg.get("handle"))
                if key in self._before:
                    kept[key] = self._before[key]
                    tsg.setdefault("before_us", kept[key])
        self._before = kept


class Collector:
    """Runs `source` in a daemon thread; `notify` is called from it after each look and each verb."""

    def __init__(self, source: Source, interval: float, notify: Callable[[], None]) -> None:
        self.seen = Seen()
        self.said: queue.SimpleQueue[Said] = queue.SimpleQueue()
        self._source, self._interval, self._notify = source, interval, notify
        self._verbs: queue.SimpleQueue[Verb | None] = queue.SimpleQueue()
        self._memory = Memory()
        self._rates = Rates()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._guarded, name="collector", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, verb: Verb) -> None:
        self._verbs.put(verb)

    def stop(self) -> None:
        """Ask the thread to end; a look under way does not hold up the caller."""
        self._verbs.put(None)

    def check(self) -> None:
        """Raise what ended the thread, if something did."""
        if self._failure is not None:
            raise self._failure

    def _guarded(self) -> None:
        try:
            self._run()
        except BaseException as error:  # noqa: BLE001 - raised in the main thread by check()
            self._failure = error
            self._notify()

    def _run(self) -> None:
        due = time.monotonic()
        while True:
            try:
                verb = self._verbs.get(timeout=max(due - time.monotonic(), 0.0))
            except queue.Empty:
                self._look()
                # a look that took longer than the interval is not made up for
                due = max(due + self._interval, time.monotonic())
                continue
            if verb is None:
                return
            self._act(verb)
            self._look()

    def _look(self) -> None:
        try:
            snapshot = self._source.look()
            self._memory.add_to(snapshot)
            self._rates.add_to(snapshot)
            self.seen = Seen(snapshot, "", self._source.can_act, time.monotonic())
        except SourceError as error:
            self.seen = Seen(self.seen.snapshot, clean(str(error)), self._source.can_act, self.seen.when)
        self._notify()

    def _act(self, verb: Verb) -> None:
        try:
            outcome = self._source.act(verb.name, verb.who, dict(verb.args))
            self._memory.learn(verb, outcome)
            said = told(verb, outcome)
        except SourceError as error:
            said = Said(f"{verb.name}: {clean(str(error))}", bad=True)
        self.said.put(said)
