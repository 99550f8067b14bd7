# SPDX-License-Identifier: Apache-2.0
"""The live screen: collector, keys and drawing in one loop."""

from __future__ import annotations

import time

from rich.console import Console
from rich.live import Live
from rich.text import Text

from detshare.ctl.top.collector import Collector
from detshare.ctl.top.draw import Painter
from detshare.ctl.top.keys import Decoder, View, handle, pin
from detshare.ctl.top.rows import ordered, rows, select
from detshare.ctl.top.source import Source
from detshare.ctl.top.terminal import Waiter, keys_one_by_one

_REDRAW_SECONDS = 1.0
"""at least so often, so that the age of a frame shows"""


def can_show_blocks(console: Console) -> bool:
    """Whether the terminal takes more than ASCII."""
    return console.encoding.lower().replace("-", "") == "utf8"


def _show(console: Console, collector: Collector, view: View) -> Text:
    seen = collector.seen
    width, height = console.size
    shown = ordered(select(rows(seen.snapshot or {}), view.filter), view.sort)
    pin(view, shown)
    age = time.monotonic() - seen.when if seen.snapshot is not None else 0.0
    painter = Painter(width, height, can_show_blocks(console))
    lines = painter.frame(seen.snapshot, view, can_act=seen.can_act, error=seen.error, age=age)
    return Text("\n").join(lines)


def run(source: Source, interval: float, console: Console, fd: int, view: View) -> int:
    """Show until q or a signal; the exit code. `fd`: the terminal from which keys come."""
    decoder = Decoder()
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
                live.update(_show(console, collector, view), refresh=True)
                data = waiter.wait(min(interval, _REDRAW_SECONDS), in_pieces=decoder.waiting)
                names = decoder.feed(data) if data else decoder.flush()
                for name in names:
                    seen = collector.seen
                    verb = handle(view, name, ordered(rows(seen.snapshot or {}), view.sort), seen.can_act)
                    if verb is not None:
                        view.say(f"{verb.name} {verb.who} ...")
                        collector.submit(verb)
                while not collector.said.empty():
                    said = collector.said.get()
                    view.say(said.text, said.bad)
        finally:
            collector.stop()
    return 128 + waiter.ended_by if waiter.ended_by else 0
