# SPDX-License-Identifier: Apache-2.0
"""An upgrade over the packages of an older tree, under programs that are steered and limited by the module.

The machine is Debian's own, with a key for modules (MOK) that was there first, and the simulated driver. Level model.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest

from detshare.ctl.core import classes
from detshare.tools.release import versions
from tests.debian import guest, packages, signing
from tests.debian.roots import SUITES, Root, skip_without
from tests.unit.builds import ROOT
from tests.unit.pages import Session, sections
from tests.vm.test_kmod import clients
from tests.vm.test_packages import NEW, versions_of

__all__ = ["clients"]  # a fixture

VERSION: Final = versions.said(ROOT)["dkms.conf"]
CONFIG: Final = "/etc/detshare/detshare.toml"
GIB: Final = 1 << 30
NO_MEMORY: Final = 0x51
TRUTH: Final = "/sys/kernel/debug/nvsim/gpu0/tsgs"
# what an operator changes: a level of the log, and the class of programs that nobody asked anything for
EDIT: Final = (
    r's/^log_level = .*/log_level = "debug"/; '
    r's/^# \[daemon.classes\]/[daemon.classes]\n"*nvbackground*--quiet*" = "low"/'
)
UPGRADE: Final = "sudo apt install --yes -o Dpkg::Options::=--force-confold ./detshare*.deb"


def test_the_page_has_the_command_for_where_nobody_answers() -> None:
    text = (ROOT / "docs/use/install.md").read_text(encoding="utf-8")
    assert f"\n{UPGRADE}\n" in text.partition("## Upgrade")[2].partition("\n## ")[0]
    assert sections("use/install.md")["Upgrade"]


@pytest.mark.thorough
@pytest.mark.parametrize("release", SUITES)
def test_programs_and_settings_outlive_it(
    release: str, clients: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    skip_without("mmdebstrap", "unshare", "mke2fs")
    new, old = packages.debs(tmp_path_factory), packages.older(tmp_path_factory)
    root = Root(release, tmp_path / "root", guest.SYSTEM)
    guest.furnish(root, new)
    for each in (old, new):
        guest.compile_ahead(root, each)
    guest.simulate(root, clients)
    signing.own_key(root)
    signing.give_check(root)
    key = f"sha256sum /{signing.KEY} /{signing.CERTIFICATE}"
    guest.give(root, guest.HERE, old)
    guest.give(root, NEW, new)
    machine = guest.Machine(root, guest.disk(root, tmp_path / "disk"), tmp_path / "console.log")

    with machine.boot() as session:
        owned = session.say(f"sudo {key}")
        assert len(re.findall("^[0-9a-f]{64} ", owned, re.MULTILINE)) == 2
        # DKMS signs with openssl, which the older detshare-dkms does not ask for
        session.say("sudo apt update; sudo apt install --yes linux-headers-amd64 openssl ./detshare*.deb")
        is_signed(session)
        session.say("sudo modprobe detshare; echo detshare | sudo tee /etc/modules-load.d/detshare.conf")
        session.say(f"sudo sed -i '{EDIT}' {CONFIG}")
        session.check("sudo detshare-ctl config check", [f"{CONFIG}: nothing is wrong"])
        session.say("sudo systemctl restart detshared")
        session.check("sudo systemctl is-active detshared", ["active"])
        assert versions_of(session) == dict.fromkeys(("command", "daemon", "module"), packages.BEFORE)
        edited = session.say(f"sha256sum {CONFIG}")

        busy, hog = start(session)
        session.check(f"sudo detshare-ctl set-priority {busy} high", [f"{busy}: set-priority done", "..."])
        for pid in (busy, hog):
            session.say(f"sudo detshare-ctl set-memory {pid} 1G")
        assert take(session, "512m") == 0
        assert take(session, "1g") == NO_MEMORY
        before = steered(session, busy), steered(session, hog)
        assert (before[0]["class"], before[0]["limit"], before[1]["limit"]) == ("high", GIB, GIB)
        given = ordered(session, before[0])
        high = classes.CLASSES["high"]
        assert given == (high.slice_us, int(high.level))
        daemon = pid_of_daemon(session)
        worked = done_us(session, before[0])

        # a script that does not say what becomes of the configuration: the daemon from before goes on
        session.say(f"rm *.deb; cp {NEW}/*.deb .")
        session.check("sudo apt install --yes ./detshare*.deb >stopped 2>&1; echo $?", ["100"])
        assert pid_of_daemon(session) == daemon
        assert ordered(session, before[0]) == given
        session.check(f"{UPGRADE} >upgraded 2>&1; echo $?", ["0"])
        assert versions_of(session) == {"command": VERSION, "daemon": VERSION, "module": packages.BEFORE}
        assert pid_of_daemon(session) not in (0, daemon)
        session.check("sudo systemctl is-active detshared", ["active"])
        assert (steered(session, busy), steered(session, hog)) == before
        assert ordered(session, before[0]) == given
        assert done_us(session, before[0]) > worked
        assert take(session, "1g") == NO_MEMORY
        assert take(session, "128m") == 0
        assert session.say("cat busy.err hog.err") == ""

        assert session.say(f"sha256sum {CONFIG}") == edited
        session.check(f"ls {CONFIG}.dpkg-dist", [f"{CONFIG}.dpkg-dist"])
        session.check("sudo detshare-ctl log-level", ["...debug..."])
        late = session.say(
            f"{guest.CLIENTS}/nvbackground --quiet >late & echo $!; until [[ -s late ]]; do sleep 0.2; done"
        )
        session.check("sudo detshare-ctl ps", ["...", f"{late.strip()} 0 low ...", "..."])

        is_signed(session)
        assert session.say(f"sudo {key}") == owned
        session.check("sudo dkms status detshare 2>/dev/null | cut -d, -f1 | sort -u", [f"detshare/{VERSION}"])
        session.tell("sudo systemctl reboot")
        assert machine.ended(session) == 0

    with machine.boot() as session:
        session.check("sudo systemctl is-active detshared", ["active"])
        assert versions_of(session) == dict.fromkeys(("command", "daemon", "module"), VERSION)
        session.check("sudo detshare-ctl log-level", ["...debug..."])
        session.tell("sudo systemctl poweroff")
        assert machine.ended(session) == 0
    assert guest.faults(tmp_path / "console.log") == []


def pid_of_daemon(session: Session) -> int:
    return int(session.say("sudo systemctl show --value --property=MainPID detshared"))


def is_signed(session: Session) -> None:
    """By the key that was there first, for this kernel."""
    session.check("sudo modinfo --field signer detshare", [signing.OWNER])
    session.check(f'sudo {signing.CHECK} "$(sudo modinfo --field filename detshare)"', ["CMS Verification successful"])


def start(session: Session) -> tuple[int, int]:
    """PIDs of a program that works all the time, and of one that takes memory when it is told to."""
    said = session.say(
        f"mkfifo asked; {guest.CLIENTS}/nvbackground >busy 2>busy.err & echo $!\n"
        f"{guest.CLIENTS}/nvalloc <asked >held 2>hog.err & echo $!\n"
        "exec 3>asked\n"
        "until [[ -s busy && -s held ]]; do sleep 0.2; done"
    )
    busy, hog = map(int, said.split())
    return busy, hog


def take(session: Session, size: str) -> int:
    """The driver's status for so much memory."""
    said = session.say(
        f"had=$(wc -l <held); echo {size} >&3; until (($(wc -l <held) > had)); do sleep 0.2; done; tail -n 1 held"
    )
    return int(json.loads(said)["status"])


def steered(session: Session, pid: int) -> dict[str, Any]:
    """What must stay of a program: which it is, when it began, its class, and its limit as the module has it."""
    found = json.loads(session.say("sudo detshare-ctl ps --json"))
    (mine,) = (each for each in found["programs"] if each["pid"] == pid)
    return {
        "pid": pid,
        "start": mine["start"],
        "class": mine["class"],
        "limit": mine["memory_limit"],
        "clients": sorted({each["client"] for each in mine["tsgs"]}),
    }


def rows(session: Session, program: dict[str, Any]) -> list[dict[str, str]]:
    """The simulated GPU's own account of a program's compute work."""
    header, *lines = (line.split() for line in session.say(f"sudo cat {TRUTH}").splitlines())
    found = [dict(zip(header, line, strict=True)) for line in lines]
    (client,) = program["clients"]
    mine = [each for each in found if int(each["client"], 0) == client and int(each["engine"], 0) == 1]
    assert mine, found
    return mine


def ordered(session: Session, program: dict[str, Any]) -> tuple[int, int]:
    """Slice and level that the driver was told."""
    (row,) = rows(session, program)
    return int(row["slice_us"], 0), int(row["level"], 0)


def done_us(session: Session, program: dict[str, Any]) -> int:
    (row,) = rows(session, program)
    return int(row["gpu_time_us"], 0)
