# SPDX-License-Identifier: Apache-2.0
"""The live screen: collector, keys and drawing in one loop."""

from __future__ import annotations

import time

from rich.console import Console
from rich.live import Live
from rich.text import Text

from detshare.ctl.top.collector import Collector, Seen
from detshare.ctl.top.draw import Painter, can_show_blocks
from detshare.ctl.top.keys import Decoder, View, handle, pin
from detshare.ctl.top.rows import Row, ordered, rows, select
from detshare.ctl.top.source import Source
from detshare.ctl.top.terminal import Waiter, keys_one_by_one

_REDRAW_SECONDS = 1.0
"""at least so often, so that the age of a frame shows"""


class Listed:
    """The rows of the last look, made once for each: keys come faster than looks."""

    def __init__(self) -> None:
        self._of: Seen | None = None
        self._rows: list[Row] = []

    def rows(self, seen: Seen) -> list[Row]:
        if seen is not self._of:
            self._of, self._rows = seen, rows(seen.snapshot or {})
        return self._rows


def show(console: Console, seen: Seen, view: View, listed: Listed) -> Text:
    """One frame for the console's size."""
    width, height = console.size
    every = listed.rows(seen)
    pin(view, ordered(select(every, view.filter), view.sort))
    age = time.monotonic() - seen.when if seen.snapshot is not None else 0.0
    painter = Painter(width, height, can_show_blocks(console))
    lines = painter.frame(seen.snapshot, view, can_act=seen.can_act, error=seen.error, age=age, every=every)
    return Text("\n").join(lines)


def run(source: Source, interval: float, console: Console, fd: int, view: View) -> int:
    """Show until q or a signal; the exit code. `fd`: the terminal from which keys come."""
    decoder, listed = Decoder(), Listed()
    with (
        Waiter(fd) as waiter,
        keys_one_by_one(fd),
        Live(
            console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        ) as live,
    ):
        collector = Collector(source, interval, waiter.wake)
        collector.start()
        try:
            while not (view.quit or waiter.over):
                collector.check()
                live.update(show(console, collector.seen, view, listed), refresh=True)
                data = waiter.wait(min(interval, _REDRAW_SECONDS), in_pieces=decoder.waiting)
                names = decoder.feed(data) if data else decoder.flush()
                for name in names:
                    seen = collector.seen
                    verb = handle(view, name, ordered(listed.rows(seen), view.sort), seen.can_act)
                    if verb is not None:
                        view.say(f"{verb.name} {verb.who} ...")
                        collector.submit(verb)
                while not collector.said.empty():
                    said = collector.said.get()
                    view.say(said.text, said.bad)
        finally:
            collector.stop()
    return 128 + waiter.ended_by if waiter.ended_by else 0
