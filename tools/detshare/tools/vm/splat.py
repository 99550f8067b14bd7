# SPDX-License-Identifier: Apache-2.0
"""What in a kernel log says that the kernel, or a module in it, is broken."""

from __future__ import annotations

import re
from collections.abc import Iterable

# At the start of a message only: what programs write to the log, and quote there, does not count.
_SPLAT = re.compile(
    r"""
    BUG: | kernel\ BUG\ at | WARNING: | Oops | Kernel\ panic | UBSAN: | KASAN | KCSAN | KFENCE | DEBUG_LOCKS_WARN
    | general\ protection\ fault, | double\ fault: | stack\ segment: | divide\ error: | invalid\ opcode:
    | int3: | Unable\ to\ handle | unable\ to\ handle
    | INFO:\ (?:task\ .*\ blocked | possible | suspicious | trying\ to\ register | inconsistent)
    | (?:rcu:\ )?INFO:\ rcu.*(?:detected|self-detected)\ | rcu:\ .*stall
    | BUG\ \S+\ \( | watchdog:\ BUG | refcount_t: | list_(?:add|del)\ corruption | kmemleak:\ \d
    | (?:kobject:\ )?kobject_add_internal\ failed | sysfs:\ cannot\ create\ duplicate | ODEBUG: | usercopy:
    | kernel\ tried\ to\ execute | -+\[\ ftrace\ bug
    """,
    re.VERBOSE,
)
_STALL = re.compile(r"(?:rcu: )?INFO: rcu.*detected|rcu: .*stall|watchdog: BUG: soft lockup")
_SUBJECT = re.compile(r"^(?:<\d+>)?(?:\[\s*\d+\.\d+\]\s?)?(?:\[\s*[TC]\d+\]\s?)?(.*)$")
_DIE = re.compile(r"\[#\d+\]")
_OTHERS = re.compile(r"^detshare-vm: ")


def message(line: str) -> str:
    """The line without its time."""
    match = _SUBJECT.match(line)
    return match[1] if match else line


def splat(line: str) -> str | None:
    """The message when this line of a kernel log begins a report of a fault, else None."""
    text = message(line.rstrip("\r\n"))
    if _OTHERS.match(text):
        return None
    if _SPLAT.match(text) or (_DIE.search(text) and re.match(r"[A-Za-z ,]+: [0-9a-f]{4} ", text)):
        return text
    return None


def stall(line: str) -> bool:
    """True when this line reports that a processor stood still, whoever's doing it was."""
    return _STALL.match(message(line)) is not None


def first(lines: Iterable[str]) -> tuple[int, str] | None:
    """Where the first report begins (an index) and what it says; None in a clean log."""
    for number, line in enumerate(lines):
        text = splat(line)
        if text is not None:
            return number, text
    return None
