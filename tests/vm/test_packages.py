# SPDX-License-Identifier: Apache-2.0
"""docs/use/install.md word for word, on Debian 12 and 13 as they boot: own kernel, own systemd, own DKMS.

It is read with this tree under an older number installed first, and with this version at "Upgrade"; between them the
machine is booted anew. Level model: no driver is loaded, programs are the model's.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from detshare.tools.release import versions
from tests.debian import guest, packages
from tests.debian.roots import SUITES, Root, skip_without
from tests.unit.builds import ROOT
from tests.unit.pages import Session, sections

PAGE = "use/install.md"
BEFORE_BOOT = ["Install the packages", "See it without a GPU", "Steer a program", "Let others look", "Load the module"]
AFTER = ["Upgrade", "Remove"]
VERSION = versions.said(ROOT)["dkms.conf"]
NEW = "/srv/new"
# A program under `detshare run` that counts: it runs on while the library and the daemon below it are exchanged.
PROGRAM = "import os, time\\nwhile True: print(os.getpid(), flush=True); time.sleep(0.1)"
MAKE = f"printf '%b' '{PROGRAM}' >count.py"
START = "setsid detshare run -- python3 count.py >counted 2>counted.err & echo $! >started"
ALIVE = "kill -0 $(tail -n 1 counted) && tail -n 1 counted && wc -l <counted || cat counted.err"


def test_the_page_has_no_section_that_is_left_out() -> None:
    assert list(sections(PAGE)) == BEFORE_BOOT + AFTER


@pytest.mark.thorough
@pytest.mark.parametrize("release", SUITES)
def test_the_page_is_true(release: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    skip_without("mmdebstrap", "unshare", "mke2fs")
    new, old = packages.debs(tmp_path_factory), packages.renumbered(tmp_path_factory)
    root = Root(release, tmp_path / "root", guest.SYSTEM)
    guest.furnish(root, new)
    for each in (old, new):
        guest.compile_ahead(root, each)
    guest.give(root, guest.HERE, old)
    guest.give(root, NEW, new)
    machine = guest.Machine(root, guest.disk(root, tmp_path / "disk"), tmp_path / "console.log")

    with machine.boot() as session:
        read(session, BEFORE_BOOT)
        assert versions_of(session) == dict.fromkeys(("command", "daemon", "module"), packages.BEFORE)
        session.tell("sudo systemctl reboot")
        assert machine.ended(session) == 0

    with machine.boot() as session:
        # what systemd, the module's list and the configuration bring back, and what was asked for does not come back
        session.check("sudo systemctl is-active detshared", ["active"])
        assert versions_of(session) == dict.fromkeys(("command", "daemon", "module"), packages.BEFORE)
        session.check(
            "sudo detshare-ctl ps", ["model: simulated programs, no GPU is touched", "...", "1000 0 - ...", "..."]
        )
        session.say("sudo detshare-ctl set-priority serve.py high; sudo detshare-ctl set-priority train.py low")
        session.say(f"{MAKE}; {START}")
        session.say("while [[ ! -s counted ]] && kill -0 $(<started); do sleep 0.2; done")
        before = counted(session)
        session.say(f"rm *.deb; cp {NEW}/*.deb .")
        read(session, ["Upgrade"])
        assert versions_of(session) == {"command": VERSION, "daemon": VERSION, "module": packages.BEFORE}
        session.check("sudo dkms status detshare 2>/dev/null | cut -d, -f1 | sort -u", [f"detshare/{VERSION}"])
        after = counted(session)
        assert after[0] == before[0], "another process"
        assert after[1] > before[1]
        session.say("kill $(tail -n 1 counted); cat counted.err")
        read(session, ["Remove"])
        session.check(
            "command -v detshared || echo none; ls -d /run/detshare /usr/src/detshare-* 2>&1 | grep -c cannot",
            ["none", "2"],
        )
        session.check("getent group detshare || echo none", ["none"])
        session.tell("sudo systemctl poweroff")
        assert machine.ended(session) == 0
    assert guest.faults(tmp_path / "console.log") == []


def read(session: Session, titles: list[str]) -> None:
    for title in titles:
        for command, lines in sections(PAGE)[title]:
            session.check(command, lines)


def versions_of(session: Session) -> dict[str, str]:
    said = session.say("sudo detshare-ctl version")
    return dict(re.findall(r"^(command|daemon|module) +(\S+)", said, re.MULTILINE))


def counted(session: Session) -> tuple[str, int]:
    """PID of the program, and how far it is. AssertionError where it is gone."""
    said = session.say(ALIVE).split()
    assert len(said) == 2, said
    return said[0], int(said[1])
