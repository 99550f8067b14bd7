# SPDX-License-Identifier: Apache-2.0
"""How much of the GPU an experiment has, and a daemon that makes room when it is full."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from detshare.ctl.core.errors import ControlError
from detshare.tools.bench.parking.holder import MIB, Holder
from detshare.tools.bench.session import Session

__all__ = ["Part", "events", "full", "part"]

WAIT_S: Final = 3600
GRAIN_MIB: Final = 2
QUICK_SHARE: Final = 0.25
CONTEXT_MIB: Final = 700
"""of a program with PyTorch: its context and its code, which stay on the GPU"""


@dataclass
class Part:
    """GPU memory that the experiment's programs have, their contexts aside, MiB; a plain program holds the rest."""

    mib: int
    filler: Holder | None = None

    def end(self) -> None:
        """The rest is free again."""
        if self.filler is not None:
            self.filler.end()


def part(session: Session, contexts: int) -> Part:
    """As --mib says; all that so many contexts leave, a quarter with --quick."""
    probe = Holder(session, GRAIN_MIB, park=False)
    ready = probe.program.ready()
    probe.end()
    left = int(ready["left"]) // MIB - contexts * CONTEXT_MIB
    wanted = session.options.mib or int(left * (QUICK_SHARE if session.options.quick else 1.0))
    mib = min(wanted, left)
    session.row("GPU memory that the programs have, contexts aside", mib, "MiB", int(ready["total"]) / MIB)
    rest = (left - mib) // GRAIN_MIB * GRAIN_MIB
    # the filler's context takes some of what is left, as the probe's did
    return Part(mib, Holder(session, rest, park=False) if rest >= GRAIN_MIB else None)


def full(session: Session, when: str, copy_percent: float, policy: str = "strict") -> None:
    """Have the daemon that is started next make room: `when` is park or turns."""
    session.steer.config = session.folder / "detshare.toml"
    text = f'[park]\nwait = {WAIT_S}\n[policy]\nname = "{policy}"\n[policy.parameters]\n'
    text += f'when_full = "{when}"\n' + (f"copy_percent = {copy_percent}\n" if when == "turns" else "")
    session.steer.config.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def events(session: Session) -> Iterator[None]:
    """Keep what the daemon tells of memory meanwhile, in the raw file, however it ends."""
    try:
        yield
    finally:
        with contextlib.suppress(ControlError, OSError):
            for event in session.steer.client.events():
                if event["kind"] in ("park", "memory", "error"):
                    session.mark("daemon", said=event)
