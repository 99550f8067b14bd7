# SPDX-License-Identifier: Apache-2.0
"""Memory of each kind by the module, each for long enough that the host's own account is taken meanwhile.

The line that tells a state is followed by one when it ends: whoever counts lines on the host knows which state holds.
"""

from __future__ import annotations

import time

from claims.box import MIB, Box, Program, rows, tell

HELD_S, APART_S = 0.6, 0.15
ASKED = (
    ("device", 1),
    ("device", 3 * MIB),
    ("device", 256 * MIB),
    ("array", 32 * MIB),
    ("virtual", 6 * MIB),
    ("pool", 64 * MIB),
    ("pinned", 64 * MIB),
    ("registered", 16 * MIB),
    ("streams", 16),
)
GIVEN_BACK = 8
"""all but the streams"""


def kinds(box: Box) -> None:
    box.load()
    one = box.program("kinds")

    def state(what: str) -> None:
        used = sum(each.get("memory_used", 0) for each in rows(box.link.vctx_get()))
        tell("kinds", what=what, used=used)
        time.sleep(HELD_S)
        tell("kinds", over=what)
        time.sleep(APART_S)

    def do(program: Program, words: str, what: str) -> None:
        answer = program.ask(words, "kind")
        tell("kinds", asked=words, answer=answer)
        state(what)

    state("a context")
    for kind, size in ASKED:
        amount = f"{size / MIB:g} MiB" if size >= MIB else f"{size}"
        do(one, f"{kind} {size}", f"and {kind}: {amount}")
    for number in range(GIVEN_BACK):
        do(one, "free", f"{number + 1} of {GIVEN_BACK} given back")
    other = box.program("kinds")
    state("two programs")
    other.end()
    time.sleep(0.3)
    state("the second killed")
